from __future__ import annotations

import sys
from typing import Any

import pytest
import torch

from tuner.bench.contender import Job
from tuner.bench.entrants import Plan, make_plan
from tuner.data.windows import DeviceData
from tuner.errors import UsageError


def plan(job: Job, data: DeviceData, **changes: Any) -> Plan:
    arguments: dict[str, Any] = {
        "variants": "original",
        "backends": "eager",
        "against": "none",
        "hidden": [16],
        "batch": [64],
    }
    return make_plan(job, data, **(arguments | changes))


def taking_part(plan: Plan) -> list[tuple[str, int | None, int]]:
    return [(c.entry.name, c.entry.hidden_size, c.entry.batch_size) for c in plan.contenders]


def without(patch: pytest.MonkeyPatch, library: str) -> None:
    """As if `library` were not installed."""
    for name in list(sys.modules):
        if name.startswith(f"{library}.") or name == f"tuner.bench.{library}_model":
            patch.delitem(sys.modules, name)
    patch.setitem(sys.modules, library, None)


def test_on_a_cpu_all_backends_are_those_that_need_no_gpu(job: Job, data: DeviceData) -> None:
    assert taking_part(plan(job, data, backends="all")) == [
        ("tuner original eager", 16, 64),
        ("tuner original compile", 16, 64),
    ]


def test_hidden_and_batch_sizes_form_a_grid_and_the_libraries_run_at_its_first_pair(
    job: Job, data: DeviceData
) -> None:
    found = taking_part(
        plan(job, data, hidden=[16, 8], batch=[64, 32], against="darts,neuralforecast")
    )
    assert found[:2] == [("darts", 16, 64), ("neuralforecast", 16, 64)]
    assert [sizes for _, *sizes in found[2:]] == [[16, 64], [16, 32], [8, 64], [8, 32]]


def test_all_variants_begin_with_the_baseline(job: Job, data: DeviceData) -> None:
    found = [name for name, *_ in taking_part(plan(job, data, variants="all"))]
    assert found[0] == "tuner original eager"
    assert len(found) == 5


def test_a_missing_library_is_left_out_with_a_line(
    job: Job, data: DeviceData, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(monkeypatch, "darts")
    found = plan(job, data, against=None)
    assert [name for name, *_ in taking_part(found)] == ["neuralforecast", "tuner original eager"]
    (notice,) = found.notices
    assert notice.startswith("left out: darts cannot be imported here")
    assert "pip install 'tuner[bench]'" in notice


def test_a_missing_library_that_was_asked_for_is_an_error(
    job: Job, data: DeviceData, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(monkeypatch, "neuralforecast")
    with pytest.raises(
        UsageError, match=r"--against: neuralforecast cannot be imported .*'tuner\[bench\]'"
    ):
        plan(job, data, against="neuralforecast")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"variants": "orignal"}, "did you mean 'original'"),
        ({"variants": "original,"}, "--variants: .* empty name"),
        ({"backends": "eagre"}, "did you mean 'eager'"),
        ({"backends": "graph"}, "--backends: graph needs a CUDA device"),
        ({"against": "dart"}, "did you mean 'darts'"),
        ({"hidden": [0]}, "at least 1"),
        ({"batch": [64, -1]}, "at least 1"),
    ],
    ids=str,
)
def test_wrong_names_and_sizes_are_refused(
    job: Job, data: DeviceData, changes: dict[str, Any], says: str
) -> None:
    with pytest.raises(UsageError, match=says):
        plan(job, data, **changes)


def test_a_turn_of_ours_leaves_the_callers_random_state_alone(job: Job, data: DeviceData) -> None:
    (ours,) = plan(job, data).contenders
    before = torch.random.get_rng_state()
    turn = ours.run(2)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert len(turn.epochs) == 2
    assert all(0 < epoch.step_s * turn.n_steps <= epoch.seconds for epoch in turn.epochs)
    assert turn.counted[1] - turn.counted[0] >= sum(epoch.seconds for epoch in turn.epochs)
    assert (turn.n_windows, turn.n_steps) == (len(data.train), 7)


def test_a_model_of_neuralforecast_is_compared_with_its_own_fit(job: Job, data: DeviceData) -> None:
    both = plan(job, data, variants="nf-tcn,nf-patchtst", against="darts,neuralforecast")
    found = [(c.entry.name, c.entry.hidden_size) for c in both.contenders]
    assert found == [
        ("darts", 16),
        ("neuralforecast nf-tcn", None),
        ("neuralforecast nf-patchtst", 16),
        ("tuner nf-tcn eager", None),
        ("tuner nf-patchtst eager", 16),
    ]
    assert "hidden" not in both.contenders[1].entry.label
    mixed = plan(job, data, variants="original,nf-tcn", against="neuralforecast")
    assert [c.entry.name for c in mixed.contenders[:2]] == [
        "neuralforecast",
        "neuralforecast nf-tcn",
    ]
