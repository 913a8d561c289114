"""Which extra of tuner's a program lacks, by what it printed."""

from __future__ import annotations

import re
from collections.abc import Iterable

EXTRAS = {
    "accelerate": "huggingface",
    "lightning": "lightning",
    "pytorch_lightning": "lightning",
    "transformers": "huggingface",
}
"""By the package that is not there; the callbacks of tuner need them."""

_NOT_THERE = re.compile(r"No module named '(\w+)")


def missing_extra(printed: Iterable[str]) -> str:
    """How to install it, after a semicolon; empty where nothing of the kind was printed."""
    for line in printed:
        found = _NOT_THERE.search(line)
        if found and found[1] in EXTRAS:
            return f"; pip install 'tuner[{EXTRAS[found[1]]}]'"
    return ""
