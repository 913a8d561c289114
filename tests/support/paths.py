"""Where things are in the repository, for tests in any folder."""

from __future__ import annotations

from pathlib import Path

SUPPORT = Path(__file__).resolve().parent
SCRIPTS = SUPPORT / "scripts"
"""Programs that tests start as processes of their own."""
REPOSITORY = SUPPORT.parents[1]
BENCHMARKS = REPOSITORY / "benchmarks"
