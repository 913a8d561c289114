"""The report as files: CSV for spreadsheets, and one page that needs no network."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner.display.text import csv_text, in_html, shown
from tuner.errors import TunerError
from tuner.files.durable import put
from tuner.report.figures.confirmed_figure import devices_of
from tuner.report.figures.draw import axes, draw
from tuner.report.figures.front import pareto_figure
from tuner.report.figures.series import front_series
from tuner.spec.objectives import axis_title
from tuner.verdict.compare.between import another_search_sentences
from tuner.verdict.compare.findings import Report
from tuner.verdict.compare.registered import RegisteredLevel, groups_of
from tuner.verdict.compare.rows import FIGURES, Row
from tuner.verdict.compare.short_answer import ANSWER
from tuner.verdict.compare.studies import names_of_groups
from tuner.verdict.stats.intervals import CONFIDENCE, WITHIN, Interval
from tuner.verdict.verified import verified_in

# What a report says, in sentences under titles: the same for terminals, pages and retunes.


WITHOUT_NETWORK = "Without a network"
CONFIRMED = "Confirmed on untouched seeds"
BETWEEN_VARIANTS = "Between variants, by whole searches"
ANOTHER_SEARCH = "Would another search say the same?"
AT_LEVELS = "Times of the searches at registered levels"
SECONDARY_POINTS = "Secondary: points of the fronts"
BY_COLUMN = "Test MQL by target column, in the units of each"


def sections_of(report: Report) -> list[tuple[str, list[str]]]:
    """What a report says, by its titles: what is confirmed, what follows between variants, and the
    rest.
    """
    # What stands in the table anyway, and is not compared, has sentences in the JSON alone.
    within = (a for a in report.answers if a.comparison.question.family == WITHIN)
    own = [answer.sentence for answer in within]
    called, names = report.called, names_of_groups(report.studies)
    another = [another_search_sentences(each, names[each.group]) for each in report.another_search]
    found = (
        (WITHOUT_NETWORK, list(report.without_network)),
        (CONFIRMED, [each.sentence for each in report.confirmed]),
        (BETWEEN_VARIANTS, [each.sentence for each in report.between]),
        (ANOTHER_SEARCH, [line for lines in another for line in lines]),
        (AT_LEVELS, [_at_level(level, names) for level in report.registered]),
        (SECONDARY_POINTS, own),
        (BY_COLUMN, [_by_column(row, called[row.study]) for row in report.rows if row.columns]),
        ("To read this", list(report.notes)),
    )
    return [(title, [f"{line}." for line in lines]) for title, lines in found if lines]


def headed(title: str) -> str:
    """A title before its lines: with a colon, unless it asks."""
    return title if title.endswith("?") else f"{title}:"


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
    "at one registered quality; of two configurations, by a paired permutation test after "
    "Holm's correction. docs/read-a-verdict.md says what each figure means."
)
CONTAMINATED = "!  timing contaminated: something else used the device; do not trust it"
UNVERIFIED = "one run of the search, not verified"

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto;
       padding: 0 1rem; color: #222; }
table { border-collapse: collapse; }
td, th { padding: .3rem .6rem; border-bottom: 1px solid #ddd; text-align: left; }
td.number { text-align: right; white-space: nowrap; }
tr.unverified td { color: #888; font-style: italic; }
.missing { background: #fff4e0; padding: .5rem 1rem; } small { color: #666; }
"""


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
    figures = [name + end for name in FIGURES for end in ("", "_low", "_high")]
    plain = ("study", "variant", "core_change", "hyperparameters", "trial", "verified", "runs")
    parameters = sorted({name for row in report.rows for name in row.params})
    columns = list(dict.fromkeys(name for row in report.rows for name in row.columns))
    scores = [f"test_mql_of/{name}{end}" for name in columns for end in ("", "_low", "_high")]
    counts = ("missed", "cut_off", "mql_is", "contaminated")
    rows: list[list[object]] = [[*plain, *counts, *figures, *scores, "verdict", *parameters]]
    for row in report.rows:
        cells = [
            *(getattr(row, name) for name in plain),
            sum(row.misses.values()),
            row.cut_off,
            row.mql_is,
            row.contaminated,
            *(number for name in FIGURES for number in _numbers(row.figures[name])),
            *(n for name in columns for n in _numbers(row.columns.get(name))),
            row.verdict,
            *(row.params.get(name, "") for name in parameters),
        ]
        rows.append(cells)
    put_text(path, csv_text(rows))


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
    title = f"{_who(report)} on {report.task}"
    device = ", ".join(sorted({s.device_model or "no device yet" for s in report.studies}))
    parts = [
        f"<h1>{in_html(title)}</h1>",
        f"<p>{in_html(device)}. {_figures_are(report)}.</p>",
        listed(ANSWER, report.answer),
        *(listed(title, lines) for title, lines in (*sections_of(report), *more)),
        *(f"<p>{in_html(line)}.</p>" for line in (report.intervals, report.resolution) if line),
        listed("What is missing", report.missing, css="missing"),
        "<h2>The table</h2>",
        _table(report),
        *_pictures(report),
        listed("Hypervolume", [volume_line(report, index) for index in range(len(report.volumes))]),
        listed("What is not equal", report.fairness),
        f"<p><small>{HOW}</small></p>",
    ]
    return document(title, parts)


def document(title: str, parts: Sequence[str]) -> str:
    """A page of these parts."""
    head = f"<meta charset='utf-8'><title>{in_html(title)}</title><style>{STYLE}</style>"
    return (
        f"<!doctype html><html lang='en'><head>{head}</head><body>{''.join(parts)}</body></html>\n"
    )


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


def _pictures(report: Report) -> list[str]:
    """What is confirmed, where something is, and the fronts; plotly itself comes with the first."""
    parts = []
    if len(devices_of(report.studies)) == 1:
        figure = draw("confirmed", report.studies)
        parts += ["<h2>What was confirmed</h2>", figure.to_html(full_html=False)]
    fronts = figure_of(report).to_html(full_html=False, include_plotlyjs=not parts)
    return [*parts, "<h2>The fronts</h2>", fronts]


def figure_of(report: Report) -> Any:
    """The fronts of all studies over each other, verified configurations with their intervals."""
    series = [
        front_series(
            study.results, report.called[study.name], verified=list(verified_in(study).values())
        )
        for study in report.studies
    ]
    clock, error = axes(report.studies)
    return pareto_figure(series, clock=clock, error=error)


def _unverified(row: Row) -> str:
    if row.search_runs == 1:
        return UNVERIFIED
    return f"medians of {row.search_runs} runs of the search, not verified"


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


def _numbers(value: Interval | float | None) -> tuple[Any, Any, Any]:
    if isinstance(value, Interval):
        return value.estimate, value.low, value.high
    return ("" if value is None else value), "", ""


def _table(report: Report) -> str:
    heads = [
        "variant",
        "core change",
        "hyperparameters",
        *(HEADINGS[name] for name in FIGURES),
        "verdict",
    ]
    lines = ["<table><tr>" + "".join(f"<th>{head}</th>" for head in heads) + "</tr>"]
    called = report.called
    for row in report.rows:
        note = "" if row.verified else f"<br><small>{_unverified(row)}</small>"
        note += f"<br><small>{CONTAMINATED}</small>" if row.contaminated else ""
        missed = sum(row.misses.values())
        note += f"<br><small>{missed} of {row.runs} runs missed</small>" if missed else ""
        if row.cut_off:
            note += f"<br><small>{row.cut_off} of {row.runs} runs cut off</small>"
        words = [called[row.study], row.core_change, f"{row.hyperparameters}, trial {row.trial}"]
        cells = "".join(f"<td>{in_html(word)}</td>" for word in words[:-1])
        cells += f"<td>{in_html(words[-1])}{note}</td>"
        cells += "".join(f"<td class='number'>{in_html(cell(row, name))}</td>" for name in FIGURES)
        css = "" if row.verified else " class='unverified'"
        lines.append(f"<tr{css}>{cells}<td>{in_html(row.verdict)}</td></tr>")
    return "".join(lines) + "</table>"


def listed(title: str, lines: Sequence[str], *, css: str = "") -> str:
    if not lines:
        return ""
    items = "".join(f"<li>{in_html(line)}</li>" for line in lines)
    return f"<div class='{css}'><h2>{title}</h2><ul>{items}</ul></div>"
