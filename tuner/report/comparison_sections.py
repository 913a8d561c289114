"""What a report says, in sentences under titles: the same for terminals, pages and retunes."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

from tuner.display.text import shown
from tuner.verdict.ablation_words import ablation_sentence
from tuner.verdict.compare.another_search import another_search_sentences
from tuner.verdict.compare.findings import Report
from tuner.verdict.compare.registered import RegisteredLevel
from tuner.verdict.compare.rows import Row
from tuner.verdict.compare.studies import names_of_groups
from tuner.verdict.questions import WITHIN
from tuner.verdict.stats.intervals import Interval

WITHOUT_NETWORK = "Without a network"
CONFIRMED = "Confirmed on untouched seeds"
BETWEEN_VARIANTS = "Between variants, by whole searches"
ANOTHER_SEARCH = "Would another search say the same?"
AT_LEVELS = "Times of the searches at registered levels"
MADE_OF = "What made the gain"
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
        (MADE_OF, [ablation_sentence(each) for each in report.ablations]),
        (SECONDARY_POINTS, own),
        (BY_COLUMN, [_by_column(row, called[row.study]) for row in report.rows if row.columns]),
        ("To read this", list(report.notes)),
    )
    return [(title, [f"{line}." for line in lines]) for title, lines in found if lines]


def headed(title: str) -> str:
    """A title before its lines: with a colon, unless it asks."""
    return title if title.endswith("?") else f"{title}:"


def _by_column(row: Row, called: str) -> str:
    each = [f"{shown(name)} {_middle(figure)}" for name, figure in row.columns.items()]
    return f"{called}, {row.hyperparameters}: {', '.join(each)}"


def _middle(figure: Interval | float | None) -> str:
    """With its interval, where it has one."""
    return "-" if figure is None else f"{figure:.4g}"


def _at_level(level: RegisteredLevel, names: Mapping[str, str]) -> str:
    told = []
    for group, times in level.searches.items():
        known = [each.seconds for each in times if each.seconds is not None]
        how = "" if all(each.confirmed for each in times) else " (expected, not confirmed)"
        took = f", median {statistics.median(known):.3f} s" if known else ""
        told.append(f"{names[group]} {len(known)} of {len(times)} searches{took}{how}")
    of = f"{names[level.group]}'s default{level.cut_in_words} with its margin"
    return f"test MQL {level.mql:.4f}, {of}: {'; '.join(told)}"
