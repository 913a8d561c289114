"""A program that was interrupted, or killed, goes on from its checkpoint, with its clock."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import TrialState

from tests.support.programs import failure_of, heard_by, program_job, trained
from tuner.config import EpochRecord, StopReason
from tuner.devices import Observation
from tuner.storage.records import TrialResult
from tuner.trial.program import run_program

pytestmark = pytest.mark.usefixtures("impatient")

RESUMABLE = """
mine = os.path.join(told["checkpoint_folder"], "epoch")
done = int(open(mine).read()) if os.path.exists(mine) else 0
open("starts", "a").write(f"{done} {told['resume']}\\n")
say(started=True)
for number in range(done + 1, 6):
    time.sleep(0.05)
    epoch(number, 1 / number)
    open(mine, "w").write(str(number))
say(final={"test_mql": .5})
"""


def interrupted_after(last: int, tmp_path: Path, text: str) -> list[EpochRecord]:
    """The epochs of an attempt that is interrupted after epoch `last`."""
    told: list[EpochRecord] = []
    job = program_job(
        tmp_path,
        text,
        folder=tmp_path / "checkpoints",
        should_stop=lambda: StopReason.INTERRUPTED if len(told) >= last else None,
        **heard_by(told),
    )
    assert trained(job) is None
    return told


def continued(tmp_path: Path, text: str, **changes: Any) -> TrialResult:
    result = trained(program_job(tmp_path, text, folder=tmp_path / "checkpoints", **changes))
    assert result is not None
    return result


def test_a_program_with_a_checkpoint_goes_on_with_its_clock(tmp_path: Path) -> None:
    wait = "if number == 3 and not done: time.sleep(60)\n    time.sleep(0.3 if done < 2 else 0.05)"
    text = RESUMABLE.replace("time.sleep(0.05)", wait)
    curves: list[int] = []
    first = interrupted_after(2, tmp_path, text)
    result = continued(tmp_path, text, on_curve=lambda records, _: curves.append(len(records)))
    recorded = result.recorded
    assert (recorded.epochs, recorded.resumed_from_epoch) == (5, 2)
    assert curves == [2]
    assert recorded.wall_clock_s is not None
    assert first[1].elapsed_s + 0.14 < recorded.wall_clock_s < first[1].elapsed_s + 0.6
    starts = (tmp_path / "starts").read_text().splitlines()
    assert starts[0] == "0 None"
    assert starts[1].startswith("2 {'epoch': 2, 'elapsed_s': ")
    assert recorded.timed_earlier is not None
    assert len(recorded.timed_earlier) == 1


def test_a_checkpoint_of_an_earlier_epoch_has_the_clock_of_that_epoch(tmp_path: Path) -> None:
    """It keeps the first of three epochs: what the two after it took is spent again, once."""
    # Never 0: lines that come all at once, as on a busy machine, have no clock.
    waits = "time.sleep(0.1 if done or number == 1 else 60 if number == 4 else 1)"
    text = RESUMABLE.replace(
        '    open(mine, "w")', '    if number == 1 or done: open(mine, "w")'
    ).replace("time.sleep(0.05)", waits)
    first = interrupted_after(3, tmp_path, text)
    told: list[EpochRecord] = []
    result = continued(tmp_path, text, **heard_by(told))
    assert result.recorded.resumed_from_epoch == 1
    assert [record.epoch for record in told] == [2, 3, 4, 5]
    assert told[0].elapsed_s - first[0].elapsed_s < 1 < first[1].elapsed_s - first[0].elapsed_s


def test_a_device_that_was_shared_before_the_interruption_spoils_the_timing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Looks:
        seen = Observation(contaminated=True, why="others used 40%")

        def __init__(self, *_: object, **__: object) -> None:
            """Of any device."""

        def clock_starts(self) -> None:
            """Nothing counts joules."""

        def finish(self) -> Observation:
            return self.seen

    monkeypatch.setattr(run_program, "Watch", Looks)
    text = RESUMABLE.replace("(0.05)", "(60 if number == 3 and not done else 0.01)")
    interrupted_after(2, tmp_path, text)
    monkeypatch.setattr(Looks, "seen", Observation(contaminated=False, why=""))
    recorded = continued(tmp_path, text).recorded
    assert recorded.resumed_from_epoch == 2
    assert (recorded.contaminated, recorded.contamination) == (True, "others used 40%")


@pytest.mark.parametrize(("says", "starts"), [(", 'epochs': 5", 2), ("", 3)])
def test_who_was_interrupted_after_its_last_epoch_says_so_or_begins_anew(
    says: str, starts: int, tmp_path: Path
) -> None:
    hang = "if not done: time.sleep(60)\nsay(final={'test_mql': .5" + says + "})"
    text = RESUMABLE.replace("sleep(0.05)", "sleep(0.01)").partition("say(final")[0]
    hang = hang.replace("not done", "len(open('starts').readlines()) == 1")
    first = interrupted_after(5, tmp_path, text + hang)
    recorded = continued(tmp_path, text + hang).recorded
    assert recorded.epochs == 5
    assert recorded.resumed_from_epoch == (5 if says else None)
    assert (recorded.wall_clock_s == first[-1].elapsed_s) == bool(says)
    assert len((tmp_path / "starts").read_text().splitlines()) == starts


def test_a_program_without_a_checkpoint_begins_anew_with_its_clock(tmp_path: Path) -> None:
    text = """
    open("starts", "a").write("one\\n")
    for number in (1, 2, 3):
        if number == 3 and len(open("starts").readlines()) == 1: time.sleep(60)
        epoch(number, .5)
    say(final={"test_mql": 1})
    """
    interrupted_after(2, tmp_path, text)
    recorded = continued(tmp_path, text).recorded
    assert (recorded.epochs, recorded.resumed_from_epoch) == (3, None)


def test_a_checkpoint_ahead_of_what_was_told_is_not_gone_on_with(tmp_path: Path) -> None:
    """A kill between the checkpoint and the line of its epoch: the clock of that epoch is lost."""
    text = RESUMABLE.replace(
        "    epoch(number, 1 / number)\n",
        "    open(mine, 'w').write(str(number))\n"
        "    if number == 3 and not os.path.exists('hung'): open('hung', 'w'); time.sleep(60)\n"
        "    epoch(number, 1 / number)\n",
    )
    hung: Callable[[], bool] = (tmp_path / "hung").exists
    job = program_job(
        tmp_path,
        text,
        folder=tmp_path / "checkpoints",
        should_stop=lambda: StopReason.INTERRUPTED if hung() else None,
    )
    assert trained(job) is None
    result = continued(tmp_path, text)
    assert (result.state, result.recorded.resumed_from_epoch) == (TrialState.COMPLETE, None)
    assert [line[0] for line in (tmp_path / "starts").read_text().splitlines()] == ["0", "3", "0"]


def test_what_differs_is_not_gone_on_with(tmp_path: Path) -> None:
    text = RESUMABLE.replace("(0.05)", "(0.05 if number < 3 else 0.5)")
    interrupted_after(2, tmp_path, text)
    result = continued(tmp_path, text, study_key="another", max_epochs=5)
    assert result.recorded.resumed_from_epoch is None


def test_a_program_that_was_killed_goes_on_once(tmp_path: Path) -> None:
    text = RESUMABLE.replace(
        "    epoch(number, 1 / number)\n",
        "    epoch(number, 1 / number)\n    if number == KILLS: os.kill(os.getpid(), 9)\n",
    )
    once = text.replace("KILLS", "3 and done == 0")
    result = trained(program_job(tmp_path / "a", once, folder=tmp_path / "checkpoints"))
    assert result is not None
    assert (result.state, result.recorded.resumed_from_epoch) == (TrialState.COMPLETE, 2)
    assert "it was killed (SIGKILL)" in failure_of(
        program_job(tmp_path / "b", text.replace("KILLS", "3"), folder=tmp_path / "checkpoints")
    )


def test_the_values_of_a_program_that_was_killed_after_them_count(tmp_path: Path) -> None:
    for whom in ("os.getpid()", "os.getppid()"):
        text = f"{RESUMABLE}\nreport.close(); time.sleep(.2); os.kill({whom}, 9); time.sleep(60)\n"
        result = trained(program_job(tmp_path / f"of {whom}", text, folder=tmp_path / whom))
        assert result is not None
        assert (result.state, result.recorded.epochs) == (TrialState.COMPLETE, 5)
        assert len((tmp_path / f"of {whom}" / "starts").read_text().split("\n")) == 2, "one attempt"
