"""Files that hold no model: unreadable ones, and those of another kind, which their first bytes tell."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from whynan.errors import UsageError

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


def unreadable(path: Path, error: OSError) -> UsageError:
    """What to say of a file or folder that the system does not hand over."""
    return UsageError(f"{path} cannot be read ({error.strerror})", "check its permissions and its disk")
