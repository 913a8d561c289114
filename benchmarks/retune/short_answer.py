"""The answer of a retune in a few lines, with its picture's caption and a table, for a README."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from benchmarks.campaign.answer import conclusion
from tuner.report.figures.confirmed_figure import confirmed_series
from tuner.settings import in_percent
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.compare.findings import Report
from tuner.verdict.compare.registered import RegisteredLevel, SearchTime, groups_of
from tuner.verdict.compare.studies import names_of_groups
from tuner.verdict.retune_cost import costs


def gpu_word(model: str | None) -> str:
    """A GPU model as one says it: H200."""
    return str(model).removeprefix("NVIDIA ").split()[0]


def short_answer(reports: Sequence[Report], link: str) -> list[str]:
    """What is claimed, and the times it rests on, for each GPU model; `link` leads to the whole."""
    if len(reports) == 1:
        (report,) = reports
        claimed = [_conclusions(report)]
        held = [" ".join(_of_level(report, level)) for level in _first_and_easiest(report)]
    else:
        claimed, held, before = [], [], ""
        for report in reports:
            gpus = f"{gpu_word(report.studies[0].device_model)}s"
            claimed.append(f"On {gpus} {_conclusions(report)}")
            label, times = _of_level(report, report.registered[0])
            held.append(f"on {gpus} {times}" if label == before else f"{label} on {gpus} {times}")
            before = label
    told = "; ".join(held)
    return [
        f"1. {' '.join(claimed)} {_searches(reports[0])}",
        f"2. {told[:1].upper()}{told[1:]} ([what came]({link})).",
    ]


def caption(studies: Sequence[StudySnapshot], picture: str, link: str) -> list[str]:
    """The picture and what it shows."""
    models = " and ".join(sorted({str(each.device_model) for each in studies}))
    searches = " or ".join(sorted({str(len(each)) for each in groups_of(studies).values()}))
    said = (
        f"*{searches} searches of each on {models}. Colours are of fresh seeds; arrows come from what a search saw. "
        f"[Draw it again]({link}).*"
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


def _first_and_easiest(report: Report) -> Sequence[RegisteredLevel]:
    """The first variant's level, which the question is about, and the highest of the others'."""
    others = sorted(report.registered[1:], key=lambda each: each.mql)
    return [*report.registered[:1], *others[-1:]]


def _searches(report: Report) -> str:
    groups = groups_of(report.studies).values()
    paid = costs(groups_of(report.studies))
    seconds = sum(each.spent.search_s for each in paid) / sum(each.searches for each in paid)
    least = min(len(each) for each in groups)
    told = "One search of each" if least == 1 else f"{least} searches of each"
    return f"{told}, {seconds:.0f} GPU seconds long, {'with confirmations' if _all_ran(report) else 'not confirmed'}."


def _all_ran(report: Report) -> bool:
    times = [
        each for level in report.registered for found in level.searches.values() for each in found
    ]
    return bool(times) and all(each.confirmed for each in times)


def _of_level(report: Report, level: RegisteredLevel) -> tuple[str, str]:
    """A level, and how long each variant takes to it, in a few words."""
    names = names_of_groups(report.studies)
    took = "" if _all_ran(report) else "expected "
    told = [(_took(found), names[group]) for group, found in level.searches.items()]
    times = ", ".join(f"{those} {said}" for said, those in named_together(told))
    label = f"{took}time to MQL {level.mql:.4f}"
    return f"{label} ({names[level.group]}'s default + {in_percent(level.margin)}):", times


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
        return "unknown" if any(each.how == "unknown" for each in times) else "not reached"
    return f"{statistics.median(known):.2f} s"
