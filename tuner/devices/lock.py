"""One timed training at a time on a device, across all studies and launches of this host."""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import platform
import stat
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

import psutil

from tuner.devices.common_files import (
    CommonFolderError,
    common_folder,
    open_common,
    read_common,
    user_name,
    write_common,
)
from tuner.devices.gpu import Gpu
from tuner.errors import TunerError
from tuner.files.environment import LOCK_VARIABLE

# Which of the processes on a GPU are foreign: neither this one, nor a tuner worker that waits for
# its turn.


ENTRY_BYTES = 64
MPS_SERVER = "nvidia-cuda-mps-server"
"""Owns a context wherever clients run under MPS,
and computes nothing itself; its clients are listed too."""
CUDA_DEVICE = "/dev/nvidia-uvm"
"""What a process opens to use CUDA; one that only asks NVML does not."""


def foreign_processes(
    before: Collection[int],
    after: Collection[int],
    *,
    own: int | None = None,
    harmless: Callable[[int], bool] = lambda _pid: False,
    on_gpu: bool = True,
    program: Collection[int] = (),
    program_on_gpu: int = 0,
) -> list[int]:
    """The processes of others among those on the GPU before and after a timed part.

    Args:
        before: process ids as NVML lists them.
        after: the same, later.
        own: this process's id.
        harmless: whether a process is known to leave the GPU alone meanwhile.
        on_gpu: whether this process is on the GPU at all.
        program: the processes of a program that trains for this one, as they are numbered here.
        program_on_gpu: how many of these use CUDA.
    """
    own = os.getpid() if own is None else own
    there = {*before, *after}
    unnamed = sorted({*before} & {*after})[:1] if on_gpu else []
    mine = {own} if own in there else set(unnamed)
    trained = there & {*program}
    mine |= trained or set(sorted({*after} - {*before})[:program_on_gpu])
    return sorted(pid for pid in there - mine if not harmless(pid))


def cuda_users(pids: Collection[int]) -> int:
    """How many of these processes, which are this user's, have CUDA open."""
    return sum(map(_uses_cuda, pids))


def _uses_cuda(pid: int) -> bool:
    with contextlib.suppress(OSError):  # it has ended
        for each in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):  # it was closed meanwhile
                if str(each.readlink()) == CUDA_DEVICE:
                    return True
    return False


@contextmanager
def signed_in(folder: Path) -> Iterator[None]:
    """While inside, this process is known in the lock folder as one that leaves devices alone until
    it holds them.
    """
    entry = f"worker-{os.getpid()}"
    with contextlib.ExitStack() as stack:
        # Where it cannot, it may be taken for a stranger: a timing too many is run again.
        with contextlib.suppress(OSError, CommonFolderError):
            there = stack.enter_context(common_folder(folder, make=True))
            write_common(there, entry, birth(os.getpid()).encode())
            stack.callback(_sign_out, there, entry)
        yield


def _sign_out(folder: int, entry: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(entry, dir_fd=folder)


def is_harmless(pid: int, folder: Path) -> bool:
    """True for the server of MPS, and for a living worker that has signed in at the lock folder."""
    try:
        if psutil.Process(pid).name() == MPS_SERVER:
            return True
        with common_folder(folder, make=False) as there:
            entry = read_common(there, f"worker-{pid}", at_most=ENTRY_BYTES)
        return entry == birth(pid).encode()
    except (OSError, CommonFolderError, psutil.Error):
        return False


def birth(pid: int) -> str:
    """When a process began, which tells it from a later one of the same number."""
    return f"{psutil.Process(pid).create_time():.2f}"


# Who holds a device: a note beside its lock, for whoever waits for it, and what to do about a
# holder that is stopped.


NOTE_BYTES = 4096
_NUMBERS = range(1, 2**31)


@dataclass(frozen=True, slots=True)
class Holder:
    """A process. `born` tells it from a later one of the same number,
    and from one in another container.
    """

    pid: int
    host: str
    born: str

    @staticmethod
    def this_process() -> Holder:
        return Holder(os.getpid(), platform.node(), birth(os.getpid()))

    @property
    def is_stopped(self) -> bool:
        """Whether it is seen from here, and was stopped (SIGSTOP): then nothing but SIGCONT or
        SIGKILL ends that.
        """
        process = self.process()
        try:
            return process is not None and process.status() in (
                psutil.STATUS_STOPPED,
                psutil.STATUS_TRACING_STOP,
            )
        except psutil.Error:
            return False

    def __str__(self) -> str:
        process = self.process()
        if process is None:
            elsewhere = "in another container or on another machine"
            return f"process {self.pid} on {self.host} has it, {elsewhere}"
        try:
            who = f"process {self.pid} of {process.username()}"
        except (psutil.Error, KeyError):
            who = f"process {self.pid}"
        if self.is_stopped:
            return (
                f"{who} has it, and is stopped: "
                f"kill -CONT {self.pid} lets it go on, kill -KILL {self.pid} ends it"
            )
        return f"{who} has it"

    def process(self) -> psutil.Process | None:
        """It, where it lives and is seen from here."""
        try:
            return psutil.Process(self.pid) if birth(self.pid) == self.born else None
        except (psutil.Error, ValueError):
            return None


@contextmanager
def noted(folder: int, name: str) -> Iterator[None]:
    """While inside, the note `name` in `folder` says
    that this process holds what it lies beside.
    """
    with contextlib.suppress(OSError, psutil.Error):
        write_common(folder, name, json.dumps(asdict(Holder.this_process())).encode())
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            write_common(folder, name, b"")


def holder_of(folder: int, name: str) -> Holder | None:
    """Whom the note `name` in `folder` names;
    None where there is none, or none that can be read.
    """
    try:
        content = json.loads(read_common(folder, name, at_most=NOTE_BYTES))
        holder = Holder(int(content["pid"]), str(content["host"]), str(content["born"]))
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    # Anybody may have written it, and it is shown on terminals.
    return holder if holder.pid in _NUMBERS and holder.host.isprintable() else None


POLL_S = 0.5
TRY_S = 0.005
"""How often who waits tries: so late a device is handed over."""
COURTESY_S = 0.25
"""How long who comes lets pass whoever is next, who may have been stopped."""
AGAIN_S = 60.0
"""How often who still waits is told so."""
WAITING_FOR_DEVICE = "waiting for its device"
"""What a worker is at meanwhile, as its life signs say."""
SYSTEM_FOLDER = Path("/run/tuner-device-locks")
"""Where root has made it: a place that nobody else can plant anything at."""
_TEMPORARY = (Path("/tmp"), Path("/var/tmp"))  # noqa: S108 - the folder made there is judged before it is used
_log = logging.getLogger(__name__)


class DeviceLockError(TunerError):
    """The locks of devices cannot be relied on: no trial's fault, and none is tried (exit code
    1).
    """


def lock_folder() -> Path:
    """Where the lock files are: one folder for all users of the host, since they share its devices.

    That is the one that is named for it, else the one that root has made, else one in the host's
    temporary folder, whatever TMPDIR a user has.
    """
    if named := os.environ.get(LOCK_VARIABLE):
        return Path(named).absolute()
    if os.path.lexists(SYSTEM_FOLDER):
        return SYSTEM_FOLDER
    for folder in _TEMPORARY:
        if folder.is_dir() and os.access(folder, os.W_OK | os.X_OK, effective_ids=True):
            return folder / "tuner-device-locks"
    return _TEMPORARY[0] / "tuner-device-locks"


@contextmanager
def open_folder(*, make: bool = True) -> Iterator[int]:
    """A descriptor of that folder, which is made where it is missing, and open to all users.

    Raises:
        DeviceLockError: it cannot be made, or is none to rely on.
        FileNotFoundError: there is none, and none is to be made.
    """
    with contextlib.ExitStack() as stack:
        try:
            descriptor = stack.enter_context(common_folder(lock_folder(), make=make))
        except CommonFolderError as error:
            raise _unusable(str(error)) from None
        yield descriptor


def check_folder() -> None:
    """See to it that devices can be locked, before anything else is begun.

    Raises:
        DeviceLockError: they cannot.
    """
    with open_folder():
        pass


def describe_folder() -> str:
    """The folder as it is, or will be made, for people. Writes nothing.

    Raises:
        DeviceLockError: `check_folder` would find that devices cannot be locked.
    """
    path = lock_folder()
    try:
        with open_folder(make=False) as folder:
            status = os.fstat(folder)
    except FileNotFoundError:
        if not os.access(path.parent, os.W_OK | os.X_OK, effective_ids=True):
            raise _unusable(f"{path.parent} cannot be written, or is no folder") from None
        return f"{path}, which the first launch makes"
    # A device may have other users.
    private = "" if status.st_mode & stat.S_IWOTH else "; not all users can write there"
    return f"{path}, made by {user_name(status.st_uid)}{private}"


def _unusable(why: str) -> DeviceLockError:
    remedy = f"let root make one for all users: install -d -m 1777 {SYSTEM_FOLDER}"
    if os.environ.get(LOCK_VARIABLE):
        remedy = f"have {LOCK_VARIABLE} name a folder that all who share the device can write"
    return DeviceLockError(f"no place for the device locks: {why}; or {remedy}")


def stopped_holder(names: Sequence[str]) -> Holder | None:
    """Who holds one of the devices `names` and is stopped: nobody else will ever get it unless
    somebody sees to it.
    """
    return next((holder for holder in _holders(names) if holder.is_stopped), None)


def holder_among(names: Sequence[str]) -> Holder | None:
    """Who holds one of the devices `names`, as far as the notes say."""
    return next(iter(_holders(names)), None)


def logs_waiting(label: str = "the device") -> Callable[[Holder | None], None]:
    """Says in a worker's log for what it waits, and for whom."""

    def waiting(holder: Holder | None) -> None:
        level = logging.WARNING if holder is not None and holder.is_stopped else logging.INFO
        _log.log(level, "waiting for %s: %s", label, holder or "another process has it")

    return waiting


def giving_up(on_phase: Callable[[str], None], give_up: Callable[[], bool]) -> Callable[[], bool]:
    """Whether to wait no longer for a device, as `exclusive` asks: each time, who watches is told
    what is waited for.
    """

    def asked() -> bool:
        on_phase(WAITING_FOR_DEVICE)
        return give_up()

    return asked


@contextmanager
def exclusive(
    names: Sequence[str],
    *,
    give_up: Callable[[], bool] = lambda: False,
    waiting: Callable[[Holder | None], None] | None = None,
) -> Iterator[bool]:
    """Hold the devices `names`; waits for whoever has them.
    Yields False when `give_up` turned true meanwhile.

    `waiting` is told for whom, as far as that is known: at once, again when another has it or the
    holder was stopped, and from time to time. The kernel releases the locks of a process that dies.
    Locks are taken in sorted order, so two workers whose sets of cores overlap cannot wait for each
    other in a circle.

    Raises:
        DeviceLockError: the folder of the locks, or a file in it, is none to rely on.
    """
    told = _Told(waiting or logs_waiting())
    with contextlib.ExitStack() as held:
        for name in sorted(names):
            with _next_in_line(name):
                while not _taken(name, held):
                    if give_up():
                        yield False
                        return
                    told.of(holder_among([name]))
        yield True


@contextmanager
def _next_in_line(name: str) -> Iterator[None]:
    """Be the next to have the device, where nobody is.

    Who gives a device back and wants it again would else have it before anyone who waits knows.
    It is a courtesy: nothing but the lock itself keeps two apart.
    """
    with contextlib.ExitStack() as ours:
        folder = ours.enter_context(open_folder())
        descriptor = _try(folder, f"{name}.next", for_s=COURTESY_S)
        if descriptor is not None:
            ours.callback(os.close, descriptor)
        yield


class _Told:
    """Tells who waits for whom, and does not repeat it too soon."""

    def __init__(self, waiting: Callable[[Holder | None], None]) -> None:
        self._waiting = waiting
        self._said: str | None = None
        self._again = 0.0

    def of(self, holder: Holder | None) -> None:
        now = time.monotonic()
        if str(holder) != self._said or now >= self._again:
            self._said, self._again = str(holder), now + AGAIN_S
            self._waiting(holder)


def _taken(name: str, held: contextlib.ExitStack) -> bool:
    """Whether the device is ours now, for as long as `held` lasts;
    another process may have it for `POLL_S`.

    The folder is opened anew each time: whoever cleans up temporary files may have taken it away
    meanwhile.
    """
    with contextlib.ExitStack() as ours:
        folder = ours.enter_context(open_folder())
        descriptor = _try(folder, f"{name}.lock", for_s=POLL_S)
        if descriptor is None:
            return False
        ours.callback(os.close, descriptor)
        ours.enter_context(noted(folder, _note(name)))
        held.enter_context(ours.pop_all())
        return True


def _try(folder: int, name: str, *, for_s: float) -> int | None:
    """A descriptor that holds the lock; None where another process has had it all the time."""
    until = time.monotonic() + for_s
    while True:
        try:
            descriptor = _lock(folder, name, until)
        except FileNotFoundError:  # the folder is no more
            return None
        except OSError as error:
            path = lock_folder() / name
            raise DeviceLockError(
                f"cannot use the device lock {path}: {error.strerror}; remove it, if need be as "
                f"root: rm {path}"
            ) from None
        if descriptor is not None or time.monotonic() >= until:
            return descriptor


def _lock(folder: int, name: str, until: float) -> int | None:
    descriptor = open_common(folder, name, os.O_RDWR)
    try:
        while not _is_ours(descriptor):
            if time.monotonic() >= until:
                os.close(descriptor)
                return None
            time.sleep(TRY_S)
        if os.fstat(descriptor).st_nlink:  # not one that was deleted meanwhile, and kept nobody out
            return descriptor
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _is_ours(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holders(names: Sequence[str]) -> list[Holder]:
    try:
        with open_folder(make=False) as folder:
            noted_there = [holder_of(folder, _note(name)) for name in names]
    except (OSError, DeviceLockError):
        return []
    return [holder for holder in noted_there if holder is not None]


def _note(name: str) -> str:
    return f"{name}.holder"


# Who has a device as a worker: shared locks, which the kernel releases with the process.


LOOK_S = 0.5
Assigned = TypeVar("Assigned")


class NoneFreeError(TunerError):
    """Each device has a worker (exit code 1)."""


def once_free(assign: Callable[[], Assigned], *, patience_s: float) -> Assigned:
    """What `assign` gives. While none is free, whoever has it may be about to end: that is waited
    for.

    Raises:
        NoneFreeError: none was in all that time.
    """
    until = time.monotonic() + patience_s
    while True:
        try:
            return assign()
        except NoneFreeError:
            if time.monotonic() >= until:
                raise
            time.sleep(LOOK_S)


def taken_beside(device: str) -> int:
    """A descriptor that has the device `device`, whoever has it too.

    Raises:
        DeviceLockError: the lock folder is none to rely on.
        OSError: the file in it is none that can be opened.
    """
    descriptor = _open(device)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


def taken_alone(device: str) -> int | None:
    """The same where nobody has it; else None. To be called by who is `choosing`."""
    descriptor = _open(device)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


@contextmanager
def choosing() -> Iterator[None]:
    """One process at a time: no two may find the same device free,
    or each other's first look for a worker.
    """
    with open_folder() as folder:
        descriptor = open_common(folder, "choosing-a-seat.lock", os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _open(device: str) -> int:
    with open_folder() as folder:
        return open_common(folder, f"{device}.seat", os.O_RDWR)


# Which cores of this host have a worker, so that workers that others placed share none.


def assign_free_cores(count: int, available: Sequence[int]) -> dict[int, int]:
    """The first `count` of the cores `available` that have no worker, each with the descriptor that
    holds it as long as it is open.

    Raises:
        NoneFreeError: so many are not free; none is taken then.
        DeviceLockError: the lock folder is none to rely on.
        OSError: a file in it is none that can be opened.
    """
    found: dict[int, int] = {}
    with choosing():
        for core in available:
            if len(found) == count:
                break
            descriptor = taken_alone(f"cpu-core-{core}")
            if descriptor is not None:
                found[core] = descriptor
    if len(found) == count:
        return found
    for descriptor in found.values():
        os.close(descriptor)
    raise NoneFreeError(
        f"--cores free:{count}: {len(found)} of the {len(available)} cores here have no worker; "
        "name some with --cores 0,1 to take turns with others"
    )


# Which GPUs of this host have a worker, so that another worker can take one that has none.


@dataclass(frozen=True, slots=True)
class GpuAssignment:
    """A worker's GPU, as long as the descriptor is open. None where the lock folder
    cannot be written.
    """

    gpu: Gpu
    descriptor: int | None

    def leave(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)


def assign_beside(gpu: Gpu) -> GpuAssignment:
    """This very GPU, whichever workers have it too: their trainings take turns."""
    with contextlib.suppress(OSError, DeviceLockError):  # who takes the device will be told
        return GpuAssignment(gpu, taken_beside(gpu.uuid))
    return GpuAssignment(gpu, None)


def assign_free(gpus: Sequence[Gpu]) -> GpuAssignment:
    """The first of `gpus` that has no worker.

    Raises:
        NoneFreeError: each has one.
        DeviceLockError: the lock folder is none to rely on.
        OSError: a file in it is none that can be opened.
    """
    with choosing():
        for gpu in gpus:
            descriptor = taken_alone(gpu.uuid)
            if descriptor is not None:
                return GpuAssignment(gpu, descriptor)
    taken = (
        "the GPU here has a worker"
        if len(gpus) == 1
        else f"each of the {len(gpus)} GPUs here has a worker"
    )
    raise NoneFreeError(f"--gpu free: {taken}; name one with --gpu INDEX to take turns with it")
