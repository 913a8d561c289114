"""`tuner variants --check neuralforecast`, and the check of one class, on a small task."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.small_csv import TASK, csv_lines
from tuner.cli.variants import variants
from tuner.models.of_neuralforecast import library_source


@pytest.fixture
def task(tmp_path: Path) -> str:
    (tmp_path / "small.csv").write_text("".join(f"{line}\n" for line in csv_lines(60)))
    text = TASK.replace("[source]", 'calendar = ["hour"]\n\n[source]')
    (tmp_path / "small.toml").write_text(text)
    return str(tmp_path / "small.toml")


@pytest.fixture
def of_four(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("NLinear", "TSMixerx", "HINT", "DeepNPTS")
    monkeypatch.setattr(library_source, "model_names", lambda: names)


@pytest.mark.usefixtures("of_four")
def test_each_class_is_trained_a_step_or_says_in_a_line_why_not(
    task: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert variants(check="neuralforecast", task=task, json=True) == 0
    found = json.loads(capsys.readouterr().out)
    rows = {row.pop("name"): row for row in found["models"]}
    assert list(rows) == ["DeepNPTS", "HINT", "NLinear", "TSMixerx"]
    assert rows["DeepNPTS"]["why_not"] == (
        "building it failed: DeepNPTS only supports point loss functions (MAE, MSE, etc) as loss "
        "function."
    )
    assert rows["HINT"]["why_not"] == (
        "is no network: it reconciles the forecasts of one; name that one"
    )
    assert rows["HINT"]["parameters"] is None
    assert found["shapes"]["n_future"] == 2
    kinds = ("multivariate", "past", "future", "static")
    assert [rows["NLinear"][kind] for kind in kinds] == [False] * 4
    assert [rows["TSMixerx"][kind] for kind in kinds] == [True] * 4
    for name in ("NLinear", "TSMixerx"):
        assert rows[name]["why_not"] is None
        assert rows[name]["step_s"] > 0
        assert rows[name]["remarks"] == []
    # A layer from 6 hours onto 2 of 17 quantiles; weight and bias of the norm, for 2 targets.
    assert rows["NLinear"]["parameters"] == (6 + 1) * 2 * 17 + 2 * 2


@pytest.mark.usefixtures("of_four")
def test_a_table_says_the_same(task: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert variants(check="neuralforecast", task=task) == 0
    shown = capsys.readouterr()
    assert shown.out.splitlines()[-1] == "2 of 4 work; each forecasts all 17 quantiles"
    assert "does not work" in " ".join(shown.out.split())
    assert "tuner: 4 of 4: TSMixerx" in shown.err.splitlines()


def test_the_check_of_one_class_says_which_covariates_are_left_out(
    task: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert variants(check="neuralforecast:NLinear", task=task, json=True) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["model"] == "neuralforecast:NLinear"
    assert found["unused_methods"] == []
    assert found["notices"] == [
        "neuralforecast:NLinear does not take the task's 2 future covariates: they are left out"
    ]
