"""What the scripts of this folder read and write alike: options, and a table with where it comes from."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.shared.circumstances import circumstances, heading, write


def options_of(script: str | None) -> argparse.ArgumentParser:
    """With `--output`, and the docstring of the script as its help."""
    parser = argparse.ArgumentParser(
        description=script, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, help="without .json and .md, which are added")
    return parser


def report(output: Path | None, rows: list[dict[str, Any]], columns: Iterable[str]) -> None:
    """Print a table of all rows, and write it and them with where they come from."""
    heads = list(columns)
    text = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    text += [f"| {' | '.join(str(row[each]) for each in heads)} |" for row in rows]
    print("\n".join(text))
    if output:
        where = circumstances("CPU")
        write(output, where | {"rows": rows}, [*heading(where), *text])
