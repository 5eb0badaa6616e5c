"""Shadow memory: what is known of a storage that holds, or may hold, bad elements; counters and ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch._utils import _flatten_dense_tensors as end_to_end

from whynan.capture.torch.provenance.labels import PLANE_DTYPE
from whynan.capture.torch.sites import PHASES
from whynan.models.counting import Counted as Counted
from whynan.models.counting import counters as counters
from whynan.records import Range

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from whynan.records import Site


# -- What is known of a storage that holds, or may hold, bad elements; hung on the storage itself ----------------------
#
# A clean storage carries nothing; a ``State`` appears with the first bad element. The attribute lives and dies with
# the C++ storage and is not copied, pickled or saved.


_no_dispatch = torch._C._disabled_torch_dispatch_impl
PLAIN = frozenset((torch.Tensor, torch.nn.Parameter))
ATTRIBUTE = "_whynan"
FLOATS = frozenset(
    d
    for d in (
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
        torch.complex32,
        torch.complex64,
        torch.complex128,
        *(getattr(torch, n, None) for n in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")),
    )
    if d is not None
)
SEARCHED = frozenset((torch.float16, torch.bfloat16, torch.float32, torch.float64))
"""The dtypes of which `aminmax` finds a NaN or an Inf in one pass."""
FLOAT8 = frozenset(d for d in FLOATS if d.itemsize == 1)
# tensors of at most so many elements are looked at together, at most so many at a time
SMALL = 1 << 14
TOGETHER = 32
HALVES = frozenset((torch.float16, torch.bfloat16))
WIDE = FLOATS - HALVES
COMPRESSED = frozenset((torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc))


class State:
    """Label planes of one storage, one element each, and where its content came from."""

    __slots__ = (
        "__weakref__",
        "backward",
        "itemsize",
        "only",
        "plane",
        "reads",
        "shadow",
        "shape",
        "skipped",
        "taint",
        "trace",
        "uninitialised",
    )

    def __init__(self, trace: int) -> None:
        self.trace = trace
        self.plane: Tensor | None = None
        self.taint: Tensor | None = None
        self.shadow: Tensor | None = None
        self.itemsize = 0
        # the one set of labels that the plane holds; 0 where that is not known, or there are several
        self.only = 0
        self.uninitialised = False
        self.backward = False
        self.skipped = False
        self.reads = 0
        self.shape: tuple[int, ...] = ()

    def clear_overwritten(self, tensor: Tensor, *, overwrites: bool) -> None:
        """A tensor of this storage has been written and is finite: what it covers carries no label any more."""
        storage = tensor.untyped_storage()
        whole = tensor.numel() * tensor.element_size() == storage.nbytes()
        if whole and (overwrites or not self.uninitialised) and self.taint is None:
            delattr(storage, ATTRIBUTE)
            return
        if self.itemsize != tensor.element_size():
            return
        if self.plane is not None:
            strided(self.plane, self.itemsize, tensor).zero_()
        if self.taint is not None and overwrites:
            strided(self.taint, self.itemsize, tensor).zero_()


def strided(plane: Tensor, itemsize: int, tensor: Tensor) -> Tensor:
    """The plane as `tensor` sees its storage; a copy where element sizes differ (a complex seen as real)."""
    size = tensor.element_size()
    if size < itemsize:
        plane = plane.repeat_interleave(itemsize // size)
    elif size > itemsize:
        plane = _joined(plane, size // itemsize)
    return plane.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def _joined(plane: Tensor, count: int) -> Tensor:
    """A plane of elements that are so many times as large; what is left at its end is one of them, too."""
    if missing := -plane.numel() % count:
        plane = torch.cat([plane, plane.new_zeros(missing)])
    return plane.view(-1, count).amax(1)


def new_plane(tensor: Tensor) -> Tensor:
    """An empty plane for the whole storage of a tensor."""
    n = tensor.untyped_storage().nbytes() // tensor.element_size()
    return torch.zeros(n, dtype=PLANE_DTYPE, device=tensor.device)


def rescale(state: State, tensor: Tensor) -> None:
    """Bring the state's planes to the element size of `tensor`, before it is written through it."""
    size = tensor.element_size()
    if not state.itemsize or state.itemsize == size:
        state.itemsize = size
        return
    for name in ("plane", "taint"):
        plane: Tensor | None = getattr(state, name)
        if plane is not None:
            if size < state.itemsize:
                plane = plane.repeat_interleave(state.itemsize // size)
            else:
                plane = _joined(plane, size // state.itemsize)
            setattr(state, name, plane)
    state.shadow = None
    state.itemsize = size


def computable(tensor: Tensor) -> Tensor:
    """A tensor of a format that PyTorch hardly computes in as float32; any other as it is."""
    return tensor.float() if tensor.dtype in FLOAT8 else tensor


def bad_mask(tensor: Tensor) -> Tensor:
    """Which elements are NaN or infinite, of any floating or complex dtype."""
    tensor = computable(tensor)
    if tensor.dtype not in SEARCHED:
        return ~torch.isfinite(tensor)
    # a difference that is 0 unless it has no value; faster than `isfinite`, which makes several passes
    return (tensor - tensor) != 0


def is_whole(tensor: Tensor) -> bool:
    """Whether a tensor is all that its storage holds, element by element in order."""
    return tensor.is_contiguous() and tensor.untyped_storage().nbytes() == tensor.nbytes


def nan_mask(tensor: Tensor) -> Tensor:
    """Which elements are NaN."""
    return torch.isnan(computable(tensor))


def one_of(tensor: Tensor, chosen: Tensor) -> float | None:
    """What all the bad elements that were chosen are: NaN, Inf or -Inf; None where they differ, or are complex."""
    if tensor.is_complex():
        return None
    found: Tensor = computable(tensor)[chosen]
    first = float(found[0])
    same = torch.isnan(found) if first != first else found == found[0]
    return first if bool(same.all()) else None


def is_readable(tensor: Tensor) -> bool:
    """Whether a tensor has elements to be read (not meta, fake, sparse, nested, quantised, a wrapper's, freed)."""
    return tensor.dtype in FLOATS and is_plain(tensor) and is_strided(tensor) and not is_freed(tensor)


def is_plain(tensor: Tensor) -> bool:
    """Whether what is done to a tensor is done to its own elements (not to those of another, as of a wrapper)."""
    kind: Any = type(tensor)
    return kind in PLAIN or kind.__torch_dispatch__ is _no_dispatch


def is_strided(tensor: Tensor) -> bool:
    """Whether each element of a tensor has its place in memory (of no sparse, nested, quantised, meta tensor)."""
    plain = tensor.layout is torch.strided and not tensor.is_nested
    return plain and not tensor.is_quantized and tensor.device.type != "meta"


def is_wrapped(tensor: Tensor) -> bool:
    """Whether a tensor is one of `torch.func`'s, which has no value of its own and ends with its transform."""
    functorch: Any = getattr(torch._C, "_functorch")  # noqa: B009 - torch's stubs do not know it
    return functorch.is_functorch_wrapped_tensor(tensor)


def owns_elements(tensor: Tensor) -> bool:
    """Whether the elements of a tensor, of whichever dtype, can be copied and written as they lie in its memory."""
    return not is_wrapped(tensor) and is_plain(tensor) and is_strided(tensor) and not is_freed(tensor)


def is_freed(tensor: Tensor) -> bool:
    """Whether the memory of a tensor was given back while the tensor is kept, as FSDP does with gathered parameters."""
    try:
        return bool(tensor.numel()) and not tensor.untyped_storage().nbytes()
    except (RuntimeError, NotImplementedError, ValueError):
        return False


def local(tensor: Tensor) -> Tensor | None:
    """What lies in the memory of this process of a tensor; None where it has no memory that can be read.

    An operation on a tensor in parts over several processes (``DTensor``) is one of all of them, and below its own
    dispatch one on memory that is not there.
    """
    if is_plain(tensor):
        return tensor
    # of a DTensor, and of a jagged tensor
    for name in ("_local_tensor", "_values"):
        part: Any = getattr(tensor, name, None)
        if isinstance(part, torch.Tensor):
            return local(part)
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
        return tensor if tensor.data_ptr() or not tensor.numel() else None


def global_block(tensor: Any) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Where the part of a ``DTensor`` that lies in this process begins in the whole, and the shape of that.

    None for every other tensor, and for a part that is no block: two dimensions of a mesh may interleave their rows.
    """
    placements = getattr(tensor, "placements", None)
    if placements is None or not isinstance(getattr(tensor, "_local_tensor", None), torch.Tensor):
        return None
    from torch.distributed.tensor import Partial, Replicate, Shard
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    if any(type(placement) not in (Shard, Replicate, Partial) for placement in placements):
        return None
    shape, offset = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, placements)
    return (tuple(offset), tuple(tensor.shape)) if tuple(shape) == tuple(tensor._local_tensor.shape) else None


def elements(tensor: Tensor) -> Tensor:
    """The tensor that holds another's elements: the values of a sparse or nested one, else itself."""
    if tensor.layout in COMPRESSED or (tensor.is_nested and tensor.layout is torch.strided):
        return tensor.values()
    return tensor._values() if tensor.layout is torch.sparse_coo else tensor


def is_bad(tensor: Tensor) -> bool:
    """Whether a tensor holds a NaN or an Inf: one vectorised sum, and an exact look only on doubt.

    A finite sum proves every addend finite; an infinite or NaN one may be an overflow of the sum itself.
    """
    tensor = computable(tensor)
    dtype = tensor.dtype
    total = tensor.sum(dtype=torch.float32).item() if dtype in HALVES else tensor.sum().item()
    if total - total == 0:
        return False
    if dtype.is_complex:
        return bool(bad_mask(tensor).any())
    low, high = (end.item() for end in torch.aminmax(tensor))
    return low - low != 0 or high - high != 0


def unproved(tensors: Sequence[Tensor]) -> list[bool]:
    """Which of many tensors remain to be looked at: one sum over all small ones may prove them finite together.

    Raises nothing: what cannot be laid end to end (sparse, quantised, float8) is not proved.
    """
    open_ = [True] * len(tensors)
    small = [i for i, t in enumerate(tensors) if t.dtype in FLOATS and t.numel() <= SMALL]
    for start in range(0, len(small), TOGETHER):
        part = small[start : start + TOGETHER]
        if finite_together([tensors[i] for i in part]):
            for i in part:
                open_[i] = False
    return open_


def finite_together(tensors: list[Tensor]) -> bool:
    """Whether one sum over tensors laid end to end proves all of them finite; False proves nothing."""
    try:
        flat = end_to_end(tensors)
        total = flat.sum(dtype=torch.float32 if flat.dtype in HALVES else None).item()
    except (RuntimeError, NotImplementedError, TypeError):
        return False
    return total - total == 0


def _fills(tensor: Tensor) -> bool:
    """Whether a tensor is its whole storage, element after element."""
    return tensor.is_contiguous() and tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()


def store(state: State, tensor: Tensor, labels: Tensor, only: int = 0) -> None:
    """Write the labels of a tensor's elements into the plane of its storage; `only`: the one set that they hold."""
    state.only = only if state.plane is None or state.only == only else 0
    # a plane is read from the beginning of its storage
    if state.plane is None and _fills(labels) and _fills(tensor) and labels.shape == tensor.shape:
        state.plane = labels.view(-1)
        state.itemsize = tensor.element_size()
        state.shape = tuple(tensor.shape)
        return
    if state.plane is None:
        state.plane = new_plane(tensor)
        state.itemsize = tensor.element_size()
    rescale(state, tensor)
    write_plane(state.plane, tensor, labels)
    state.shape = tuple(tensor.shape)


def write_plane(plane: Tensor, tensor: Tensor, content: Tensor) -> None:
    """Write into a plane of a tensor's storage, at the places of the tensor's elements."""
    shape, stride = list(tensor.shape), tensor.stride()
    for dim, (size, step) in enumerate(zip(tensor.shape, stride, strict=True)):
        if size > 1 and not step:
            # an expanded tensor has one place for all elements along this dimension, which is written once
            shape[dim] = 1
            content = content.expand(tensor.shape).narrow(dim, 0, 1)
    plane.as_strided(shape, stride, tensor.storage_offset()).copy_(content)


def first_index_in(whole: Tensor, view: Tensor, mask: Tensor) -> tuple[int, ...] | None:
    """Where the elements of a view that a mask marks lie in the tensor viewed: the first of them, row by row.

    None where their memory does not lie within `whole`, or two of its elements share a place.
    """
    if whole.element_size() != view.element_size() or not mask.any():
        return None
    steps = torch.tensor(view.stride(), dtype=torch.int64, device="cpu")
    rest: Tensor = mask.nonzero().cpu() @ steps
    rest = rest + (int(view.storage_offset()) - int(whole.storage_offset()))
    index = [torch.zeros_like(rest)] * whole.dim()
    for dim in sorted(range(whole.dim()), key=lambda d: -whole.stride(d)):
        size, step = whole.shape[dim], whole.stride(dim)
        if size > 1 and step > 0:
            index[dim] = (rest // step).clamp(max=size - 1)
            rest = rest - index[dim] * step
    if bool((rest != 0).any()):
        return None
    row = torch.zeros_like(rest)
    for dim in range(whole.dim()):
        row = row * whole.shape[dim] + index[dim]
    first = int(row.argmin())
    return tuple(int(i[first]) for i in index)


# -- Counters and finite ranges of the tensors that the events of a trace wrote ----------------------------------------


LIMIT = 200_000


class Ranges:
    """The ranges of a trace, kept as plain rows and made into records once, at the end."""

    def __init__(self) -> None:
        self._rows: list[Any] = []
        self.omitted = 0

    def add(
        self, tensor: Tensor, found: Counted | None, event: int, op: str, phase: int, site: int, output: int
    ) -> None:
        """Count one tensor that an event wrote, unless that was done when it was looked at."""
        if len(self._rows) >= LIMIT:
            self.omitted += 1
            return
        self._rows.append(
            (event, op, phase, site, output, tensor.dtype, tuple(tensor.shape), found or counters(tensor))
        )

    def records(self, site_of: Callable[[int], Site | None], since: int = 0) -> tuple[Range, ...]:
        """All of them, or those from one on, as records."""
        return tuple(
            Range(
                event=event,
                op=op,
                phase=PHASES[phase],
                output=output,
                site=site_of(site),
                dtype=str(dtype).removeprefix("torch."),
                shape=tuple(int(s) for s in shape),
                finite_min=found[1],
                finite_max=found[2],
                **found[0],
            )
            for event, op, phase, site, output, dtype, shape, found in self._rows[since:]
        )
