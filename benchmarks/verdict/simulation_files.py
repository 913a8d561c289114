"""What simulations of this folder read and write alike: their options, a file of searches, and the
result.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.shared.circumstances import circumstances, heading, write

T = TypeVar("T")


def options_of(script: str | None) -> argparse.ArgumentParser:
    """With `--jobs`, and the docstring of the script as its help."""
    parser = argparse.ArgumentParser(
        description=script, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    return parser


def searches_in(cache: Path) -> list[dict[str, Any]]:
    """A search a line; a line that an interruption cut is left out."""
    found = []
    for line in cache.read_text().splitlines() if cache.exists() else ():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def kept(searches: Iterable[dict[str, Any]], cache: Path) -> Iterator[dict[str, Any]]:
    """The same searches, each in the file before it is handed on."""
    with cache.open("a") as file:
        file.write("\n")  # ends a line that an interruption cut
        for one in searches:
            file.write(json.dumps(one, separators=(",", ":"), ensure_ascii=False) + "\n")
            file.flush()
            yield one


def of_each_search(
    work: Callable[[str, int], T],
    todo: Sequence[tuple[str, int]],
    jobs: int,
    more: Callable[[T], str] = lambda _found: "",
) -> Iterator[T]:
    """What `work` makes of each truth and seed, in their order, in so many processes; as each is
    there it is named on stderr, and `more` of it.
    """
    with ProcessPoolExecutor(jobs) as pool:
        for (name, seed), found in zip(todo, pool.map(work, *zip(*todo, strict=True)), strict=True):
            print(f"{name} {seed}{more(found)}", file=sys.stderr, flush=True)
            yield found


def publish(output: Path, device: str, document: dict[str, Any], text: list[str]) -> None:
    """Print the text, and write it and the document with where they come from."""
    where = circumstances(device)
    write(output, where | document, [*heading(where), *text])
    print("\n".join(text))
