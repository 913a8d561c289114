"""The answer of a retune in a few lines, with its picture's caption and a table, for a README."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from benchmarks.campaign.answer import conclusion
from tuner.report.figures.confirmed_figure import confirmed_series
from tuner.settings import in_percent
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.compare.findings import Report
from tuner.verdict.compare.registered import SearchTime, groups_of
from tuner.verdict.compare.studies import names_of_groups
from tuner.verdict.retune_cost import costs

NOT_REACHED = "not reached"


def gpu_word(model: str | None) -> str:
    """A GPU model as one says it: H200."""
    return str(model).removeprefix("NVIDIA ").split()[0]


def short_answer(reports: Sequence[Report], link: str) -> list[str]:
    """The level, and for each GPU model what takes how long to it and what is claimed; `link`
    leads to the whole.
    """
    targets = [_target(report) for report in reports]
    alike = len(set(targets)) == 1
    lines = [f"{_searches(reports[0])} {targets[0]}" if alike else _searches(reports[0]), ""]
    for report, target in zip(reports, targets, strict=True):
        beginning = f"- **{gpu_word(report.studies[0].device_model)}**: "
        said = beginning if alike else f"{beginning}{target} "
        lines.append(f"{said}{_times(report)} {_conclusions(report)}")
    return [*lines, "", f"[All figures]({link})."]


def caption(studies: Sequence[StudySnapshot], picture: str, link: str) -> list[str]:
    """The picture and what it shows."""
    models = " and ".join(sorted({str(each.device_model) for each in studies}))
    searches = " or ".join(sorted({str(len(each)) for each in groups_of(studies).values()}))
    said = (
        f"*{searches} searches of each on {models}. Colours: fresh seeds. Arrows: from what a "
        f"search saw. [Draw it again]({link}).*"
    )
    return [
        f"![Time to convergence against test MQL, as confirmed]({picture})",
        "",
        said,
    ]


def variants_lines(reports: Sequence[Report]) -> list[str]:
    """A row of each variant on each GPU model: its default, and the middle one of what is confirmed,
    by medians over fresh seeds.
    """
    lines = [
        "| variant | GPU | default: s | MQL | retuned: s | MQL | confirmed |",
        "|---|---|---|---|---|---|---|",
    ]
    for report in reports:
        lines += _rows(report.studies)
    return lines


def _rows(studies: Sequence[StudySnapshot]) -> list[str]:
    names = names_of_groups(studies)
    counts = {names[each.group]: each for each in costs(groups_of(studies))}
    lines = []
    for each in confirmed_series(studies):
        retuned = None if each.answer is None else each.found[each.answer].at
        cells = [
            "- | -" if at is None else f"{at.time.estimate:.3f} | {at.mql.estimate:.4f}"
            for at in (each.default, retuned)
        ]
        of, gpu = counts[each.name], gpu_word(studies[0].device_model)
        lines.append(
            f"| {each.name} | {gpu} | {' | '.join(cells)} | {of.confirmed} of {of.searches} searches |"
        )
    return lines


def _conclusions(report: Report) -> str:
    """One word or two for each variant that is held against the first."""
    if len(groups_of(report.studies)) == len(report.between) + 1:
        told = [(conclusion([each]), each.a) for each in report.between]
        return " ".join(f"{names}: {said}" for said, names in named_together(told))
    return conclusion(report.between)


def _searches(report: Report) -> str:
    groups = groups_of(report.studies).values()
    paid = costs(groups_of(report.studies))
    seconds = sum(each.spent.search_s for each in paid) / sum(each.searches for each in paid)
    least = min(len(each) for each in groups)
    told = "one search" if least == 1 else f"{least} searches"
    confirmed = "with confirmations" if _all_ran(report) else "unconfirmed"
    return f"Each variant had {told} of {seconds:.0f} GPU seconds, {confirmed}."


def _all_ran(report: Report) -> bool:
    times = [
        each for level in report.registered for found in level.searches.values() for each in found
    ]
    return bool(times) and all(each.confirmed for each in times)


def _target(report: Report) -> str:
    level = report.registered[0]
    name = names_of_groups(report.studies)[level.group]
    margin = in_percent(level.margin)
    return f"Times are to MQL {level.mql:.4f}: {name}'s default plus {margin}."


def _times(report: Report) -> str:
    """How long each variant takes to the first one's level: `a takes 0.42 s, b 0.50 s.`"""
    names = names_of_groups(report.studies)
    searches = report.registered[0].searches
    took = named_together([(_took(found), names[group]) for group, found in searches.items()])
    reached = [f"{those} {said}" for said, those in took if said != NOT_REACHED]
    if not reached:
        return "Nothing reached it."
    lead = "" if _all_ran(report) else "expected, "
    return f"{lead}{', '.join(reached)}."


def named_together(told: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """What is said of several variants, once: `("not reached", "rmsnorm and layernorm")`."""
    names: dict[str, list[str]] = {}
    for said, name in told:
        names.setdefault(said, []).append(name)
    found = []
    for said, each in names.items():
        before, last = ", ".join(each[:-1]), each[-1]
        found.append((said, f"{before} and {last}" if before else last))
    return found


def _took(times: Sequence[SearchTime]) -> str:
    known = [each.seconds for each in times if each.seconds is not None]
    if not known:
        return "unknown" if any(each.how == "unknown" for each in times) else NOT_REACHED
    return f"{statistics.median(known):.2f} s"
