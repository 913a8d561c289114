"""`tuner variants --check` of a class of the user's: it says that it works only where a launch
would take it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.forked_cli import run
from tests.support.own_classes import OWN, check
from tests.support.refusals import refused


@pytest.fixture
def own(tmp_path: Path) -> Path:
    (tmp_path / "own.py").write_text(OWN, encoding="utf-8")
    return tmp_path


def test_a_class_that_cannot_be_trained_does_not_work(own: Path) -> None:
    said = refused_line(own, "Detached", 2)
    assert (
        "one training step on 32 windows failed: RuntimeError: element 0 of tensors does not "
        "require grad" in said
    )


@pytest.mark.parametrize(
    ("name", "shape"), [("OneForAll", "(1, 6, 3, 17)"), ("OneHour", "(32, 1, 3, 17)")]
)
def test_a_forecast_that_would_be_stretched_does_not_work(own: Path, name: str, shape: str) -> None:
    said = refused_line(own, name, 2)
    assert f"the network returned {shape} for a batch of 32; expected" in said
    assert "(32, 6, 3, 17)" in said


def test_what_is_printed_in_any_way_is_not_in_the_document(own: Path) -> None:
    done = run(*check(own, "Prints", "--json"), folder=own)
    assert json.loads(done.out)["model"].endswith("own.py:Prints")
    assert "by a program" in done.err
    assert "by itself" in done.err


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Ends", "the check of its network ended without an answer"),
        ("Dies", "the check of its network was ended by SIGKILL"),
    ],
)
def test_a_class_that_ends_its_process_is_refused_by_a_launch(
    own: Path, name: str, said: str
) -> None:
    refused(
        "launch",
        f"--variant=own.py:{name}",
        "--task=demo",
        "--cpu",
        folder=own,
        code=1,
        says=(said,),
    )


def test_a_loss_that_is_no_number_does_not_work(own: Path) -> None:
    assert "the loss of its first 32 windows is nan" in refused_line(own, "NotANumber", 1)


def test_what_takes_no_part_and_what_waits_for_a_gpu_is_a_notice_each(own: Path) -> None:
    done = run(*check(own, "Strange", "--json"), folder=own)
    assert done.code == 0, done.err
    found = done.json()
    assert found["dead_parameters"] == [{"name": "unused.weight", "shape": [64, 64]}]
    assert found["constant_forecasts"]["quantiles"] == [0.01]
    assert found["ignored_inputs"] == ["future covariates", "static covariates"]
    line = 1 + OWN.split("\n").index("        if out.mean() > 0:")
    assert found["waits"] == [{"where": f"own.py, line {line}", "what": "a tensor as a condition"}]
    assert len(found["notices"]) == 4
    said = [each for each in run(*check(own, "Strange"), folder=own).lines if "Strange: " in each]
    assert len(said) == 4
    assert "Strange: parameter unused.weight (64 x 64) never gets a gradient: " in said[0]


@pytest.mark.parametrize(("name", "told"), [("Centred", 1), ("Noisy", 0)])
def test_a_forecast_that_depends_on_the_others_of_its_batch_is_a_notice(
    own: Path, name: str, told: int
) -> None:
    found = run(*check(own, name, "--json"), folder=own).json()
    assert (found["moved_by_others"] > 0.01) == bool(told)
    said = [each for each in found["notices"] if "depends on the others of its batch" in each]
    assert len(said) == told


def test_nothing_is_said_of_a_built_in_network(tmp_path: Path) -> None:
    done = run("variants", "--check", "rmsnorm", "--task", "demo", "--json", folder=tmp_path)
    found = done.json()
    assert found["notices"] == []
    assert found["waits"] == found["dead_parameters"] == found["ignored_inputs"] == []
    assert found["start"]["against"] == "original"
    last = found["start"]["layers"][-1]
    assert last["layer"]["name"] == last["reference"]["name"] == "forecast"
    assert (len(last["layer"]["spreads"]), last["differs"]) == (5, False)


def test_a_class_is_held_against_the_variant_that_it_is_a_rewrite_of(own: Path) -> None:
    done = run(*check(own, "Centred", "--against=original"), folder=own)
    assert done.code == 0, done.err
    assert "untrained, from 5 seeds: loss " in done.out
    assert " starts with " in done.out
    shown = [line for line in done.out.splitlines() if "forecast" in line]
    assert len(shown) == 1
    refused("variants", "--against=original", folder=own, code=2, says=("--against", "--check"))


def test_a_network_larger_than_the_memory_is_refused_before_it_takes_any(own: Path) -> None:
    """Ten million times a million weights: 160,000 GB with gradients and moments."""
    said = refused_line(own, "Huge", 1)
    assert "Huge needs about 160,000 GB for its parameters and their optimiser, " in said
    assert " GB are free: choose a smaller hidden_size" in said
    said = refused_line(own, "Scratch", 1)
    assert "Scratch needs more than " in said
    assert " GB to be built, " in said


def test_a_step_that_the_memory_does_not_hold_is_said_to_be_that(own: Path) -> None:
    said = refused_line(own, "Hungry", 1)
    assert "Hungry: one training step on 32 windows needs more memory than there is (" in said


def test_an_exception_in_a_class_of_ones_own_comes_with_its_file_and_line(own: Path) -> None:
    number = 1 + OWN.split("\n").index("        return undefined_name")
    said = refused_line(own, "Mistyped", 2)
    assert f"own.py, line {number}: NameError: name 'undefined_name' is not defined" in said


def refused_line(folder: Path, name: str, code: int) -> str:
    done = run(*check(folder, name), folder=folder)
    assert done.code == code, done.err
    return done.error
