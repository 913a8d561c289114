from __future__ import annotations

import dataclasses
import io
from typing import Any

import pytest
from optuna.trial import TrialState

from tuner.display.terminal import Console
from tuner.record import Recorded
from tuner.report.study_status import Alarm, duration
from tuner.report.terminal.live import Look, picture
from tuner.report.terminal.trial_sections import sparkline
from tuner.storage.queue.roster import WorkerRow
from tuner.storage.records import Counts
from tuner.study.results import StudyResults, TrialRecord

PARAMS = {
    "learning_rate": 1e-3,
    "weight_decay": 0.0,
    "dropout": 0.1,
    "hidden_size": 64,
    "batch_size": 256,
}


def record(number: int, values: tuple[float, float] | None, **said: Any) -> TrialRecord:
    return TrialRecord(
        number=number,
        state=TrialState.COMPLETE if values else TrialState.FAIL,
        params=PARAMS | {"dropout": 0.1 + number / 1000},
        values=values,
        recorded=Recorded(**{"epochs": 12, "converged": True, "total_s": 60.0} | said),
        started=f"2026-01-01T00:{number:02}:00",
        ended=f"2026-01-01T00:{number:02}:59",
    )


def worker(device: str, trial: int | None, silent_s: float = 1.0) -> WorkerRow:
    return WorkerRow(
        "w", "host", 1, device, "uuid", trial, 7 if trial is not None else None, 0.25, silent_s
    )


def look(
    *records: TrialRecord,
    budget: int = 20,
    running: int = 2,
    workers: tuple[WorkerRow, ...] = (),
    alarms: tuple[Alarm, ...] = (),
) -> Look:
    counts, results = Counts(budget, running, len(records)), StudyResults(records)
    return Look("demo-rmsnorm", counts, results, workers, alarms)


FULL = look(
    record(0, (9.0, 1.0), default=True),
    record(1, (3.0, 1.5), contaminated=True),
    record(2, (30.0, 0.5)),
    record(3, (40.0, 0.9)),
    record(
        4,
        None,
        failure="OutOfMemoryError: CUDA out of memory, tried to allocate 2 GiB",
        stopped_by="out_of_memory",
    ),
    workers=(worker("GPU 0", 5), worker("GPU 1", 6, silent_s=95.0), worker("GPU 2", None)),
)


def shown(*looks: Look, width: int = 60, height: int = 40, **settings: Any) -> str:
    file = io.StringIO()
    console = Console(file=file, width=width, height=height, force_terminal=True, **settings)
    console.print(picture(looks, console, footer="Ctrl-C leaves"))
    return file.getvalue()


def test_sixty_columns_hold_everything() -> None:
    text = shown(FULL, color_system=None)
    assert max(len(line) for line in text.splitlines()) <= 60
    for words in (
        "5/20, 1 failed",
        "1   3.000    1.5000      12  contaminated",
        "0   9.000    1.0000      12       default",
        "grew 2 trials ago",
        "GPU 0: trial 5, epoch 7, loss 0.2500\n",
        "GPU 1: trial 6, epoch 7, loss 0.2500, silent 95 s",
        "1 more",
        "trial 4: OutOfMemoryError",
        "about 8 min left; Ctrl-C leaves",
    ):
        assert words.strip() in "\n".join(line.rstrip() for line in text.splitlines()), words


def test_trainings_that_slow_down_have_a_line_each() -> None:
    fell = Alarm(trial=5, running=True, what="throughput fell from 2,052 to 539 samples/s")
    text = shown(look(record(0, (9.0, 1.0)), alarms=(fell,)), width=100, color_system=None)
    assert "slowed  trial 5: throughput fell from 2,052 to 539 samples/s, so far" in text
    assert "slowed" not in shown(FULL, color_system=None)


def test_a_wide_terminal_shows_hyperparameters_too() -> None:
    assert "hidden  batch" in shown(FULL, width=100, color_system=None)
    narrow = shown(FULL, width=80, color_system=None)
    assert "lr  decay" in narrow
    assert "hidden" not in narrow


def test_hyperparameters_called_like_another_column_are_shown_beside_it() -> None:
    params = {"rate": 0.1, "epochs": 3, f"{'a' * 20}1": 4, f"{'a' * 20}1{'a' * 9}1": 5}
    of_program = dataclasses.replace(record(0, (9.0, 1.0)), params=params)
    head, row = shown(look(of_program), width=120, color_system=None).splitlines()[1:3]
    assert "epochs'" in head
    assert {"0.1", "3", "4", "5"} < set(row.split())


def test_without_colours_nothing_is_said_in_colour_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    text = shown(FULL)
    assert not any(f"\x1b[{code}m" in text for code in (31, 32, 33, 36, 91, 92))
    assert "failed" in text


def test_low_terminals_get_the_ends_of_a_long_front() -> None:
    long = look(*(record(i, (float(i + 1), 10.0 - i)) for i in range(10)))
    text = shown(long, height=9, color_system=None)
    assert "2 of 10 shown" in text
    assert "    0   1.000   10.0000" in text
    assert "    9  10.000    1.0000" in text


def test_a_study_that_has_just_begun_says_so() -> None:
    text = shown(look(running=0), color_system=None)
    assert "no finished trial yet" in text
    assert "left" not in text


def test_times_that_a_limit_cut_are_named() -> None:
    assert "nothing converged yet" in shown(look(record(0, (9.0, 1.0), converged=False)))


@pytest.mark.parametrize(
    ("values", "width", "line"),
    [
        ([1, 2, 3, 4, 5, 6, 7, 8], 8, "▁▂▃▄▅▆▇█"),
        (range(100), 4, "▁▃▆█"),
        ([3, 3, 3], 8, "▁▁▁"),
        ([1, None, float("nan"), 2], 8, "▁  █"),
        ([None], 8, ""),
        ([], 8, ""),
    ],
)
def test_a_sparkline_spans_its_values(values: Any, width: int, line: str) -> None:
    assert sparkline(list(values), width=width) == line


def test_a_plain_sparkline_needs_no_unicode() -> None:
    assert sparkline([1, 2, 3], width=3, plain=True).isascii()


@pytest.mark.parametrize(
    ("seconds", "words"), [(42, "42 s"), (600, "10 min"), (12_000, "3 h 20 min")]
)
def test_durations_are_said_as_people_say_them(seconds: float, words: str) -> None:
    assert duration(seconds) == words
