"""The random number generators of the process and torch's switches: at one moment, and put back."""

from __future__ import annotations

import ctypes
import functools
import importlib
import random
import struct
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

_MT19937_BYTES: Final = 2500
"""What NumPy keeps of a Mersenne twister: 624 words and where it is in them."""


@dataclass(frozen=True, slots=True)
class Rng:
    """The random number generators and torch's switches, at one moment."""

    torch: Tensor
    cuda: tuple[Tensor, ...] | None
    python: Any
    numpy: Any
    switches: tuple[Any, ...]
    inference: bool
    """Whether it was in inference mode; `restore` cannot go there or away."""


def rng() -> Rng:
    """The state of every generator that a program uses without naming it, and of the switches."""
    return Rng(
        torch=torch.default_generator.get_state(),
        cuda=tuple(g.get_state() for g in torch.cuda.default_generators) if torch.cuda.is_initialized() else None,
        python=_python(),
        numpy=_numpy(),
        switches=tuple(read() for read, _ in _SWITCHES),
        inference=torch.is_inference_mode_enabled(),
    )


def stored() -> dict[str, Any]:
    """The state of the generators of the processor as a document for another process.

    NumPy's is made, if the program has NumPy: else it would begin anywhere, later.
    """
    _load_numpy()
    state = rng()
    version, words, second = _spelled(state.python)
    plain = state.numpy if isinstance(state.numpy, tuple) else None
    return {
        "torch": state.torch.numpy().tobytes().hex(),
        "python": [version, list(words), second],
        "numpy": None if plain is None else [plain[0].hex(), *plain[1:]],
    }


def restore_stored(document: dict[str, Any]) -> None:
    """Put the generators of this process where those of another one were."""
    state = bytearray.fromhex(document["torch"])
    torch.default_generator.set_state(torch.frombuffer(state, dtype=torch.uint8))
    version, words, second = document["python"]
    random.setstate((version, tuple(words), second))
    if document["numpy"] is not None and _load_numpy():
        words, *rest = document["numpy"]
        _set_numpy((bytes.fromhex(words), *rest))


def _load_numpy() -> bool:
    if "numpy" in sys.modules:
        importlib.import_module("numpy.random")
    return "numpy.random" in sys.modules


def restore(state: Rng) -> None:
    """Put the generators and the switches back; what autocast has cast is forgotten, for it is of a graph."""
    restore_generators(state)
    for (read, write), value in zip(_SWITCHES, state.switches, strict=True):
        if read() != value:
            write(value)
    torch.clear_autocast_cache()


def restore_generators(state: Rng) -> None:
    """Put the generators back, and nothing else."""
    torch.default_generator.set_state(state.torch)
    if state.cuda is not None:
        for generator, value in zip(torch.cuda.default_generators, state.cuda, strict=True):
            generator.set_state(value)
    random.setstate(_spelled(state.python))
    if state.numpy is not None:
        _set_numpy(state.numpy)


_Switch = tuple["Callable[[], Any]", "Callable[[Any], object]"]


def _autocast(device: str) -> list[_Switch]:
    return [
        (
            functools.partial(torch.is_autocast_enabled, device),
            functools.partial(torch.set_autocast_enabled, device),
        ),
        (
            functools.partial(torch.get_autocast_dtype, device),
            functools.partial(torch.set_autocast_dtype, device),
        ),
    ]


def _deterministic() -> tuple[bool, bool]:
    return (
        torch._C._get_deterministic_algorithms(),
        torch._C._get_deterministic_algorithms_warn_only(),
    )


def _set_deterministic(value: tuple[bool, bool]) -> None:
    torch._C._set_deterministic_algorithms(value[0], warn_only=value[1])


def _anomaly() -> tuple[bool, bool]:
    return torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()


_SWITCHES: Final[list[_Switch]] = [
    *_autocast("cpu"),
    *_autocast("cuda"),
    (torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled),
    (torch.is_grad_enabled, torch._C._set_grad_enabled),
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.get_num_threads, torch.set_num_threads),
    (_deterministic, _set_deterministic),
    (torch._C._get_deterministic_fill_uninitialized_memory, torch._C._set_deterministic_fill_uninitialized_memory),
    (torch._C._get_cudnn_deterministic, torch._C._set_cudnn_deterministic),
    (torch._C._get_cudnn_benchmark, torch._C._set_cudnn_benchmark),
    (torch._C._get_float32_matmul_precision, torch._C._set_float32_matmul_precision),
    (_anomaly, lambda value: torch.set_anomaly_enabled(*value)),
]


def _python() -> Any:
    """The state of Python's global generator; its getter makes 625 numbers of it, and its memory is read in one."""
    # of the one that the setter sets, whatever the program has put into `random`
    generator: Any = getattr(random.getstate, "__self__", None)
    is_plain = type(generator) is _PLAIN and getattr(random.setstate, "__self__", None) is generator
    at = _words_at() if is_plain else None
    if at is None:
        return random.getstate()
    second: Any = getattr(generator, "gauss_next", None)
    return _Words(ctypes.string_at(id(generator) + at, _WORDS.size), second)


def _spelled(state: Any) -> Any:
    """A state as Python's setter takes it."""
    if type(state) is not _Words:
        return state
    position, *key = _WORDS.unpack(state.words)
    return _PLAIN.VERSION, (*key, position), state.second


class _Words(NamedTuple):
    """The state of a plain generator, as it lies in its memory; the second of two normal numbers made at once."""

    words: bytes
    second: float | None


_PLAIN: Final = random.Random


_WORDS: Final = struct.Struct("=i624I")


@functools.cache
def _words_at() -> int | None:
    """Where in its memory a generator of Python's has its position and its words; None where it is not plain."""
    made = _PLAIN(1)
    made.random()
    _, (*key, position), _ = made.getstate()
    expected = _WORDS.pack(position, *key)
    ends = type(made).__basicsize__ - _WORDS.size + 1
    places = [p for p in range(0, ends, 4) if ctypes.string_at(id(made) + p, _WORDS.size) == expected]
    return places[0] if len(places) == 1 else None


def _numpy() -> Any:
    """The state of NumPy's global generator; None where the program does not have it.

    Its getter takes 40 us and more; its memory is read in one.
    """
    numpy: Any = sys.modules.get("numpy.random")
    if numpy is None:
        return None
    state: Any = numpy.mtrand._rand
    twister: Any = state._bit_generator
    at = _second_at(numpy) if type(state) is numpy.RandomState and type(twister).__name__ == "MT19937" else None
    if at is None:
        return state.get_state(legacy=False)
    words = ctypes.string_at(twister.ctypes.state_address, _MT19937_BYTES)
    return words, *struct.unpack("=i4xd", ctypes.string_at(id(state) + at, 16))


def _set_numpy(value: Any) -> None:
    numpy: Any = sys.modules["numpy.random"]
    if isinstance(value, tuple):
        words, has, second = value
        *key, position = struct.unpack("=624Ii", words)
        value = {
            "bit_generator": "MT19937",
            "state": {"key": key, "pos": position},
            "has_gauss": has,
            "gauss": second,
        }
    numpy.set_state(value)


@functools.cache
def _second_at(numpy: Any) -> int | None:
    """Where in its memory a generator has the second of two normal numbers that it has made at once.

    Found in one of ours, by what its getter says; None where it is not plain.
    """
    made = numpy.RandomState(1)
    places = range(0, type(made).__basicsize__ - 16, 8)
    for _ in range(6):
        made.randn()
        state = made.get_state(legacy=False)
        expected = struct.pack("=i4xd", state["has_gauss"], state["gauss"])
        places = [p for p in places if ctypes.string_at(id(made) + p, 16) == expected]
    return places[0] if len(places) == 1 else None


class ScalerState:
    """What a ``GradScaler`` knows at one moment: its scale, and how far it is with each optimizer."""

    def __init__(self, scaler: Any) -> None:
        self.scaler = scaler
        self._stages = {key: dict(stage) for key, stage in scaler._per_optimizer_states.items()}
        self._scale, self._growth = (None if t is None else t.clone() for t in (scaler._scale, scaler._growth_tracker))

    def put_back(self) -> None:
        """Have it know that again."""
        stages = self.scaler._per_optimizer_states
        stages.clear()
        stages.update({key: dict(stage) for key, stage in self._stages.items()})
        for tensor, kept in ((self.scaler._scale, self._scale), (self.scaler._growth_tracker, self._growth)):
            if tensor is not None and kept is not None:
                tensor.copy_(kept)
