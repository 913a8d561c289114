"""The statistics of a verdict: pure functions on arrays, nothing of studies, databases or devices.

`intervals`  medians, ratios and differences of medians with bootstrap intervals
`paired`     tests of paired differences, and Holm's correction
`sequential` looks at the data before its planned end, without spending more than the planned error
`ranks`      how two scores rank the same things
`pairs`      configurations held against each other: effects, tests, what may be claimed
"""

from tuner.stats.intervals import CONFIDENCE, LEAST_RUNS, Interval
from tuner.stats.paired import ALPHA
from tuner.stats.pairs import Comparison, Effect, Question, Sample, judge, judge_at_look

__all__ = [
    "ALPHA",
    "CONFIDENCE",
    "LEAST_RUNS",
    "Comparison",
    "Effect",
    "Interval",
    "Question",
    "Sample",
    "judge",
    "judge_at_look",
]
