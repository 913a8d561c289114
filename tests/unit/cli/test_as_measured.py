"""A profile that is stopped: what was measured by then is shown, and no half of a file is left."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tuner.cli import main
from tuner.profile.profile_records import (
    ADVICE,
    MEMORY,
    OPERATIONS,
    AtBatch,
    Pace,
    Profile,
    Stages,
    Tell,
)
from tuner.training.stage_marks import Stage

FIRST = Profile(
    subject="original",
    device="a CPU",
    settings={},
    pace=Pace(batch_size=8, windows=80, step_s=0.01, epoch_s=0.1),
    stages=Stages(seconds={Stage.FORWARD: 0.1}, how="by a clock", difference=0.0),
    bottleneck="Forward takes 100% of an epoch.",
    left=(OPERATIONS, MEMORY, ADVICE),
)
ROW = AtBatch(batch_size=8, peak_bytes=1, step_s=0.01)
TRACE = Path(".trace.json.partial")


@pytest.fixture
def stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[object, str, str]]:
    """Runs `tuner profile`, whose measuring is something else: code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def run(measure: Callable[[Tell], None], *words: str) -> tuple[object, str, str]:
        monkeypatch.setattr("tuner.cli.profile._of_variant", lambda _options, tell: measure(tell))
        with pytest.raises(SystemExit) as ended:
            main(["profile", "--variant", "original", "--trace", "trace.json", *words])
        shown = capsys.readouterr()
        return ended.value.code, shown.out, shown.err

    return run


def test_a_signal_leaves_what_was_measured(
    stopped: Callable[..., tuple[object, str, str]], tmp_path: Path
) -> None:
    for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):

        def measure(tell: Tell, number: int = number) -> None:
            TRACE.write_text("half of it", encoding="utf-8")
            tell(FIRST)
            os.kill(os.getpid(), number)

        ended, out, err = stopped(measure, "--json")
        assert ended == code
        assert json.loads(out)["not_measured"] == list(FIRST.left)
        assert json.loads(out)["bottleneck"] == FIRST.bottleneck
        assert err == "tuner: trace.json was not written: the profile was stopped before\n"
        assert list(tmp_path.iterdir()) == []


def test_a_profile_that_is_stopped_has_shown_each_table_before(
    stopped: Callable[..., tuple[object, str, str]], tmp_path: Path
) -> None:
    def measure(tell: Tell) -> None:
        TRACE.write_text("{}", encoding="utf-8")
        tell(FIRST)
        tell(replace(FIRST, memory=(ROW,), left=(ADVICE,)))
        os.kill(os.getpid(), signal.SIGINT)

    ended, out, _ = stopped(measure)
    assert ended == 130
    assert [out.count(title) for title in ("original on a CPU", "Memory against batch")] == [1, 1]
    assert out.index("Memory against batch") < out.index(FIRST.bottleneck)
    assert out.endswith("stopped before it was measured to its end: advice\n")
    assert [path.name for path in tmp_path.iterdir()] == ["trace.json"]
