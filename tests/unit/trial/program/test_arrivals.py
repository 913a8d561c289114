"""When a program's lines came: by a thread that does nothing else, whatever whoever trains is at.
And nothing of it is left, also where no program could be started."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.programs import HEAD, heard_by, program_job, trained
from tuner.config import EpochRecord
from tuner.trial.program import program_process
from tuner.trial.program.program_guard import PENDING_BYTES
from tuner.trial.program.program_process import ProgramError, ProgramProcess


@pytest.fixture(autouse=True)
def _nothing_is_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No descriptor, no thread, no file."""
    monkeypatch.setattr(program_process, "ASKED_S", 0.2)
    (tmp_path / "between").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "between"))
    before = descriptors(), threading.active_count()
    yield
    assert (descriptors(), threading.active_count()) == before
    assert not list((tmp_path / "between").iterdir())


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def process_of(tmp_path: Path, text: str) -> ProgramProcess:
    (tmp_path / "train.py").write_text(HEAD + text)
    return ProgramProcess([sys.executable, "train.py"], tmp_path, {}, None)


def lines_of(running: ProgramProcess, **slow: float) -> list[tuple[bytes, float]]:
    found = []
    for said in running.lines():
        if said is not None:
            found.append(said)
            time.sleep(slow.get("each_s", 0.0))
    return found


STAMPED = """
for number in range(8):
    time.sleep(0.02)
    say(at=time.perf_counter())
"""


def test_a_line_has_the_moment_at_which_it_came_however_late_it_is_read(tmp_path: Path) -> None:
    """Whoever trains writes to a slow disk, a slow database."""
    import json

    with process_of(tmp_path, STAMPED) as running:
        found = lines_of(running, each_s=0.1)
    late = [moment - json.loads(line)["at"] for line, moment in found]
    assert len(late) == 8
    assert min(late) >= 0
    assert sorted(late)[4] < 0.02, late


def test_an_epochs_time_does_not_hold_what_is_done_with_those_before_it(tmp_path: Path) -> None:
    text = """
    say(started=True)
    for number in (1, 2, 3, 4):
        time.sleep(0.05)
        epoch(number, .5)
    say(final={"test_mql": 1})
    """
    epochs: list[EpochRecord] = []

    def slowly(record: EpochRecord, _repeat: int) -> None:
        epochs.append(record)
        time.sleep(0.3)

    assert trained(program_job(tmp_path, text, on_epoch=slowly)) is not None
    assert 0.19 < epochs[-1].elapsed_s < 0.3


def test_who_reads_late_takes_nobody_for_silent(tmp_path: Path) -> None:
    text = """
    say(started=True)
    for number in (1, 2, 3, 4, 5):
        time.sleep(0.1)
        epoch(number, .5)
    say(final={"test_mql": 1})
    """
    job = program_job(
        tmp_path,
        text,
        process="silence_s = 0.4",
        on_epoch=lambda record, _repeat: time.sleep(0.5 if record.epoch == 1 else 0.0),
    )
    result = trained(job)
    assert result is not None
    assert result.recorded.epochs == 5, result.recorded.failure


def test_lines_that_nobody_has_read_yet_do_not_pile_up(tmp_path: Path) -> None:
    """The program waits, as it would with any pipe that is full."""
    text = """
    for number in range(20000): print(json.dumps("x" * 1000), file=report)
    report.flush()
    open("done", "w").close()
    """
    with process_of(tmp_path, textwrap.dedent(text)) as running:
        lines = running.lines()
        next(lines)
        time.sleep(1.0)
        assert not (tmp_path / "done").exists()
        assert PENDING_BYTES < psutil.Process(running.pid).memory_info().rss < 60 << 20
        assert sum(said is not None for said in lines) > 19_900
        assert (tmp_path / "done").exists()


@pytest.mark.parametrize("what", ["Popen", "mkfifo"])
def test_a_program_that_cannot_be_started_leaves_no_descriptor(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where: Any = subprocess if what == "Popen" else os
    calls: list[None] = []

    def refused(*words: Any, **named: Any) -> Any:
        calls.append(None)
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(where, what, refused)
    with (
        pytest.raises(ProgramError, match="cannot be started: Resource temporarily unavailable"),
        process_of(tmp_path, ""),
    ):
        pass
    assert calls


@pytest.mark.parametrize("end", ["", "os.kill(os.getppid(), 9)\ntime.sleep(60)", "time.sleep(60)"])
def test_a_run_leaves_no_descriptor_and_no_thread_however_it_ends(end: str, tmp_path: Path) -> None:
    with process_of(tmp_path, "say(a=1)\n" + end) as running:
        for said in running.lines():
            if said is not None and end == "time.sleep(60)":
                break


def test_what_whoever_trains_raises_ends_the_program_and_its_reader(tmp_path: Path) -> None:
    def fails(_record: EpochRecord, _repeat: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trained(program_job(tmp_path, "epoch(1, .5)\ntime.sleep(60)", on_epoch=fails))


def test_epochs_are_told_in_their_order(tmp_path: Path) -> None:
    epochs: list[EpochRecord] = []
    text = "say(started=True)\nfor n in range(1, 6): time.sleep(.005); epoch(n, 1 / n)\n"
    job = program_job(tmp_path, text + "say(final={'test_mql': 1})", **heard_by(epochs))
    assert trained(job) is not None
    assert [each.epoch for each in epochs] == [1, 2, 3, 4, 5]
    times = [each.elapsed_s for each in epochs]
    assert times == sorted(times)
