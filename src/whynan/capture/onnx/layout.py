"""Values that are put in order only when their elements are looked at one by one."""

# pyright: strict

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import onnx
from onnx import TensorProto, helper

from whynan.capture.onnx.values import opened_alone

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from whynan.capture.onnx.execution import Tensor, Value

NCHWC: Final = "com.microsoft.nchwc"
_MOST: Final = 64
"""Channels of a block, at the very most."""


class Blocked:
    """A value of N, C, H, W that lies in memory as N, C / b, H, W, b; it must be as long as this is.

    What does not depend on the order of the elements is read from ``raw``; ``np.asarray`` gives them in order.
    """

    __slots__ = ("__weakref__", "_plain", "_size", "dtype", "nbytes", "raw", "shape", "size")

    def __init__(self, raw: Tensor, size: int) -> None:
        """``size`` is that of a block; the channels must not be filled up."""
        self.raw = raw
        self.dtype, self.size, self.nbytes = raw.dtype, raw.size, raw.nbytes
        n, c, h, w = (int(side) for side in raw.shape[:4])
        self.shape = (n, c, h, w) if raw.ndim == 4 else (n, c * size, h, w)
        self._size = size
        self._plain: Tensor | None = None

    @property
    def plain(self) -> Tensor:
        """The elements in order."""
        if self._plain is None:
            n, c, h, w = self.shape
            blocks = self.raw.reshape(n, c // self._size, h, w, self._size)
            self._plain = blocks.transpose(0, 1, 4, 2, 3).reshape(self.shape)
        return self._plain

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Tensor:
        if copy:
            return np.array(self.plain, dtype)
        return self.plain if dtype is None else self.plain.astype(dtype, copy=False)


class Moved:
    """A value that holds the elements of other values, each of them once, and nothing else: made when it is asked for.

    ``np.asarray`` makes it; ``parts`` are the values, which must be as long as this is.
    """

    __slots__ = ("__weakref__", "_make", "_plain", "dtype", "nbytes", "parts", "shape", "size")

    def __init__(
        self, parts: tuple[Tensor, ...], shape: tuple[int, ...], make: Callable[[Sequence[Tensor]], Tensor]
    ) -> None:
        """``make`` gives the elements in the shape that is meant, of all parts in order."""
        self.parts = parts
        self.shape = shape
        self.dtype = parts[0].dtype
        self.size = sum(part.size for part in parts)
        self.nbytes = sum(part.nbytes for part in parts)
        self._make = make
        self._plain: Tensor | None = None

    @property
    def plain(self) -> Tensor:
        """The elements in order."""
        if self._plain is None:
            self._plain = np.ascontiguousarray(self._make([np.asarray(part) for part in self.parts]))
        return self._plain

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Tensor:
        if copy:
            return np.array(self.plain, dtype)
        return self.plain if dtype is None else self.plain.astype(dtype, copy=False)


def in_order(value: Value) -> Value:
    """A value whose elements lie in order."""
    held = cast("Any", value)
    return held.plain if isinstance(held, Blocked | Moved) else value


@cache
def block_size() -> int:
    """The channels of a block on this machine; 0 where ONNX Runtime does not know this layout."""
    values = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, _MOST, 1, 2])
    node = helper.make_node("ReorderInput", ["x"], ["y"], domain=NCHWC)
    graph = helper.make_graph([node], "layout", [values], [onnx.ValueInfoProto(name="y")])
    try:
        session = opened_alone(graph, NCHWC)
        given = np.tile(np.arange(2, dtype=np.float32), _MOST).reshape(1, _MOST, 1, 2)
        found = np.asarray(session.run(None, {"x": given})[0]).reshape(-1)
    except Exception:
        return 0
    # the first element of the second column comes when the first block of the first is over
    return int(np.argmax(found))
