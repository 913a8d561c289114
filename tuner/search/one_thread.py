"""Linear algebra in one thread.

Matrices of some hundred rows lose several times over when threads share them out, and eleven times
where the cores have other work.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """In here, or in a function that it decorates, NumPy and SciPy use one thread of this process;
    torch keeps its own.
    """
    with _libraries().limit(limits=1, user_api="blas"):
        yield


@functools.cache
def _libraries() -> ThreadpoolController:
    """Those with threads that this process has loaded by now, the first time that somebody asks.
    To look for them takes milliseconds: in a process with torch, Ray and others as long as to
    suggest a trial.
    """
    # Here: not everybody who names a model asks it. SciPy has threads of its own to be limited.
    import scipy.linalg  # noqa: F401
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
