"""Several processes side by side, a core each."""

from __future__ import annotations

import os


def one_core_each() -> None:
    """To be called before numpy is imported: it and what it calls take one thread, unless somebody
    said otherwise.
    """
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
