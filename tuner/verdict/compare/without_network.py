"""What of a comparison a forecast without a network would do as well."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.study.baselines import baselines_of, in_words, loses
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.compare.rows import Row
from tuner.verdict.stats.intervals import Interval

TEST = "test_mql"


def without_network(studies: Sequence[StudySnapshot], rows: Sequence[Row]) -> tuple[str, ...]:
    """Sentences: which configurations of a report lose to a baseline, these first, and what the
    baselines come to; nothing where no study recorded any. The studies are of the same data.
    """
    known = (baselines_of(study.results.records, TEST) for study in studies)
    baselines = next((found for found in known if found), {})
    if not baselines:
        return ()
    sentences: list[str] = []
    for row in rows:
        figure = row.figures.get(TEST)
        mql = figure.estimate if isinstance(figure, Interval) else figure
        whose = f"{row.variant}, {row.hyperparameters},"
        if mql is not None and (said := loses(mql, baselines, whose)):
            sentences.append(said)
    each = [f"{in_words(name)} {mql:.4g}" for name, mql in baselines.items()]
    return (*sentences, f"On the same windows, test MQL: {', '.join(each)}")
