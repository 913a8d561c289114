"""A folder that all users of the host write into:
whatever lies there may be another's, or no file at all.

Nothing in it is reached by a path that somebody could change meanwhile: the folder is opened once,
without following a link, and judged as what was opened. Its files are opened beneath that
descriptor.
"""

from __future__ import annotations

import errno
import os
import pwd
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tuner.errors import TunerError

OPEN_TO_ALL = 0o1777
"""Everybody may add files, and nobody may replace another's."""
_HALF_MADE = 0o700
_SOON_S = 1.0
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_FOLDER = (errno.ENOTDIR, errno.ELOOP)


class CommonFolderError(TunerError):
    """A folder that cannot be shared, or was planted (exit code 1)."""


@contextmanager
def common_folder(path: Path, *, make: bool) -> Iterator[int]:
    """A descriptor of the folder at `path`;
    with `make` it is made where it is missing, open to all users.

    Raises:
        CommonFolderError: it is no folder to rely on; the line says why, and what to do.
        FileNotFoundError: there is none, and none is to be made.
    """
    descriptor = _made(path) if make else _judged(path)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def open_common(folder: int, name: str, flags: int) -> int:
    """A descriptor of the plain file `name` in `folder`, which is made where it is missing, for all
    users to write.

    Args:
        folder: the descriptor of a folder that all users may write.
        name: the file's.
        flags: as of `os.open`, without O_CREAT: systems refuse that for another user's file
            (fs.protected_regular). Nor O_TRUNC: nothing is changed before it is known what was
            opened.

    Raises:
        OSError: it cannot be opened, or is a link or anything else than a plain file of that one
            name.
    """
    while True:
        try:
            return open_there(folder, name, flags)
        except FileNotFoundError:
            try:
                descriptor = os.open(
                    name, _carefully(flags) | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=folder
                )
            except FileExistsError:  # somebody else was faster
                continue
            os.fchmod(descriptor, 0o666)
            return descriptor


def open_there(folder: int, name: str, flags: int) -> int:
    """The same for a file that is there already.

    Raises:
        FileNotFoundError: it is not.
        OSError: as `open_common`.
    """
    descriptor = os.open(name, _carefully(flags), dir_fd=folder)
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and status.st_nlink <= 1:
        return descriptor
    os.close(descriptor)
    # A second name may lead to somebody's file elsewhere, which we would change.
    raise OSError(errno.EPERM, "it is no plain file, or has a second name", name)


def read_common(folder: int, name: str, *, at_most: int) -> bytes:
    """What a file there begins with. Raises OSError as `open_there`."""
    with os.fdopen(open_there(folder, name, os.O_RDONLY), "rb") as file:
        return file.read(at_most)


def write_common(folder: int, name: str, content: bytes) -> None:
    """Have a file there hold just this. Raises OSError as `open_common`."""
    with os.fdopen(open_common(folder, name, os.O_WRONLY), "wb") as file:
        file.truncate(0)
        file.write(content)


def user_name(uid: int) -> str:
    """A user as people know it; containers have users without a name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _carefully(flags: int) -> int:
    return flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def _made(path: Path) -> int:
    """The folder, which another user may be making just now."""
    until = time.monotonic() + _SOON_S
    while True:
        try:
            path.mkdir(mode=_HALF_MADE)
        except FileExistsError:
            pass
        except OSError as error:
            raise CommonFolderError(f"cannot make {path}: {error.strerror}") from None
        try:
            return _judged(path, finish=True)
        except FileNotFoundError:  # it has gone again
            pass
        except CommonFolderError:
            if not _is_half_made(path) or time.monotonic() > until:
                raise
        time.sleep(_SOON_S / 20)


def _is_half_made(path: Path) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and stat.S_IMODE(status.st_mode) == _HALF_MADE


def _judged(path: Path, *, finish: bool = False) -> int:
    """Raises CommonFolderError, or FileNotFoundError."""
    try:
        descriptor = os.open(path, _FOLDER)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise CommonFolderError(_why_not_opened(path, error)) from None
    try:
        if finish and _is_left_half_made(descriptor):
            os.fchmod(descriptor, OPEN_TO_ALL)
        _refuse_unfit(path, descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _refuse_unfit(path: Path, descriptor: int) -> None:
    problem = _objection(path, os.fstat(descriptor))
    if problem is None and not os.access(
        ".", os.W_OK | os.X_OK, dir_fd=descriptor, effective_ids=True
    ):
        problem = f"{path} cannot be written by {user_name(os.geteuid())}"
    if problem is not None:
        raise CommonFolderError(problem)


def _is_left_half_made(descriptor: int) -> bool:
    """Made by us just now, or by a process of ours that was killed at it. No folder in use is
    opened to all.
    """
    status = os.fstat(descriptor)
    ours = status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) == _HALF_MADE
    return ours and not os.listdir(descriptor)


def _objection(path: Path, status: os.stat_result) -> str | None:
    mode = stat.S_IMODE(status.st_mode)
    owner = user_name(status.st_uid)
    if mode & 0o022 and not mode & stat.S_ISVTX:
        return (
            f"{path} (of {owner}, mode {mode:04o}) lets others replace what lies in it; "
            f"'chmod 1777 {path}' ends that"
        )
    if status.st_uid not in (0, os.geteuid()) and mode & OPEN_TO_ALL != OPEN_TO_ALL:
        return (
            f"{path} belongs to {owner} and is not open to all (mode {mode:04o}); "
            f"'chmod 1777 {path}' opens it"
        )
    return None


def _why_not_opened(path: Path, error: OSError) -> str:
    try:
        status = path.lstat()
    except OSError as unseen:
        return f"cannot look at {path}: {unseen.strerror}"
    if stat.S_ISLNK(status.st_mode):
        owner = user_name(status.st_uid)
        return f"{path} is a link (of {owner}), and none is followed there; 'rm {path}' removes it"
    if error.errno in _NO_FOLDER:
        return f"{path} is no folder (it is of {user_name(status.st_uid)}); 'rm {path}' removes it"
    return _objection(path, status) or f"cannot open {path}: {error.strerror}"


# Whether others may change what lies in a folder whose content is executed.


def who_may_change(cache: Path) -> str | None:
    """Why what others compiled could be executed from Triton's cache, in one line; None if not.

    The folder itself and those above it are looked at, as far as they are there. A group that is
    the user's own, as many systems give everybody, is not others.

    Args:
        cache: which may not be there yet.
    """
    path = Path(os.path.realpath(cache))
    for folder in (path, *path.parents):
        try:
            status = folder.stat()
        except OSError:
            continue
        if (problem := _problem(status, may_add=folder != path)) is not None:
            return (
                f"{folder} {problem}, and what lies in Triton's cache {cache} is executed: make it "
                "writable by you alone, or set TRITON_CACHE_DIR to another folder"
            )
    return None


def _problem(status: os.stat_result, *, may_add: bool) -> str | None:
    """`may_add`: others may, where they cannot replace what is there, as in /tmp."""
    mode = stat.S_IMODE(status.st_mode)
    if may_add and mode & stat.S_ISVTX:
        return None
    own_group = status.st_gid == os.getegid() == os.geteuid()
    if mode & stat.S_IWOTH or (mode & stat.S_IWGRP and not own_group):
        return f"can be written by others (mode {mode:04o})"
    if status.st_uid not in (0, os.geteuid()):
        return f"belongs to {user_name(status.st_uid)}"
    return None
