"""A failing operation, packed into a folder that reproduces it anywhere, and unpacked."""

from whynan.capsule.packing import Content as Content
from whynan.capsule.packing import content_of as content_of
from whynan.capsule.packing import pack as pack
from whynan.capsule.reader import Capsule as Capsule
from whynan.capsule.reader import OperationReplay as OperationReplay
from whynan.capsule.reader import open_capsule as open_capsule
