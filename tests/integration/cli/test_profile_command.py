"""`tuner profile` as people run it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.support.forked_cli import run
from tests.support.paths import REPOSITORY
from tuner.cli import profile as command
from tuner.cli.replace import is_profile_page, is_trace
from tuner.cli.run import run as run_here
from tuner.profile.profile_records import Pace, Profile, Stages, Tell

STUDIES = REPOSITORY / "studies"
TINY = ("profile", "--task", "demo", "--cpu", "--steps", "12", "--no-advice")


@pytest.mark.usefixtures("one_core")
def test_a_variant_is_profiled_into_a_document_a_page_and_a_trace(tmp_path: Path) -> None:
    sizes = ("--variant", "original", "--set", "hidden_size=8", "--set", "batch_size=200")
    files = ("--html", "page.html", "--trace", "trace.json")
    (tmp_path / "trace.json").symlink_to("kept.json")
    done = run(*TINY, *sizes, *files, "--json", folder=tmp_path)
    assert done.code == 0, done.err
    assert (tmp_path / "trace.json").is_symlink()
    found = done.json()
    assert found["settings"]["batch_size"] == 200
    assert found["settings"]["hidden_size"] == 8
    assert abs(sum(found["stages"]["seconds"].values()) / found["pace"]["epoch_s"] - 1) < 0.05
    assert "<svg" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert is_profile_page(tmp_path / "page.html")  # and may be written again
    assert is_trace(tmp_path / "trace.json")


def own(folder: Path, body: str) -> str:
    """A class of one's own with this forward pass."""
    (folder / "own.py").write_text(
        "import torch\nfrom torch import nn\n\n\nclass Own(nn.Module):\n"
        "    def __init__(self, shapes, *, hidden_size, dropout):\n"
        "        super().__init__()\n"
        "        self.shapes = shapes\n"
        f"{body}",
        encoding="utf-8",
    )
    return "own.py:Own"


FORECAST = """        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, past, future, static):
        shape = (len(past), self.shapes.horizon, self.shapes.n_targets, self.shapes.n_quantiles)
        return past.new_zeros(shape) + self.scale * {factor}
"""

LATE = """
    def late(self):
        self.calls = getattr(self, "calls", 0) + 1
        if self.calls > 30:
            raise IndexError("beyond")
        return 1.0
"""


@pytest.mark.usefixtures("one_core")
def test_a_network_whose_loss_is_no_number_is_profiled_and_named(tmp_path: Path) -> None:
    variant = own(tmp_path, FORECAST.format(factor="float('nan')"))
    done = run(*TINY, "--variant", variant, "--json", folder=tmp_path)
    assert done.code == 0, done.err
    notes = done.json()["notes"]
    assert notes[0] == "the validation loss is no finite number: nothing is learnt here"


@pytest.mark.usefixtures("one_core")
def test_a_fault_that_comes_late_is_one_line_with_its_place(tmp_path: Path) -> None:
    body = FORECAST.format(factor="self.late()") + LATE
    variant = own(tmp_path, body)
    done = run(*TINY, "--variant", variant, folder=tmp_path)
    assert done.code == 1
    assert "own.py, line 18: IndexError: beyond" in done.error
    assert "Traceback" not in done.err


@pytest.mark.usefixtures("one_core")
def test_a_network_without_parameters_is_refused(tmp_path: Path) -> None:
    body = FORECAST.format(factor="1.0").replace("nn.Parameter(torch.ones(()))", "1.0")
    done = run(*TINY, "--variant", own(tmp_path, body), folder=tmp_path)
    assert done.code == 2
    assert "has no parameters that could be trained" in done.error


@pytest.mark.usefixtures("one_core")
def test_what_a_study_file_says_of_its_training_is_what_is_profiled(tmp_path: Path) -> None:
    text = (STUDIES / "simple.toml").read_text(encoding="utf-8")
    mine = text.replace("[training]\n", '[training]\nprecision = "bf16"\n', 1)
    assert mine != text
    (tmp_path / "mine.toml").write_text(mine, encoding="utf-8")
    sizes = ("--variant", "mine.toml", "--set", "hidden_size=32")
    files = ("--trace", "new/trace.json")
    done = run(*TINY, *sizes, *files, "--json", folder=tmp_path)
    assert done.code == 0, done.err
    assert done.json()["settings"]["precision"] == "bf16"
    assert is_trace(tmp_path / "new" / "trace.json")
    assert [each.name for each in (tmp_path / "new").iterdir()] == ["trace.json"]
    plain = run(*TINY, *sizes, "--precision", "fp32", "--json", folder=tmp_path)
    assert plain.json()["settings"]["precision"] == "fp32"


MEASURED, PATIENCE_S = 20, 60.0
PACE = Pace(batch_size=8, windows=80, step_s=0.1, epoch_s=1.0)
STAGES = Stages(seconds={}, how="by nobody", difference=0.0)


def test_its_time_over_what_there_is_is_kept(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def slow(options: object, tell: Tell) -> None:
        if options.steps > MEASURED:  # type: ignore[attr-defined]
            tell(Profile(subject="it", device="a CPU", settings={}, pace=PACE, stages=STAGES))
        time.sleep(PATIENCE_S)

    monkeypatch.setattr(command, "_of_variant", slow)
    asked = ["profile", "--variant", "original", "--cpu", "--timeout", "0.2s"]
    assert run_here([*asked, f"--steps={MEASURED + 1}"]) == 0
    assert "it on a CPU" in capsys.readouterr().out
    assert run_here([*asked, f"--steps={MEASURED}"]) == 1
    assert "--timeout: nothing was measured by then" in capsys.readouterr().err
