"""What a program does wrong is its trial's failure, in a line, and harms nobody else."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import pytest
from optuna.trial import TrialState

from tests.support.programs import failure_of, program_job, trained
from tuner.trial.program import program_process

pytestmark = pytest.mark.usefixtures("impatient")

WRONG = {
    "nothing": ("", "it ended without an epoch (exit code 0, 0 epochs told)"),
    "no values": ("epoch(1, .5)", "without final values (exit code 0, 1 epochs told)"),
    "a crash": ("epoch(1, .5); raise SystemExit(3)", "without final values (exit code 3"),
    "an exception": (
        "epoch(1, .5); raise ValueError('too cold')  # raise SystemExit",
        "without final values (exit code 1, 1 epochs told); it printed last: ValueError: too cold",
    ),
    "a signal": ("os.kill(os.getpid(), 11)", "without an epoch (SIGSEGV"),
    "a crash after its values": (
        "epoch(1, .5); say(final={'test_mql': 1}); report.close(); raise SystemExit(4)",
        "ended with exit code 4 all the same",
    ),
    "rubbish": ("write('Epoch 1/3 loss nan \\x1b[31m')", "no line of JSON"),
    "a list": ("write('[1, 2]')", "expected a table"),
    "a deep nest": ("write('[' * 60000)", "no line of JSON"),
    "a long line": ("write('x' * 70000)", "a line of more than 64 KiB"),
    "a text for a loss": ("say(epoch=1, train_loss='low', val_loss=1)", "train_loss"),
    "a key too many": (
        "say(epoch=1, train_loss=1, val_loss=1, mae=2)",
        "mae is unknown; expected some of epoch, train_loss, val_loss, learning_rate",
    ),
    "a misspelt value": (
        "say(final={'test_loss': 1})",
        "final.test_loss is unknown; expected some of test_mql, val_mql, converged, epochs",
    ),
    "a key twice": (
        """write('{"epoch": 1, "train_loss": 1, "val_loss": 1, "val_loss": 2}')""",
        "which says val_loss twice",
    ),
    "half a line": (
        """epoch(1, .5); report.write('{"final": {"test_m'); report.close(); raise SystemExit""",
        "without final values (exit code 0, 1 epochs told)",
    ),
    "an epoch twice": ("epoch(1, .5); epoch(1, .5)", "told epoch 1 after epoch 1"),
    "an epoch too many": ("[epoch(n, .5) for n in range(1, 9)]", "went on after epoch 5"),
    "an epoch of nowhere": ("epoch(3, .5)", "its first epoch is 3"),
    "other values": ("epoch(1, .5); say(final={'val_mql': 1})", "its final values lack test_mql"),
    "a clock of its own": (
        "say(epoch=1, train_loss=1, val_loss=1, elapsed_s=0.1)",
        'its study file says clock = "process"',
    ),
    "no time": (
        (
            "lines = [{'started': True}, {'epoch': 1, 'train_loss': 1, 'val_loss': 1}]\n"
            "lines.append({'final': {'test_mql': 1}})\n"
            "write('\\n'.join(map(json.dumps, lines))); report.close(); raise SystemExit"
        ),
        "its clock says 0 s: say started before the first epoch, and flush after each line",
    ),
    "an error below 0": (
        (
            "time.sleep(.1); epoch(1, .5); say(final={'test_mql': -1})\n"
            "report.close(); raise SystemExit"
        ),
        "its final test_mql is -1; expected an error, which is above 0",
    ),
    "silence": ("time.sleep(9)", "it hung: it told nothing for 0.4 s"),
    "a gigabyte": (
        "w = open(1, 'wb')\nwhile True: w.write(b'x' * (1 << 20))",
        "printed more than 32 MiB",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_a_program_does_wrong_is_its_trials_failure(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program_process, "PRINTED_BYTES", 32 << 20)
    text, said = WRONG[what]
    ends = "raise SystemExit" in text
    hangs = "" if ends or "exit" in said or "lack" in said or "SIG" in said else "\ntime.sleep(9)"
    text = f"def write(line): print(line, file=report, flush=True)\n{text}{hangs}"
    process = "silence_s = 0.4" if what == "silence" else ""
    began = time.monotonic()
    assert said in failure_of(program_job(tmp_path, text, process=process))
    assert time.monotonic() - began < 5


def test_a_program_that_cannot_be_started_says_so_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = program_job(tmp_path)
    assert job.definition.program is not None
    program = job.definition.program.model_copy(update={"command": ("./no-such-program",)})
    job = dataclasses.replace(
        job, definition=dataclasses.replace(job.definition, program=program, model_source=None)
    )
    assert "exit code 127" in failure_of(job)
    assert "./no-such-program cannot be started: No such file or directory" in caplog.text


def test_a_loss_that_is_none_has_diverged(tmp_path: Path) -> None:
    result = trained(program_job(tmp_path, "epoch(1, float('nan')); time.sleep(9)"))
    assert result is not None
    assert (result.state, result.recorded.stopped_by) == (TrialState.FAIL, "diverged")
    final = trained(program_job(tmp_path, "epoch(1, .5); say(final={'test_mql': float('inf')})"))
    assert final is not None
    assert (final.state, final.recorded.stopped_by) == (TrialState.FAIL, "diverged")


def test_a_last_line_may_lack_its_end(tmp_path: Path) -> None:
    text = """
    epoch(1, .5)
    report.write('{"final": {"test_mql": 0.25}}')
    """
    result = trained(program_job(tmp_path, text))
    assert result is not None
    assert (result.state, result.recorded.test_mql) == (TrialState.COMPLETE, 0.25)


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ("epoch(1, .5); epoch(2, math.nan)", "in epoch 2 it told train_loss nan and val_loss nan"),
        ("epoch(1, .5); say(final={'test_mql': math.inf})", "its final values are no numbers"),
    ],
)
def test_what_has_diverged_is_said(told: str, said: str, tmp_path: Path) -> None:
    result = trained(program_job(tmp_path, f"import math\n{told}"))
    assert result is not None
    assert (result.state, result.recorded.stopped_by) == (TrialState.FAIL, "diverged")
    assert said in (result.recorded.failure or "")
