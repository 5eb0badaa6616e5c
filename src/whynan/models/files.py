"""What kind of file a path names, by how it begins; whatever is no checkpoint is refused with the reason."""

# pyright: strict

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from whynan.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

Form: TypeAlias = Literal["zip", "legacy", "safetensors", "index"]
"""How a checkpoint is written: by ``torch.save``, by that of PyTorch before 1.6, by safetensors, or in shards."""

INDEX: Final = ".index.json"
_HEAD: Final = 512
_MAGIC: Final = bytes.fromhex("8a0a6cfc9c46f9206aa85019")
"""How pickle writes the number that PyTorch's old files begin with."""
_LONGEST_HEADER: Final = 100_000_000
"""Of a safetensors file, in bytes; its library refuses longer ones."""
_ANY: Final = "give a file of torch.save or safetensors, the .index.json of a sharded one, or a folder of these"
_COMPRESSED: Final = "decompress it, and give what was in it"
STRANGERS: Final = (
    (b"version https://git-lfs", "is the pointer of a Git LFS file, not the file", "fetch it with git lfs pull"),
    (b"\x1f\x8b", "is compressed by gzip", _COMPRESSED),
    (b"BZh", "is compressed by bzip2", _COMPRESSED),
    (b"\xfd7zXZ", "is compressed by xz", _COMPRESSED),
    (b"\x28\xb5\x2f\xfd", "is compressed by zstd", _COMPRESSED),
    (b"GGUF", "is a GGUF file", None),
    (b"\x89HDF", "is an HDF5 file", None),
    (b"\x93NUMPY", "is a NumPy array", None),
)
"""How files begin that hold neither a checkpoint nor a model, what they are, and what to do; None: give another."""


class StrangerError(UsageError):
    """A file is something else than a checkpoint."""


def form_of(path: Path) -> Form:
    """How the checkpoint in a file is written.

    Raises ``UsageError`` where nothing is to be read, ``StrangerError`` where it is something else.
    """
    head = head_of(path)
    if not head:
        raise UsageError(f"{path} is empty", "it was never written to its end; use the checkpoint before it")
    if path.name.endswith(INDEX):
        return "index"
    if path.suffix == ".safetensors" or _begins_as_safetensors(head):
        return "safetensors"
    if head.startswith(b"PK\x03\x04"):
        return "zip"
    if head[:1] == b"\x80" and head[2:].startswith(_MAGIC):
        return "legacy"
    raise _stranger(path, head)


def head_of(path: Path) -> bytes:
    """The first bytes of a regular file; raises ``UsageError`` where there is none to be read."""
    try:
        # a pipe would never end, and a device never begin
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise UsageError(f"{path} is no regular file", _ANY)
        with open(path, "rb") as file:
            return file.read(_HEAD)
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(f"{path} does not exist", _ANY) from None
    except OSError as error:
        raise unreadable(path, error) from error
    except ValueError as error:
        raise UsageError(f"{path} is no path ({error})", _ANY) from error


def unreadable(path: Path, error: OSError) -> UsageError:
    """What to say of a file or folder that the system does not hand over."""
    return UsageError(f"{path} cannot be read ({error.strerror})", "check its permissions and its disk")


def damaged(path: Path, why: str) -> UsageError:
    """What to say of a checkpoint that is not as it was written."""
    return UsageError(f"{path} is cut off or damaged ({why})", "copy it anew, or use the checkpoint before it")


def _begins_as_safetensors(head: bytes) -> bool:
    return head[8:9] == b"{" and int.from_bytes(head[:8], "little") <= _LONGEST_HEADER


def _stranger(path: Path, head: bytes) -> StrangerError:
    for beginning, what, hint in STRANGERS:
        if head.startswith(beginning):
            return StrangerError(f"{path} {what}", hint or _ANY)
    if head[257:262] == b"ustar":
        return StrangerError(f"{path} is a tar archive", "unpack it, and give the checkpoint that was in it")
    if head[:1] == b"\x80" and head[1:2] in (b"\2", b"\3", b"\4", b"\5"):
        return StrangerError(
            f"{path} is a plain pickle, and could only be read by running it",
            "where you trust it, load it and save the tensors with torch.save",
        )
    return StrangerError(f"{path} is no checkpoint that whynan reads", _ANY)
