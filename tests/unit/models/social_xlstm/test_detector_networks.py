"""The three forms forecast alike with equal weights, and see neighbours only through positions."""

from __future__ import annotations

from typing import Any, cast

import pytest
import torch
from torch import nn

from tests.support.present import present
from tuner.config import Architecture, Hyperparameters, ModelShapes
from tuner.errors import UsageError
from tuner.models.names import HEADS, LOOP, SHARED, social_names
from tuner.models.registry import build_model, cell_of
from tuner.models.social_xlstm import matrix_cell
from tuner.models.social_xlstm.detector_networks import HeadsByDetector, LoopNetwork, SharedNetwork

ROAD = tuple((float(place), 0.0) for place in (0, 90, 200, 310, 400))
SETTINGS = {"n_heads": 2, "cell": "own"}


def _shapes(**changes: Any) -> ModelShapes:
    sizes: dict[str, Any] = {
        "input_size": 12,
        "horizon": 3,
        "n_targets": 5,
        "n_past": 1,
        "n_future": 2,
        "n_static": 1,
        "n_quantiles": 4,
        "positions": ROAD,
    }
    return ModelShapes(**{**sizes, **changes})


def _build(
    variant: str, shapes: ModelShapes | None = None, *, own: Any = None, **settings: Any
) -> nn.Module:
    torch.manual_seed(0)
    hyperparameters = Hyperparameters(
        learning_rate=1e-3,
        weight_decay=0.0,
        batch_size=4,
        hidden_size=8,
        dropout=0.0,
        own=own or {},
    )
    architecture = Architecture(model=variant, settings={**SETTINGS, **settings})
    return build_model(architecture, shapes or _shapes(), hyperparameters)


def _inputs(shapes: ModelShapes) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    torch.manual_seed(1)
    s = shapes
    past = torch.rand(6, s.input_size, s.n_targets + s.n_past + s.n_future)
    future = torch.rand(6, s.horizon, s.n_future) if s.n_future else None
    return past, future, torch.ones(6, s.n_static) if s.n_static else None


KINDS = [{"kind": "mlstm"}, {"kind": "slstm"}, {"reversible_norm": False, "n_layers": 2}]
BARE = {"n_past": 0, "n_future": 0, "n_static": 0}


@pytest.mark.parametrize("settings", KINDS)
@pytest.mark.parametrize("changes", [{}, BARE])
@pytest.mark.parametrize("variant", social_names())
def test_a_forecast_has_the_shape_of_any_other_s_and_all_parts_learn(
    variant: str, changes: dict[str, int], settings: dict[str, Any]
) -> None:
    shapes = _shapes(**changes)
    model = _build(variant, shapes, **settings)
    forecast = model(*_inputs(shapes))
    assert forecast.shape == (6, 3, 5, 4)
    (forecast * torch.rand_like(forecast)).sum().backward()
    dead = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert dead == []


def _give_to_each(shared: SharedNetwork, loop: LoopNetwork) -> None:
    """Every network of the loop gets the shared one's weights."""
    for encoder, readout in zip(loop.encoders, loop.readouts, strict=True):
        encoder.load_state_dict(shared.encoder.state_dict())
        readout.load_state_dict(shared.readout.state_dict())
    if shared.reversible_norm is not None and loop.reversible_norm is not None:
        loop.reversible_norm.load_state_dict(shared.reversible_norm.state_dict())


@pytest.mark.parametrize("settings", [*KINDS, {"pooling": "none"}])
def test_a_loop_with_equal_weights_forecasts_what_one_network_does(
    settings: dict[str, Any],
) -> None:
    shared, loop = _build(SHARED, **settings), _build(LOOP, **settings)
    given = _inputs(_shapes())
    assert not torch.allclose(shared(*given), loop(*given), atol=1e-3)
    _give_to_each(cast("SharedNetwork", shared), cast("LoopNetwork", loop))
    torch.testing.assert_close(loop(*given), shared(*given), rtol=1e-5, atol=1e-5)


def _stacks(model: nn.Module) -> dict[str, nn.Parameter]:
    """The weights of groups, by the names that one network's have."""
    named = model.named_parameters()
    return {name.replace(".stacked.", "."): weights for name, weights in named}


def _gradients(model: nn.Module, given: Any) -> torch.Tensor:
    """Of a sum that weighs each forecast differently; the forecasts."""
    forecasts: torch.Tensor = model(*given)
    torch.manual_seed(2)
    (forecasts * torch.rand(forecasts.shape)).sum().backward()
    return forecasts


@pytest.mark.parametrize("settings", [*KINDS, {"pooling": "none"}])
@pytest.mark.parametrize("size", [1, 2, 3, 5, 9])
def test_groups_are_the_loop_whose_networks_have_their_groups_weights(
    size: int, settings: dict[str, Any]
) -> None:
    """Of five detectors: five groups, 2 + 2 + 1, 3 + 2, one, and one again."""
    groups, loop = _build(SHARED, group_size=size, **settings), _build(LOOP, **settings)
    stacks, by_detector = _stacks(groups), dict(loop.named_parameters())
    of_group = {
        f"{part}s.{number}.{rest}": (f"{part}.{rest}", number // size)
        for part, _, rest in (name.partition(".") for name in stacks)
        for number in range(5)
        if part != "reversible_norm"  # of each detector already
    }
    with torch.no_grad():
        for name, (stack, group) in of_group.items():
            by_detector[name].copy_(stacks[stack][group])
    given = _inputs(_shapes())
    found, wanted = (_gradients(model, given) for model in (groups, loop))
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    summed = {name: torch.zeros_like(weights) for name, weights in stacks.items()}
    for name, (stack, group) in of_group.items():
        summed[stack][group] += present(by_detector[name].grad)
    for name, weights in by_detector.items():
        if name not in of_group:
            summed[name] += present(weights.grad)
    for name, weights in stacks.items():
        torch.testing.assert_close(weights.grad, summed[name], rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.parametrize("settings", KINDS)
def test_one_group_of_all_is_the_shared_network(settings: dict[str, Any]) -> None:
    groups, shared = _build(SHARED, group_size=5, **settings), _build(SHARED, **settings)
    stacks, weights = _stacks(groups), dict(shared.named_parameters())
    with torch.no_grad():
        for name, weight in weights.items():
            stacks[name].copy_(weight)
    given = _inputs(_shapes())
    found, wanted = (_gradients(model, given) for model in (groups, shared))
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    for name, weight in weights.items():
        gradient = present(weight.grad)
        torch.testing.assert_close(
            present(stacks[name].grad).view_as(gradient), gradient, rtol=1e-5, atol=1e-5
        )


def test_groups_of_a_training_drop_other_units_each() -> None:
    hyperparameters = Hyperparameters(
        learning_rate=1e-3, weight_decay=0.0, batch_size=4, hidden_size=8, dropout=0.5
    )
    settings = {**SETTINGS, "group_size": 2, "pooling": "none", "reversible_norm": False}
    model = build_model(Architecture(model=SHARED, settings=settings), _shapes(), hyperparameters)
    with torch.no_grad():
        for weights in model.parameters():
            weights.copy_(weights[:1].expand_as(weights))  # all groups alike
    past, future, static = _inputs(_shapes())
    past[..., :5] = past[..., :1]  # and all detectors
    trained = model(past, future, static)
    assert not torch.allclose(trained[:, :, 0], trained[:, :, 2], atol=1e-4)
    alike = model.eval()(past, future, static)
    torch.testing.assert_close(alike[:, :, 0], alike[:, :, 4])


def test_heads_with_equal_weights_are_one_head() -> None:
    shared, heads = cast("SharedNetwork", _build(SHARED)), cast("SharedNetwork", _build(HEADS))
    weights = {n: w for n, w in shared.state_dict().items() if not n.startswith("readout.head.")}
    heads.load_state_dict(weights, strict=False)
    one, many = shared.readout.head, heads.readout.head
    assert isinstance(one, nn.Linear)
    assert isinstance(many, HeadsByDetector)
    with torch.no_grad():
        many.weight.copy_(one.weight.t().expand_as(many.weight))
        many.bias.copy_(one.bias.expand_as(many.bias))
    given = _inputs(_shapes())
    torch.testing.assert_close(heads(*given), shared(*given), rtol=1e-5, atol=1e-5)
    with torch.no_grad():
        many.bias[3] += 1
    changed = (heads(*given) - shared(*given)).abs().amax(dim=(0, 1, 3)) > 1e-4
    assert changed.tolist() == [False, False, False, True, False]


@pytest.mark.parametrize("variant", social_names())
def test_a_detector_sees_its_neighbours_and_nobody_else(variant: str) -> None:
    """On this road, two usual distances to each side are two detectors."""
    model = _build(variant, pool_radius=1.2)
    past, future, static = _inputs(_shapes())
    before = model(past, future, static)
    past[:, :-1, 0] += torch.rand(6, 11)
    changed = (model(past, future, static) - before).abs().amax(dim=(0, 1, 3)) > 1e-6
    assert changed.tolist() == [True, True, False, False, False]


@pytest.mark.parametrize("variant", social_names())
def test_forecasts_depend_on_the_positions_and_on_whether_there_is_pooling(variant: str) -> None:
    given = _inputs(_shapes())
    here = _build(variant)
    other_road = (ROAD[0], ROAD[4], ROAD[2], ROAD[3], ROAD[1])
    there = _build(variant, _shapes(positions=other_road))
    there.load_state_dict(here.state_dict())  # positions are no weights
    alone = _build(variant, _shapes(positions=()), pooling=False)
    without = {n: w for n, w in here.state_dict().items() if n in alone.state_dict()}
    alone.load_state_dict(without)
    forecasts = [model(*given) for model in (here, there, alone)]
    for first, second in ((0, 1), (0, 2), (1, 2)):
        assert not torch.allclose(forecasts[first], forecasts[second], atol=1e-4)


REFUSED = {
    "no positions": ({"positions": ()}, {}, r'add positions = "positions\.csv" to the task file'),
    "one detector": ({"n_targets": 1, "positions": ROAD[:1]}, {}, "the task has one target column"),
    "one place": ({"positions": ROAD[:1] * 5}, {}, "are all at one"),
    "near name": ({}, {"pool_radios": 2.0}, "'pool_radios' .did you mean 'pool_radius'"),
    "odd grid": ({}, {"pool_grid": 3}, "pool_grid must be even, not 3"),
    "radius": ({}, {"pool_radius": 0.5}, "pool_radius must be a number of at least 1"),
    "layers": ({}, {"n_layers": 0}, "n_layers must be a whole number of at least 1, not 0"),
    "flag": ({}, {"n_layers": True}, "n_layers must be a whole number of at least 1, not True"),
    "heads": ({}, {"n_heads": 3}, "hidden_size 8 is no multiple of n_heads 3"),
    "groups": ({}, {"group_size": 0}, "group_size"),
    "kind": ({}, {"kind": "lstm"}, "kind must be one of 'mlstm', 'slstm', not 'lstm'"),
    "pooling": ({}, {"pooling": "max"}, "pooling must be one of 'social', 'none', not 'max'"),
    "norm": ({}, {"reversible_norm": "yes"}, "reversible_norm must be true or false, not 'yes'"),
    "radius of no pooling": (
        {},
        {"pooling": "none", "pool_radius": 2.0},
        "pooling is 'none', so pool_radius means nothing; leave pool_radius out",
    ),
    "slstm of the package": ({}, {"kind": "slstm", "cell": "xlstm"}, "set cell = 'own'"),
}


@pytest.mark.parametrize("variant", social_names())
@pytest.mark.parametrize(("changes", "settings", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_each_way_to_fail_is_one_line_that_names_the_variant(
    variant: str, changes: dict[str, Any], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        _build(variant, _shapes(**changes), **settings)
    assert "\n" not in str(caught.value)
    assert variant in str(caught.value)


def _missing(monkeypatch: pytest.MonkeyPatch) -> None:
    reason = "the package xlstm is not installed"
    monkeypatch.setattr(matrix_cell, "package_function", lambda: (None, reason))


def test_a_package_that_is_asked_for_and_missing_is_refused_by_its_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _missing(monkeypatch)
    with pytest.raises(UsageError, match=r"pip install 'tuner\[xlstm\]'.*or set cell = 'own'"):
        _build(SHARED, cell="xlstm")


def test_which_cell_runs_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def said(model: str, **settings: Any) -> str | None:
        sizes = Hyperparameters(
            learning_rate=1e-3, weight_decay=0.0, batch_size=4, hidden_size=8, dropout=0.0
        )
        return cell_of(Architecture(model=model, settings=settings), sizes)

    assert said("original") is None
    assert said(SHARED, cell="own") == "own"
    _missing(monkeypatch)
    assert said(SHARED) == "own: the package xlstm is not installed"
    assert said(LOOP, kind="slstm") == "own"
    monkeypatch.setattr(matrix_cell, "package_function", lambda: (len, ""))
    monkeypatch.setattr(matrix_cell, "version", lambda _name: "2.0.6")
    assert said(HEADS, cell="auto") == "xlstm 2.0.6"


@pytest.mark.parametrize("variant", social_names())
def test_the_package_s_cell_forecasts_what_ours_does(variant: str) -> None:
    pytest.importorskip("xlstm", reason="the package xlstm is not installed: tuner[xlstm]")
    given = _inputs(_shapes())
    own, packaged = (_build(variant, n_layers=2, cell=cell) for cell in ("own", "xlstm"))
    torch.testing.assert_close(packaged(*given), own(*given), rtol=1e-4, atol=1e-5)
