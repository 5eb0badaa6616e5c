"""The file of an ONNX model: read whole, without its external data; whatever is none is refused with the reason."""

# pyright: strict

from __future__ import annotations

import hashlib
import os
import stat
from typing import TYPE_CHECKING, Final, NamedTuple, cast

import onnx
from google.protobuf.message import DecodeError

from whynan.errors import UsageError
from whynan.models.files import STRANGERS, unreadable

if TYPE_CHECKING:
    from pathlib import Path

    from google.protobuf.message import Message

_ANY: Final = "give the .onnx file of a model"
AGAIN: Final = "export it again, or copy it anew"
_SPLIT: Final = "save large weights as external data: onnx.save(model, file, save_as_external_data=True)"
_LARGEST: Final = (1 << 31) - 1
"""Bytes of one message of protobuf."""
_TORCH: Final = "give the .onnx file that torch.onnx.export writes"
_STRANGERS: Final[tuple[tuple[int, bytes, str, str | None], ...]] = (
    *((0, beginning, what, hint) for beginning, what, hint in STRANGERS),
    (0, b"PK\x03\x04", "is a zip archive, as PyTorch's .pt and .pt2 files are", _TORCH),
    (4, b"ORTM", "is in the format of ONNX Runtime's own (.ort)", "give the .onnx file that it was made from"),
    (4, b"TFL3", "is a TensorFlow Lite model", None),
)


class Read(NamedTuple):
    """A model as it stands in its file, and the SHA-256 of the file."""

    proto: onnx.ModelProto
    sha256: str


def read_model(path: Path) -> Read:
    """The model in a file, nothing of it checked but that it is one; raises ``UsageError`` for what is none."""
    data = read_file(path, _ANY, most=_LARGEST)
    if not data:
        raise UsageError(f"{path} is empty", "it was never written to its end; export it again")
    for offset, beginning, what, hint in _STRANGERS:
        if data.startswith(beginning, offset):
            raise UsageError(f"{path} {what}", hint or _ANY)
    proto = onnx.ModelProto()
    # a truncated model cannot be parsed: its graph is longer than what is left of it
    if not parsed(proto, data) or not proto.HasField("graph"):
        raise UsageError(f"{path} is no ONNX model, or is cut off", AGAIN)
    return Read(proto, hashlib.sha256(data).hexdigest())


def read_file(path: Path, hint: str, *, most: int) -> bytes:
    """The bytes of a regular file of at most so many; raises ``UsageError`` with a hint where there is none."""
    try:
        # a pipe would never end, and a device never begin
        with open(path, "rb", opener=_without_waiting) as file:
            found = os.fstat(file.fileno())
            if stat.S_ISREG(found.st_mode):
                if found.st_size > most:
                    raise UsageError(f"{path} has {found.st_size:,} bytes, and at most {most:,} can be read", _SPLIT)
                return file.read()
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(f"{path} does not exist", hint) from None
    except IsADirectoryError:
        raise UsageError(f"{path} is a folder", hint) from None
    except OSError as error:
        raise unreadable(path, error) from error
    except ValueError as error:
        raise UsageError(f"{path} is no path ({error})", hint) from error
    raise UsageError(f"{path} is no regular file", hint)


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def parsed(message: Message, data: bytes) -> bool:
    """Fill a message from bytes; False where they are no such message."""
    try:
        message.ParseFromString(data)
    except DecodeError:
        return False
    return True


def text_of(value: str) -> str | None:
    """A text of a message; None where it is not the UTF-8 that it should be, for which protobuf hands over bytes."""
    return value if isinstance(cast("object", value), str) else None
