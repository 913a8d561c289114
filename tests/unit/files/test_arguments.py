"""What is handed to the Python API: of another type than it takes, it is one line."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tuner
from tuner import load_best, load_data, load_model, load_study
from tuner.errors import StorageError, UsageError


@pytest.mark.parametrize(
    ("call", "given", "says"),
    [
        (load_best, {"margin": "1%"}, "margin: a number such as 0.01 is expected, got '1%'"),
        (load_best, {"margin": True}, "margin: a number such as 0.01 is expected, got True"),
        (load_best, {"margin": [1]}, "margin: a number such as 0.01 is expected, got a value of "),
        (load_best, {"trial": "3"}, "trial: a whole number such as 3 is expected, got '3'"),
        (load_best, {"trial": 3.5}, "trial: a whole number such as 3 is expected, got 3.5"),
        (load_best, {"storage": 5}, "storage: a text or a path is expected, got 5"),
        (load_best, {"storage": b"x://u:pw@h"}, "storage: a text or a path is expected, got a val"),
        (load_best, {"max_time": "9"}, "max_time: a number such as 0.01 is expected, got '9'"),
        (load_best, {"max_mql": []}, "max_mql: a number such as 0.01 is expected, got a value of "),
        (load_best, {"pick": None}, "pick: a text is expected, got None"),
        (load_best, {"values": 5}, "values: a text is expected, got 5"),
        (load_best, {"against": 5}, "against: a text or a path is expected, got 5"),
        (load_best, {"study": 5}, "study: a text is expected, got 5"),
        (load_best, {"variant": ["a"]}, "variant: a text or a path is expected, got a value of "),
        (load_best, {"task": None}, "task: a text or a path is expected, got None"),
        (load_best, {"trust": "no"}, "trust: True or False is expected, got 'no'"),
        (load_data, {"task": 5}, "task: a text or a path is expected, got 5"),
        (load_data, {"task": "demo", "data_dir": 5}, "data_dir: a text or a path is expected, got"),
        (load_study, {"name": "x", "storage": 5}, "storage: a text is expected, got 5"),
        (load_model, {"path": 5}, "path: a text or a path is expected, got 5"),
    ],
)
def test_a_value_of_another_type_is_named_with_what_was_expected(
    call: Callable[..., Any], given: dict[str, Any], says: str
) -> None:
    with pytest.raises(UsageError) as caught:
        call(**given)
    assert str(caught.value).startswith(f"{call.__name__}: {says}")
    assert "\n" not in str(caught.value)
    assert "pw" not in str(caught.value)


@pytest.mark.parametrize(
    "given",
    [
        {"margin": np.float32(0.01), "trial": np.int64(3)},
        {"margin": Decimal("0.01"), "max_time": 3, "trial": 3.0},
        {"margin": None, "trial": None, "storage": None, "against": None, "trust": 1},
    ],
)
def test_numbers_of_other_libraries_are_taken(given: dict[str, Any], tmp_path: Path) -> None:
    nowhere = {"storage": f"sqlite:///{tmp_path}/none.db"}
    with pytest.raises(StorageError, match="no database"):
        load_best("rmsnorm", **(given | nowhere))


@pytest.mark.parametrize("device", ["gpu", "cuda:99", "xpu", None, [], ""])
def test_a_device_that_torch_has_not_is_one_line(device: Any, tmp_path: Path) -> None:
    for call in (
        lambda: load_data("demo", device=device),
        lambda: load_model(tmp_path / "model.safetensors", device=device),
    ):
        with pytest.raises(UsageError, match=r"^device") as caught:
            call()
        assert "\n" not in str(caught.value)


def test_a_device_may_be_torchs_own() -> None:
    assert load_data("demo", device=torch.device("cpu")).train  # type: ignore[arg-type]


def test_a_checked_function_looks_as_it_is_written() -> None:
    assert list(inspect.signature(tuner.load_data).parameters) == ["task", "device", "data_dir"]
    with pytest.raises(TypeError, match=r"^load_data\(\): .*'task'"):
        load_data()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^load_data\(\): .*'tusk'"):
        load_data("demo", tusk=1)  # type: ignore[call-arg]
