r"""Whole retunes of one variant, side by side: does what each foretells hold what the others found?

    python benchmarks/retune/whole_retunes.py benchmarks/retune/h200-14m benchmarks/retune/campaign \
        benchmarks/retune/h100 benchmarks/retune/again --variant original --output OUT/whole-retunes

The folders hold studies as `tuner study export` writes them. Of each retune, where the time of another confirmed search
would lie (tuner/verdict/compare/between.py) is held against the confirmed times of every other one, and so is its
MQL.
Writes OUTPUT.md and OUTPUT.json.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[2]))
from benchmarks.retune.report import read
from benchmarks.shared.circumstances import circumstances, heading, write
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.compare.between import AnotherSearch, another_search_of
from tuner.verdict.confirmation import confirmation_of
from tuner.verdict.retune_cost import spent_on

HEADER = (
    "| retune | GPU | device s a search | seeds | confirmed | times over the default's "
    "| another one's | holds, of the others' | MQLs over the default's | another one's | holds, of the others' |"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retune:
    """The searches of one variant in one folder, and what they say of another search."""

    name: str
    model: str
    search_s: float
    """Device seconds of each search, in the mean."""
    seeds: int
    """Of each configuration that was tested."""
    found: AnotherSearch

    @property
    def times(self) -> list[float]:
        """Over the default's, of the searches that are confirmed."""
        return [each.estimate for each in self.found.ratios]

    def holds(self, others: Sequence[Retune]) -> tuple[int, int] | None:
        """How many of the others' confirmed times lie within what this one foretells, and of how
        many; None where it foretells nothing.
        """
        if (expected := self.found.expected) is None:
            return None
        times = [time for other in others for time in other.times]
        return sum(map(expected.covers, times)), len(times)

    def holds_mqls(self, others: Sequence[Retune]) -> tuple[int, int] | None:
        """The same of the MQLs over the default's."""
        if (expected := self.found.expected_mql) is None:
            return None
        mqls = [mql for other in others for mql in other.found.mqls]
        return sum(map(expected.covers, mqls)), len(mqls)


def retune_of(name: str, studies: Sequence[StudySnapshot]) -> Retune:
    """What the searches of one variant came to.

    Raises:
        SystemExit: there are none, or of several GPU models, or they are not confirmed.
    """
    models = {str(each.device_model) for each in studies}
    if len(models) != 1:
        raise SystemExit(
            f"{name}: searches on one GPU model were expected, they are of {sorted(models)}"
        )
    confirmations = [each for each in map(confirmation_of, studies) if each is not None]
    said = another_search_of({studies[0].membership.group: studies})
    if not said:
        raise SystemExit(f"{name}: three searches or more, confirmed by one margin, were expected")
    return Retune(
        name=name,
        model=models.pop(),
        search_s=spent_on(studies).search_s / len(studies),
        seeds=confirmations[0].seeds,
        found=said[0],
    )


def row(one: Retune, others: Sequence[Retune]) -> dict[str, Any]:
    held, mqls = one.holds(others), one.holds_mqls(others)
    return {
        "retune": one.name,
        "model": one.model,
        "search_s": one.search_s,
        "seeds": one.seeds,
        "holds": held and {"times": held[0], "of": held[1]},
        "holds_mqls": mqls and {"mqls": mqls[0], "of": mqls[1]},
    } | one.found.as_dict()


def line(one: Retune, others: Sequence[Retune]) -> str:
    times = ", ".join(f"{each:.2f}" for each in sorted(one.times)) or "-"
    mqls = ", ".join(f"{each:.4f}" for each in sorted(one.found.mqls)) or "-"
    held, expected = one.holds(others), one.found.expected
    mqls_held, mql = one.holds_mqls(others), one.found.expected_mql
    cells = (
        one.name,
        one.model,
        f"{one.search_s:.0f}",
        str(one.seeds),
        f"{one.found.confirmed} of {one.found.searches}",
        times,
        f"{expected:.2f}" if expected is not None else "-",
        f"{held[0]} of {held[1]}" if held is not None else "-",
        mqls,
        f"{mql:.4f}" if mql is not None else "-",
        f"{mqls_held[0]} of {mqls_held[1]}" if mqls_held is not None else "-",
    )
    return f"| {' | '.join(cells)} |"


def with_others(retunes: Sequence[Retune]) -> list[tuple[Retune, list[Retune]]]:
    return [(one, [each for each in retunes if each is not one]) for one in retunes]


def table(retunes: Sequence[Retune]) -> list[str]:
    lines = [line(one, others) for one, others in with_others(retunes)]
    return [HEADER, "|---" * 11 + "|", *lines]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--variant", default="original")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    retunes = [
        retune_of(folder.name, read(folder, f"*-{options.variant}*")) for folder in options.folders
    ]
    where = circumstances(" and ".join(sorted({each.model for each in retunes})))
    document = where | {"retunes": [row(one, others) for one, others in with_others(retunes)]}
    lines = table(retunes)
    write(options.output, document, [*heading(where), *lines])
    print("\n".join(lines))


if __name__ == "__main__":
    main()
