"""What a launch is asked of a training: flags over the study file, and bad mixes before anything is
written.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.small_study import STUDY_TOML
from tuner.config import Backend, CompileMode, Precision
from tuner.errors import UsageError
from tuner.launch.plan import make_aim, trained_with
from tuner.launch.request import DeviceChoice, LaunchRequest
from tuner.spec.policy import StudySettings
from tuner.spec.study_file import load_study_file


@pytest.fixture
def variant(tmp_path: Path) -> str:
    path = tmp_path / "small.toml"
    path.write_text(f"{STUDY_TOML}accumulate = 2\nvalidate_every = 5\n", encoding="utf-8")
    return str(path)


def test_what_is_said_counts_and_the_rest_is_the_study_files(variant: str) -> None:
    file = load_study_file(variant)
    found = trained_with(file, StudySettings(accumulate=8, precision=Precision.FP16))
    assert (found.accumulate, found.validate_every, found.precision) == (8, 5, Precision.FP16)
    assert trained_with(file, StudySettings()) == file.training
    assert trained_with(file, StudySettings(checkpoint_activations=False)) == (file.training)


BAD: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "checkpoints in a capture": (
        {"checkpoint_activations": True, "backend": Backend.GRAPH},
        ("checkpoint_activations", "'graph'", "eager or auto"),
    ),
    "checkpoints in kernels": (
        {"checkpoint_activations": True, "backend": Backend.COMPILE},
        ("checkpoint_activations", "'compile'", "leave it out"),
    ),
    "a mode of nothing": (
        {"compile_mode": CompileMode.MAX_AUTOTUNE},
        ("compile_mode", "'max-autotune'", "'auto'", "leave the mode out"),
    ),
    "a mode on the CPU": (
        {"compile_mode": CompileMode.REDUCE_OVERHEAD, "backend": Backend.COMPILE},
        ("'reduce-overhead'", "on the CPU", "leave it out"),
    ),
    "a capture on the CPU": ({"backend": Backend.GRAPH}, ("--backend graph", "CUDA GPU")),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_mix_is_one_line(case: str, variant: str) -> None:
    settings, expected = BAD[case]
    request = LaunchRequest(
        variants=variant, devices=DeviceChoice(cpu=True), settings=StudySettings(**settings)
    )
    with pytest.raises(UsageError) as refused:
        make_aim(request, environment={})
    assert "\n" not in str(refused.value)
    assert all(part in str(refused.value) for part in expected), str(refused.value)


def test_a_flag_for_what_is_searched_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "small.toml"
    head, training = STUDY_TOML.replace("[defaults]", "[defaults]\naccumulate = 1").split(
        "[training]"
    )
    searched = '\n[space.accumulate]\ntype = "int"\nlow = 1\nhigh = 4\n'
    path.write_text(f"{head}{searched}\n[training]{training}", encoding="utf-8")
    with pytest.raises(UsageError, match="--set accumulate=4: small searches over accumulate"):
        trained_with(load_study_file(str(path)), StudySettings(accumulate=4))
