"""Children of a forked command as forks: the workers of a launch, and the process that looks at its
networks.

Started as a Python of their own, each imports torch for two seconds. Yet a command that has
connections and threads is no good parent of a fork. So it has a process forked before it does
anything, the nursery, which does nothing but fork again when it is asked to. What it makes is the
command's own child (`CLONE_PARENT`): it has the command's process as its parent, which waits for
it, and hears of its death.
"""

from __future__ import annotations

import ctypes
import fcntl
import inspect
import json
import os
import platform
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

_CLONE = {"x86_64": 56, "aarch64": 220}
_CLONE_PARENT = 0x8000
_MOST_BYTES = 1 << 20
_ABOVE = 512
"""Descriptors from here on are nobody's."""

Become = Callable[[Sequence[str], str, Mapping[str, str]], None]
"""Runs `tuner` with these words, or one of its `CHILDREN`, in a folder and an environment, and ends
the process."""


class Nursery:
    """Forks children of the process at the other end of a socket, until that closes it."""

    def __init__(self, requests: socket.socket) -> None:
        self._socket = requests
        self._one = threading.Lock()

    def child(self, command: Mapping[str, Any], descriptors: Mapping[int, int]) -> int:
        """Start `command`, which finds each of `descriptors` under its key; its process id."""
        message = json.dumps({**command, "descriptors": list(descriptors)}).encode()
        with self._one:  # functions are called from several threads
            socket.send_fds(self._socket, [message], list(descriptors.values()))
            return int(self._socket.recv(64))


class OwnNursery(Nursery):
    """A fork of this process."""

    def __init__(self, become: Become) -> None:
        ours, theirs = ends()
        self._pid = os.fork()
        if self._pid == 0:
            os.dup2(theirs.fileno(), _ABOVE)
            os.closerange(0, _ABOVE)  # whoever waits for the end of what the parent writes
            requests = socket.socket(fileno=_ABOVE)
            while True:
                serve(requests, become)
        theirs.close()
        super().__init__(ours)

    def close(self) -> None:
        self._socket.close()
        os.waitpid(self._pid, 0)

    def adopt(self) -> None:
        """From now on this process starts `python -m tuner` as a fork."""
        subprocess.Popen = popen_of(self)  # type: ignore[misc, assignment]


def ends() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def available() -> bool:
    return platform.machine() in _CLONE


def serve(requests: socket.socket, become: Become) -> None:
    """Wait for one request and fork; ends this process when there will be none."""
    message, given, _, _ = socket.recv_fds(requests, _MOST_BYTES, 16)
    if not message:
        os._exit(0)
    command = json.loads(message)
    pid = _fork_a_sibling()
    if pid == 0:
        _place(dict(zip(command["descriptors"], given, strict=True)))
        if command["group"] is not None:
            os.setpgid(0, command["group"])
        os.sched_setaffinity(0, command["cores"])
        become(command["words"], command["folder"], command["environment"])
    for descriptor in given:
        os.close(descriptor)
    requests.send(str(pid).encode())


def _fork_a_sibling() -> int:
    """As `os.fork`, but the new process has this one's parent."""
    python = ctypes.pythonapi
    python.PyOS_BeforeFork()
    pid: int = ctypes.PyDLL(None).syscall(
        _CLONE[platform.machine()], _CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0
    )
    if pid == 0:
        python.PyOS_AfterFork_Child()
    else:
        python.PyOS_AfterFork_Parent()
    return pid


def _place(descriptors: Mapping[int, int]) -> None:
    """Have exactly these descriptors open, each under its key."""
    high = {
        target: fcntl.fcntl(source, fcntl.F_DUPFD, _ABOVE) for target, source in descriptors.items()
    }
    os.closerange(0, _ABOVE)
    for target, source in high.items():
        os.dup2(source, target)
    os.closerange(_ABOVE, max(high.values()) + 1)


TUNER = (sys.executable, "-m", "tuner")
CHILDREN = (
    "tuner.estimate.serve_orders",
    "tuner.training.baselines.serve",
    "tuner.worker.functions.called",
    "tuner.worker.trainer",
)
"""What a command starts as `python -m` or `python -c`, each time importing torch for seconds."""


def _in_nursery(words: Sequence[str], beginning: Sequence[str]) -> list[str] | None:
    """What a fork is told of this command; None of one that is started as ever."""
    if list(words[: len(beginning)]) == list(beginning):
        return list(words[len(beginning) :])
    python, *rest = words
    child = python == sys.executable and rest[:1] in (["-m"], ["-c"])
    if child and tuple(beginning) == TUNER and any(name in rest[1] for name in CHILDREN):
        return rest
    return None


def popen_of(nursery: Nursery, beginning: Sequence[str] = TUNER) -> type[subprocess.Popen[Any]]:
    """What starts commands with this beginning in the nursery, with ours their children, and
    everything else as ever."""
    plain = subprocess.Popen
    named = inspect.signature(plain._execute_child)  # type: ignore[attr-defined]

    class Popen(plain):  # type: ignore[misc, valid-type]
        def _execute_child(self, words: Any, *more: Any) -> None:
            given = named.bind(self, words, *more).arguments
            told = _in_nursery(words, beginning)
            if told is None:
                super()._execute_child(words, *more)
                return
            pipes = [
                given[name]
                for name in ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
            ]
            standard = {0: given["p2cread"], 1: given["c2pwrite"], 2: given["errwrite"]}
            descriptors = {
                number: pipe if pipe != -1 else number for number, pipe in standard.items()
            }
            descriptors |= {number: number for number in given["pass_fds"]}
            environment = dict(os.environ if given["env"] is None else given["env"])
            command = {
                "words": told,
                "folder": os.fspath(given["cwd"] or Path.cwd()),
                "environment": environment,
                "cores": sorted(os.sched_getaffinity(0)),
                "group": given["process_group"] if given["process_group"] != -1 else None,
            }
            self.pid = nursery.child(command, descriptors)
            self._child_created = True
            self._close_pipe_fds(*pipes)

    return Popen
