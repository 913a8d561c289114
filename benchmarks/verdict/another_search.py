"""Does another search's time lie where `tuner compare` says it would? Of simulated searches.

    python benchmarks/verdict/another_search.py --recorded OUT/longer-confirmations-report.json --output OUT/another-search

Of the ten searches of each truth in what confirmed_steps.py wrote (with `--longer --report`), every choice of three, four
or five foretells the time of every other one. A search's time is its true one, in the mean over what
its confirmation may come to, where that confirms anything: the luck of which step stands, and that
of the seeds, is not in it. The rows are of the same searches, confirmed on more seeds or fewer. No
simulation runs here.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.append(str(Path(__file__).parents[2]))
from benchmarks.shared.circumstances import circumstances, heading, write
from tuner.verdict.stats.searches import next_draw

KNOWN = (3, 4, 5)


class Coverage(NamedTuple):
    """How often the interval held, of how many cases, and its upper end over its lower one."""

    inside: int
    cases: int
    width: float


def coverage(times: Sequence[float], known: int) -> Coverage:
    """Of every choice of `known` of these times, for every other one."""
    inside, cases, widths = 0, 0, []
    for chosen in itertools.combinations(range(len(times)), known):
        found = next_draw([times[place] for place in chosen])
        assert found is not None, "three are enough"
        widths.append(found.high / found.low)
        others = [times[place] for place in range(len(times)) if place not in chosen]
        inside += sum(found.covers(each) for each in others)
        cases += len(others)
    return Coverage(inside, cases, statistics.median(widths))


def searches(recorded: dict[str, Any]) -> dict[tuple[str, int, str], list[float]]:
    """The times over the default's of searches alike, by the way of searching, seeds, and truth."""
    found: dict[tuple[str, int, str], list[float]] = {}
    for row in recorded["rows"]:
        key = (row["search"], row["seeds"], row["truth"])
        judged = row["found"]
        found.setdefault(key, []).append(math.exp(-judged["log_gain"] / judged["confirmed"]))
    return found


def table(found: dict[tuple[str, int, str], list[float]]) -> tuple[list[dict[str, Any]], list[str]]:
    rows, lines = (
        [],
        ["| search | seeds | truth | of 3 | of 4 | of 5 |", "|---|---|---|---|---|---|"],
    )
    sums = dict.fromkeys(KNOWN, (0, 0))
    for (search, seeds, truth), times in found.items():
        cells = []
        for known in KNOWN:
            c = coverage(times, known)
            sums[known] = (sums[known][0] + c.inside, sums[known][1] + c.cases)
            cells.append(f"{c.inside / c.cases:.0%}, x {c.width:.2f}")
            row = {"search": search, "seeds": seeds, "truth": truth, "known": known}
            rows.append(row | c._asdict())
        lines.append(f"| {search} | {seeds} | {truth} | {' | '.join(cells)} |")
    alls = " | ".join(f"{inside / cases:.1%}" for inside, cases in sums.values())
    lines += [f"| all | | | {alls} |", ""]
    lines.append(
        "How often the interval held the time of another search (foretold: 90 %), and its upper end over its lower one."
    )
    return rows, lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--recorded", type=Path, required=True, help="confirmed searches, as JSON")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    output, recorded = options.output, options.recorded.read_text(encoding="utf-8")
    rows, lines = table(searches(json.loads(recorded)))
    where = circumstances("no device")
    write(output, where | {"rows": rows}, [*heading(where), *lines])
    print("\n".join(lines))


if __name__ == "__main__":
    main()
