"""The modules of the campaign, which are scripts beside each other."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from tests.support.paths import BENCHMARKS

CAMPAIGN = BENCHMARKS / "campaign"
MODULES = ("plan", "state", "answer", "report_tables", "readme", "run", "report")


@pytest.fixture(scope="module", autouse=True)
def modules() -> Iterator[dict[str, ModuleType]]:
    """Their names are common ones: nobody else is to find them."""
    path = list(sys.path)
    sys.path.insert(0, str(CAMPAIGN))
    yield {name: importlib.import_module(name) for name in MODULES}
    sys.path[:] = path
    for name in MODULES:
        sys.modules.pop(name, None)
