"""Linear algebra in one thread.

Matrices of some hundred rows lose several times over when threads share them out, and eleven times
where the cores have other work.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """In here, or in a function that it decorates, NumPy and SciPy use one thread of this process;
    torch keeps its own.
    """
    # Here: not everybody who names a model asks it. SciPy has threads of its own to be limited.
    import scipy.linalg  # noqa: F401
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, user_api="blas"):
        yield
