"""The kernels' benchmark without a GPU: what it counts through is what is launched, and its parts
are the network."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch

SMALL = argparse.Namespace(variant="original", hidden=16, batch=3, precision="fp32", products=None)
triton = pytest.importorskip("triton")


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    module = importlib.import_module("benchmarks.kernels.kernels")
    monkeypatch.setattr(triton.runtime.driver, "_active", module.Hopper())
    yield module
    del sys.modules["benchmarks.kernels.kernels"]


def test_what_the_network_launches_is_recorded_in_order_and_not_started(kernels: Any) -> None:
    _, fused, batch = kernels.networks(SMALL, "cpu")
    with kernels.recorded(started=False) as launches:
        fused(*batch).sum().backward()
    names = [launch.name for launch in launches]
    assert (
        names.index("enter_forward") < names.index("head_forward") < names.index("enter_backward")
    )
    found = kernels.floors_of(SMALL, fused)
    for name in ("enter_forward", "block_forward 48", "nothing known"):
        line = kernels.row(name, SMALL, found)
        assert line.startswith(f"| {name} |")
        assert line.count("|") == 6


def test_sums_of_gradients_are_counted_with_the_splits_that_are_launched(kernels: Any) -> None:
    _, fused, batch = kernels.networks(SMALL, "cpu")
    with kernels.recorded(started=False) as launches:
        fused(*batch).sum().backward()
    (summed,) = (launch for launch in launches if launch.name == "sum_products")
    n_splits = summed.grid[1]
    megabytes = kernels.floors_of(SMALL, fused)["sum_splits"][0]
    assert megabytes == pytest.approx(4e-6 * (n_splits + 1) * fused.tables.layout.size)


def test_the_plain_networks_parts_run_with_their_backward_passes(kernels: Any) -> None:
    model, _, batch = kernels.networks(SMALL, "cpu")
    parameters = dict(model.named_parameters())
    reached: dict[str, set[str]] = {}
    for name, part in kernels.plain_parts(model, batch).items():
        gradients = kernels.forward_and_backward(part, list(parameters.values()))()
        reached[name] = {
            each for each, g in zip(parameters, gradients, strict=True) if g is not None
        }
    whole = reached.pop("whole")
    assert whole == set(parameters)
    assert set.union(*reached.values()) == whole
    with torch.no_grad():
        planes = {name: part().shape for name, part in kernels.plain_parts(model, batch).items()}
    assert planes["enter"] == (3, 24, 32)
    assert planes["head"] == planes["whole"] == (3, 24, 7, 17)
