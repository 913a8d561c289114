"""Builds the kernels of `host_kernels.cpp` with the machine's C++ compiler, once, and loads them.

What was built lies in the user's cache under a name that follows from the source, the compiler, its
options and the processor: whatever changes, another file is built. Building takes about a second.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tuner.errors import TunerError

SOURCE = Path(__file__).with_name("host_kernels.cpp")
OPTIONS = (
    "-std=c++17",
    "-O3",
    "-march=native",
    "-fopenmp",
    "-fPIC",
    "-shared",
    "-fno-math-errno",
    "-fno-trapping-math",
)
LONGEST_BUILD_S = 120.0


def why_not_built() -> str | None:
    """Why no kernel can be built here, in one line; None where a compiler is there to do it."""
    if not sys.platform.startswith("linux"):
        return "the kernels for a CPU are built on Linux only"
    if _compiler() is None:
        return "the kernels for a CPU are built with a C++ compiler, and there is no g++"
    return None


def _compiler() -> str | None:
    return os.environ.get("CXX") or shutil.which("g++")


@functools.cache
def library() -> ctypes.CDLL:
    """The kernels, built if they are not yet there.

    Raises:
        TunerError: they cannot be built or loaded.
    """
    compiler = _compiler()
    if compiler is None:
        raise TunerError("the kernels for a CPU need g++, and there is none; use --backend eager")
    try:
        folder = _cache()
        place = folder / f"{_key(compiler)}.so"
        if not place.exists():
            _build(compiler, place)
        return ctypes.CDLL(str(place))
    except subprocess.CalledProcessError as error:
        said = (error.stderr or "").strip().splitlines()
        why = said[0] if said else f"exit status {error.returncode}"
    except (OSError, subprocess.TimeoutExpired) as error:
        why = " ".join(str(error).split())
    raise TunerError(
        f"the kernels for a CPU could not be built with {compiler}: {why}; use --backend eager"
    )


def _cache() -> Path:
    """The user's own folder for them, or a new one that only this process knows."""
    from platformdirs import user_cache_dir

    # No home, or one that cannot be written: a build takes a second.
    with contextlib.suppress(OSError, RuntimeError):
        folder = Path(user_cache_dir("tuner")) / "host-kernels"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if os.access(folder, os.W_OK):
            return folder
    return Path(tempfile.mkdtemp(prefix="tuner-host-kernels-"))


def _key(compiler: str) -> str:
    version = subprocess.run(
        [compiler, "--version"], capture_output=True, text=True, check=True, timeout=LONGEST_BUILD_S
    ).stdout
    parts = [SOURCE.read_text(encoding="utf-8"), version, *OPTIONS, _processor()]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def _processor() -> str:
    """What `-march=native` goes by: a cache may be shared by unlike machines."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        told = [line for line in lines if line.startswith(("model name", "flags", "Features"))]
        return "\n".join(sorted(set(told)))
    return platform.machine()


def _build(compiler: str, place: Path) -> None:
    """Into a name of its own, then renamed: a process beside this one sees all of it or nothing."""
    handle, name = tempfile.mkstemp(suffix=".so", dir=place.parent)
    os.close(handle)
    unfinished = Path(name)
    try:
        subprocess.run(
            [compiler, *OPTIONS, "-o", name, str(SOURCE)],
            capture_output=True,
            text=True,
            check=True,
            timeout=LONGEST_BUILD_S,
        )
        unfinished.replace(place)
    finally:
        unfinished.unlink(missing_ok=True)
