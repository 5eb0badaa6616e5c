"""A device in memory of the host: PyTorch treats it as it does an accelerator, in threads of the engine's own.

Its tensors share their memory with tensors of the CPU, which do the work. It stays until the process ends.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any, Final

import torch
from torch import Tensor, UntypedStorage
from torch.utils import backend_registration
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

NAME: Final = "standin"
# the devices of DLPack
_CPU, _EXTENSION = 1, 12
_KERNELS = torch.library.Library("aten", "IMPL")
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_clone = UntypedStorage.clone
_ASSERTED: list[str] = []
# a device takes indices of the host
_OF_BOTH = frozenset(f"aten::{name}" for name in "copy_ _to_copy index index_put_ index_put _index_put_impl_".split())


def install() -> None:
    """From here on there is a device of this name."""
    backend_registration._setup_privateuseone_for_python_backend(NAME)
    for name in torch._C._dispatch_get_all_op_names():
        space, _, base = name.partition("::")
        operator = _overload(base) if space == "aten" else None
        # a composite one is made of others; these two are the same on all devices
        composite = torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeImplicitAutograd")
        if operator is not None and not composite and base not in ("detach", "as_strided_"):
            _KERNELS.impl(base, functools.partial(_run, operator), "PrivateUse1")
    UntypedStorage.clone = _clone_of


def _overload(name: str) -> Any:
    base, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, base), overload or "default", None)


def _as(tensor: Tensor, device: int) -> Tensor:
    """The same memory as a tensor of another device."""
    capsule = torch.utils.dlpack.to_dlpack(tensor.detach())
    managed = _pointer(capsule, b"dltensor")
    # its first field is the address of the memory, the second the device
    ctypes.c_int32.from_address(managed + ctypes.sizeof(ctypes.c_void_p)).value = device
    return torch.utils.dlpack.from_dlpack(capsule)


def _host(value: Any) -> Any:
    return _as(value, _CPU) if isinstance(value, Tensor) and value.device.type == NAME else value


def _run(operator: Any, *args: Any, **kwargs: Any) -> Any:
    base = operator._schema.name
    if base == "aten::set_":
        return operator.redispatch(torch._C.DispatchKeySet(torch._C.DispatchKey.CPU), *args, **kwargs)
    if base == "aten::_copy_from":
        _host(args[1]).copy_(_host(args[0]))
        return args[1]
    tensors = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
    if base not in _OF_BOTH and any(each.is_cpu and each.dim() for each in tensors):
        raise RuntimeError(f"Expected all tensors to be on the same device, but found {NAME}:0 and cpu in {base}")
    asked = kwargs.get("device")
    if asked is not None and torch.device(asked).type == NAME:
        kwargs = {**kwargs, "device": torch.device("cpu")}
        asked = None
    if "pin_memory" in kwargs:
        kwargs = {**kwargs, "pin_memory": False}
    hosts = tree_map(_host, (args, kwargs))
    held = {id(h): d for h, d in zip(tree_leaves(hosts), tree_leaves((args, kwargs)), strict=True) if h is not d}
    if _ASSERTED:
        raise RuntimeError(_ASSERTED[0])
    try:
        with torch.no_grad():
            out = operator(*hosts[0], **hosts[1])
    except IndexError as error:
        # as after a device-side assert of CUDA, nothing runs there any more
        _ASSERTED.append(f"device-side assert: {error}")
        raise RuntimeError(_ASSERTED[0]) from None
    if asked is not None:
        return out
    views = any(r.alias_info is not None and not r.alias_info.is_write for r in operator._schema.returns)
    if views or base == "aten::_unsafe_view":  # whose schema does not say so
        return tree_map_only(Tensor, lambda t: _view(args[0], t), out)
    return tree_map_only(Tensor, lambda t: held[id(t)] if id(t) in held else _as(t, _EXTENSION), out)


def _view(base: Tensor, like: Tensor) -> Tensor:
    """A view of a tensor as this one is of its memory on the host."""
    offset = base.storage_offset() + like.storage_offset()
    return torch.ops.aten.as_strided_.default(base.detach(), like.size(), like.stride(), offset)


def _clone_of(storage: UntypedStorage) -> UntypedStorage:
    if storage.device.type != NAME:
        return _clone(storage)
    size = storage.nbytes()
    if not size:
        return _as(torch.empty(0, dtype=torch.uint8), _EXTENSION).untyped_storage()
    memory = (ctypes.c_uint8 * size).from_address(storage.data_ptr())
    return _as(torch.frombuffer(memory, dtype=torch.uint8).clone(), _EXTENSION).untyped_storage()
