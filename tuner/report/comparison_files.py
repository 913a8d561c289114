"""The report as files: CSV for spreadsheets, and one page that needs no network."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner.display.text import csv_text, shown
from tuner.errors import TunerError, UsageError
from tuner.files.durable import put
from tuner.files.plain import in_json
from tuner.report.figures.draw import draw, fronts
from tuner.report.overview import CAPTIONS, Answer, figure_of, line_of, with_looks
from tuner.report.pages import frozen, rendered
from tuner.spec.objectives import axis_title
from tuner.verdict.compare.between import another_search_sentences
from tuner.verdict.compare.findings import Report
from tuner.verdict.compare.registered import RegisteredLevel, groups_of
from tuner.verdict.compare.rows import FIGURES, Row
from tuner.verdict.compare.studies import names_of_groups
from tuner.verdict.stats.intervals import CONFIDENCE, Interval

# What a report says, in sentences under titles: the same for terminals, pages and retunes.


def sections_of(report: Report) -> list[tuple[str, list[str]]]:
    """What a report says, by its titles: what is confirmed, what follows between variants, and the
    rest.
    """
    called, names = report.called, names_of_groups(report.studies)
    another = [another_search_sentences(each, names[each.group]) for each in report.another_search]
    columns = [_by_column(row, called[row.study]) for row in report.rows if row.columns]
    sentences = (
        ("Without a network", list(report.without_network)),
        ("What a rewrite hopes for, retuned against the default", list(report.hoped)),
        ("Confirmed on untouched seeds", [each.sentence for each in report.confirmed]),
        ("Between variants, by whole searches", [each.sentence for each in report.between]),
        ("Would another search say the same?", [line for lines in another for line in lines]),
        (
            "Times of the searches at registered levels",
            [_at_level(level, names) for level in report.registered],
        ),
        ("Test MQL by target column, in the units of each", columns),
        ("To read this", list(report.notes)),
    )
    found = [(title, [f"{line}." for line in lines]) for title, lines in sentences]
    volumes = [volume_line(report, index) for index in range(len(report.volumes))]
    found += [("Hypervolume", volumes), ("Not equal", list(report.fairness))]
    found.append(("Missing", list(report.missing)))
    return [(title, lines) for title, lines in found if lines]


def _by_column(row: Row, called: str) -> str:
    each = []
    for name, figure in row.columns.items():
        each.append(f"{shown(name)} -" if figure is None else f"{shown(name)} {figure:.4g}")
    return f"{called}, {row.hyperparameters}: {', '.join(each)}"


def _at_level(level: RegisteredLevel, names: Mapping[str, str]) -> str:
    told = []
    for group, times in level.searches.items():
        known = [each.seconds for each in times if each.seconds is not None]
        how = "" if all(each.confirmed for each in times) else " (expected, not confirmed)"
        took = f", median {statistics.median(known):.3f} s" if known else ""
        promised = [each.promised for each in times if each.promised is not None]
        if promised and not known:
            took = f", the best that one promises is {min(promised):.4f}"
        given_up = [e.given_up_after for e in times if e.given_up_after is not None]
        if given_up:
            trainings = " to ".join(f"{each}" for each in sorted({min(given_up), max(given_up)}))
            took += f", {len(given_up)} looked no further after {trainings} trainings"
        told.append(f"{names[group]} {len(known)} of {len(times)} searches{took}{how}")
    of = f"{names[level.group]}'s default{level.cut_in_words} with its margin"
    return f"test MQL {level.mql:.4f}, {of}: {'; '.join(told)}"


FORMS = {
    "epochs": ("epochs", ".0f"),
    "total_time_s": ("total time (s)", ".3f"),
    "s_per_epoch": ("s/epoch", ".4f"),
    "val_loss": ("val loss", ".4f"),
    "test_mql": ("test MQL", ".4f"),
}
"""Heading of each figure, and how it is written."""
HEADINGS = {name: heading for name, (heading, _) in FORMS.items()}
HOW = (
    "Between variants a difference is claimed by an exact test over whole searches, by their times "
    "at one registered quality; of a configuration and its default, by its confirmation. "
    "docs/read-a-verdict.md says what each figure means."
)
CONTAMINATED = "!  timing contaminated: something else used the device; do not trust it"


def cell(row: Row, name: str) -> str:
    """A figure as people read it: a median with its interval, or one number."""
    value = row.figures[name]
    if value is None:
        return "-"
    mark = " !" if row.contaminated and name in ("total_time_s", "s_per_epoch") else ""
    if name == "test_mql" and row.mql_is != name:
        mark = f" ({axis_title(row.mql_is)})"
    return format(value, FORMS[name][1]) + mark


def write_csv(report: Report, path: Path) -> None:
    """One row a configuration; each figure with the ends
    of its interval, empty where it is not verified.

    Raises:
        TunerError: the file cannot be written.
    """
    put_text(path, csv_text([_flat(row) for row in report.rows], first=TABLE))


TABLE = ("study", "variant", "core_change", "hyperparameters", "trial", "verified", "runs")


def _flat(row: Row) -> dict[str, object]:
    """Its cells in a CSV: of a hyperparameter called like another column there is none."""
    figures = {name: row.figures[name] for name in FIGURES}
    figures |= {f"test_mql_of/{name}": value for name, value in row.columns.items()}
    figures |= row.paid
    found = dict(row.params) | in_json(row, *TABLE)
    found |= {"missed": sum(row.misses.values())}
    found |= in_json(row, "cut_off", "mql_is", "contaminated", "verdict")
    for name, value in figures.items():
        found[name] = value.estimate if isinstance(value, Interval) else value
        for end in ("low", "high"):
            found[f"{name}_{end}"] = getattr(value, end, "")
    return found


def write_html(
    report: Report, path: Path, *, more: Sequence[tuple[str, Sequence[str]]] = ()
) -> None:
    """A page of its own: sentences, table, fronts, fairness, what is missing; and `more` sentences,
    by their titles.

    Raises:
        TunerError: the file cannot be written.
    """
    put_text(path, page(report, more=more))


def put_text(path: Path, text: str) -> None:
    """Raises TunerError where the file cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        put(path, text.encode())
    except OSError as error:
        raise TunerError(f"cannot write {path}: {error.strerror or error}") from None


def page(report: Report, *, more: Sequence[tuple[str, Sequence[str]]] = ()) -> str:
    """The dashboard's first page of these studies, frozen: the answer with its picture, the
    studies, what else decides; and below it all that was computed.
    """
    title = f"{_who(report)} on {report.task}"
    body = rendered(
        "comparison.html",
        report=report,
        sections=[*sections_of(report), *more],
        heads=("variant", "core change", "hyperparameters", *HEADINGS.values(), "verdict"),
        figures=FIGURES,
        cell=cell,
        notes_on=notes_on,
        figures_are=_figures_are(report),
        how=HOW,
    )
    one = Answer(heading=report.task, sentences=report.answer)
    lines = with_looks(map(line_of, report.studies))
    return frozen(title, one=one, lines=lines, pictures=_pictures(report), body=body)


def _figures_are(report: Report) -> str:
    """Of the table: of fresh seeds, of the search, or some of each."""
    if not any(row.verified for row in report.rows):
        return "Figures of the search alone: nothing is verified on fresh seeds"
    others = "" if all(row.verified for row in report.rows) else "; rows in grey are of the search"
    return f"Medians over fresh seeds, with {CONFIDENCE:.0%} intervals{others}"


def _who(report: Report) -> str:
    """`original and rmsnorm`, with how many searches where there are several."""
    groups, names = groups_of(report.studies), names_of_groups(report.studies)
    told = []
    for group, members in groups.items():
        of = f" ({len(members)} searches)" if len(members) > 1 else ""
        told.append(f"{names[group]}{of}")
    return ", ".join(told)


def _pictures(report: Report) -> dict[tuple[str, str], Any]:
    """What decides, the first beside the answer: what was confirmed, where something is; the
    fronts; how the best learn, and what they share.
    """
    kinds = list(dict.fromkeys((figure_of(report.studies), "front", "curves", "parallel")))
    found = {}
    for kind in filter(None, kinds):
        with contextlib.suppress(UsageError):  # studies that cannot share it
            drawn = (
                fronts(report.studies, called=report.called)
                if kind == "front"
                else draw(kind, report.studies)
            )
            if drawn.data:  # what was exported without its curves has none
                found[CAPTIONS[kind]] = drawn
    return found


def notes_on(row: Row) -> Iterator[str]:
    """What to know of a row's figures."""
    if not row.verified:
        one, many = "one run", f"medians of {row.search_runs} runs"
        yield f"{one if row.search_runs == 1 else many} of the search, not verified"
    if row.contaminated:
        yield CONTAMINATED
    for how, count in row.misses.items():
        missed = f"{count} of {row.runs} runs missed ({how.replace('_', ' ')})"
        yield f"{missed}; not in its figures"
    if row.cut_off:
        cut = f"{row.cut_off} of {row.runs} runs were cut off by the limit of epochs"
        yield f"{cut}; they count with what they came to"


def volume_line(report: Report, index: int) -> str:
    volume = report.volumes[index]
    size = f"{volume.value:.4g}"
    if volume.interval is not None:
        size += f" [{volume.interval.low:.4g}, {volume.interval.high:.4g}]"
    if not volume.verified:
        by = "" if volume.mql_is == "test_mql" else f" by {axis_title(volume.mql_is)}"
        size += f" (of the search's trials{by}, not verified"
        if volume.contaminated:
            size += f"; {volume.contaminated} of {volume.timings} timings are contaminated"
        size += ")"
    return f"{report.called[volume.study]}: {size}"
