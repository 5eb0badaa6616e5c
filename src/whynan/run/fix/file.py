"""Source files that are to be edited: inside a folder, through no link, only as they were, and all or none."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import secrets
import stat
import tokenize
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from whynan.errors import UsageError

_MOST_BYTES: Final = 64 << 20
_MOST_BACKUPS: Final = 1000
_WRITABLE: Final = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH
RUN_AGAIN: Final = "run the program again, for a report that speaks of the file as it is now"
"""What helps where a file is not that of the run."""


@dataclass(frozen=True, slots=True)
class Editable:
    """A file by its path relative to a folder, as it was when it was read."""

    folder: str
    path: str
    content: bytes
    encoding: str

    @property
    def text(self) -> str:
        """Its text, with the line ends that it has."""
        return self.content.decode(self.encoding)

    def is_of(self, sha256: str) -> bool:
        """Whether it has this hash."""
        return _has(self.content, sha256)

    def was_of(self, text: str, sha256: str) -> bool:
        """Whether a file with another text would have this hash."""
        try:
            return _has(text.encode(self.encoding), sha256)
        except UnicodeEncodeError:
            return False

    def check_writable(self) -> None:
        """Raise ``UsageError`` where the file or its folder is read-only."""
        try:
            with _opened_folder(self.folder, self.path) as (name, folder):
                _refuse_read_only(name, folder, _read(name, folder)[1])
        except OSError as error:
            raise _uneditable(self.path, error) from None

    def encoded(self, text: str) -> bytes:
        """Another text as the file would hold it; raises ``UsageError`` for what its encoding cannot write."""
        try:
            return text.encode(self.encoding)
        except UnicodeEncodeError as error:
            what = f"{self.path} is {self.encoding}, which cannot write {error.object[error.start]!r}"
            raise UsageError(what, "give the file another encoding, or take another fix") from None

    def replace(self, text: str, check: Callable[[], None] | None = None) -> str:
        """Put another text in the file's place, as ``replace_files`` does; gives the backup's path."""
        return replace_files([(self, text)], check)[0]


def replace_files(changes: Sequence[tuple[Editable, str]], check: Callable[[], None] | None = None) -> tuple[str, ...]:
    """Put other texts in the places of files, all of them or none, with their permissions; gives the backups' paths.

    `check` is called right before the first one changes; with what it raises nothing changes.

    Raises ``UsageError`` where one is not what it was any more, or cannot be written: nothing has changed then.
    """
    contents = [file.encoded(text) for file, text in changes]
    begun: list[_Replacement] = []
    with ExitStack() as opened:
        try:
            for (file, _), content in zip(changes, contents, strict=True):
                with _uneditable_as_usage(file.path):
                    name, folder = opened.enter_context(_opened_folder(file.folder, file.path))
                    begun.append(_Replacement.begin(file, content, name, folder))
            if check is not None:
                check()
            for one in begun:
                with _uneditable_as_usage(one.path):
                    one.finish()
        except BaseException:
            for one in reversed(begun):
                one.undo()
            raise
    return tuple(os.path.join(os.path.dirname(one.path), os.path.basename(one.backup)) for one in begun)


@dataclass(slots=True)
class _Replacement:
    """A file that is about to have other content: this, and what the file holds, lie beside it."""

    path: str
    name: str
    folder: int | None
    made: str
    backup: str

    @classmethod
    def begin(cls, file: Editable, content: bytes, name: str, folder: int | None) -> _Replacement:
        """Write both, whole or not at all."""
        held, status = _read(name, folder)
        if held != file.content:
            raise UsageError(f"{file.path} was changed meanwhile", RUN_AGAIN)
        _refuse_read_only(name, folder, status)
        backup = _backed_up(name, folder, held, status)
        made = os.path.join(os.path.dirname(name), f".whynan-{secrets.token_hex(8)}")
        try:
            _create_file(made, folder, content, status)
        except BaseException:
            with suppress(OSError):
                os.unlink(backup, dir_fd=folder)
            raise
        return cls(file.path, name, folder, made, backup)

    def finish(self) -> None:
        """Let the new content take the file's place at once."""
        os.replace(self.made, self.name, src_dir_fd=self.folder, dst_dir_fd=self.folder)

    def undo(self) -> None:
        """Leave the file as it was, and nothing beside it."""
        with suppress(OSError):
            try:
                os.unlink(self.made, dir_fd=self.folder)
            except FileNotFoundError:
                # it has taken the file's place
                os.replace(self.backup, self.name, src_dir_fd=self.folder, dst_dir_fd=self.folder)
            else:
                os.unlink(self.backup, dir_fd=self.folder)


@contextmanager
def _uneditable_as_usage(path: str) -> Generator[None]:
    """Have what the system refuses of a file said to the user."""
    try:
        yield
    except OSError as error:
        raise _uneditable(path, error) from None


def open_editable(file: str, *, folder: str | None = None) -> Editable:
    """The file that a report names, if it may be edited: a regular one inside a folder, which no link leads to.

    `folder`: by default the working directory. Raises ``UsageError`` that says why it may not.
    """
    here = os.path.realpath(os.getcwd() if folder is None else folder)
    path = inside(file, here)
    try:
        with _opened_folder(here, path) as (name, descriptor):
            content, _ = _read(name, descriptor)
    except FileNotFoundError:
        raise UsageError(f"there is no file {path} here", "change to the folder that the program ran in") from None
    except OSError as error:
        what = f"{path} cannot be taken for a source file ({_reason(error)})"
        raise UsageError(what, "it must be a regular file, and no link may lead to it") from None
    return Editable(here, path, content, _encoding(path, content))


def inside(file: str, folder: str) -> str:
    """A file's path relative to a folder; raises ``UsageError`` where it names what lies outside."""
    joined = os.path.join(folder, file)
    path = os.path.relpath(os.path.normpath(joined), folder)
    # `a/..` is another folder than this one where `a` is a link
    if not file or "\0" in file or os.pardir in file.split(os.sep) or os.path.isabs(path) or path.startswith(os.pardir):
        raise UsageError(f"{file or repr(file)} lies outside {folder}", "change to the folder that the program ran in")
    return path


@contextmanager
def _opened_folder(folder: str, path: str) -> Generator[tuple[str, int | None]]:
    """The name of a file, and a descriptor of the folder that it is relative to; raises ``OSError`` at a link.

    Each folder on the way is opened in the one before it, so that none can be exchanged for a link. Where the system
    has no such descriptors, the name is the whole path and links are looked for.
    """
    *parents, name = path.split(os.sep)
    if os.open not in os.supports_dir_fd:
        _refuse_links(folder, path)
        yield os.path.join(folder, path), None
        return
    with ExitStack() as opened:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        descriptor = os.open(folder, flags)
        opened.callback(os.close, descriptor)
        for parent in parents:
            descriptor = _entered(parent, flags, descriptor)
            opened.callback(os.close, descriptor)
        yield name, descriptor


def _entered(parent: str, flags: int, folder: int) -> int:
    try:
        return os.open(parent, flags | os.O_NOFOLLOW, dir_fd=folder)
    except NotADirectoryError:
        # what Linux says of a link
        if stat.S_ISLNK(os.lstat(parent, dir_fd=folder).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from None
        raise


def _refuse_links(folder: str, path: str) -> None:
    place = os.path.join(folder, path)
    if os.path.realpath(place) != place:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _reason(error: OSError) -> str:
    return "a symbolic link leads to it" if error.errno == errno.ELOOP else error.strerror or str(error)


def _has(content: bytes, sha256: str) -> bool:
    return hashlib.sha256(content).hexdigest() == sha256.lower()


def _encoding(path: str, content: bytes) -> str:
    """The encoding that a source file declares; raises ``UsageError`` where it is not in it."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        if content.decode(encoding).encode(encoding) == content:
            return encoding
    except (SyntaxError, UnicodeError, LookupError):
        pass
    raise UsageError(f"{path} is not in the encoding that it declares", "a Python file is UTF-8 unless it says another")


def _read(name: str, folder: int | None) -> tuple[bytes, os.stat_result]:
    """What a regular file holds, and whose it is; raises ``OSError`` for a link and for what is no such file."""
    # not to wait where somebody has put a pipe
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with os.fdopen(os.open(name, flags, dir_fd=folder), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is no regular file")
        if status.st_size > _MOST_BYTES:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        return file.read(_MOST_BYTES), status


def _refuse_read_only(name: str, folder: int | None, status: os.stat_result) -> None:
    # root may write to what its owner has made read-only, and is not to
    if not status.st_mode & _WRITABLE or not os.access(name, os.W_OK, dir_fd=folder):
        raise PermissionError(errno.EACCES, "it is read-only")
    if not os.access(os.path.dirname(name) or os.curdir, os.W_OK, dir_fd=folder):
        raise PermissionError(errno.EACCES, "its folder is read-only")


def _uneditable(path: str, error: OSError) -> UsageError:
    return UsageError(
        f"{path} cannot be edited ({_reason(error)})", "change that, or write a patch elsewhere with --patch FILE"
    )


def _backed_up(name: str, folder: int | None, content: bytes, like: os.stat_result) -> str:
    """Keep what a file holds beside it, under a name that nothing has: ``net.py.orig``, ``net.py.orig.1``."""
    for number in range(_MOST_BACKUPS):
        backup = f"{name}.orig{f'.{number}' if number else ''}"
        try:
            _create_file(backup, folder, content, like)
        except FileExistsError:
            continue
        return backup
    raise UsageError(f"there are {_MOST_BACKUPS:,} backups {name}.orig already", "take some of them away")


def _create_file(name: str, folder: int | None, content: bytes, like: os.stat_result) -> None:
    """Make a file of a name that nothing has, whole or not at all, with the owner and permissions of another one."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(name, flags, 0o600, dir_fd=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
            if os.name == "posix":
                with suppress(PermissionError):
                    os.fchown(descriptor, like.st_uid, like.st_gid)
                os.fchmod(descriptor, stat.S_IMODE(like.st_mode))
    except BaseException:
        with suppress(OSError):
            os.unlink(name, dir_fd=folder)
        raise
