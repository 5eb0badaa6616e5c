"""Capture for eager PyTorch."""

from whynan.capture.torch.capture import Capture as Capture
