"""How layers begin beside those of another network: the same ones do not differ, others do from the
layer on that is another."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.small_road import config_of, prepared_road
from tuner.config import Architecture, RunConfig
from tuner.data.prepare import PreparedData
from tuner.models.names import SHARED, builtin_names
from tuner.training.initial_outputs import (
    SEEDS,
    Beginning,
    Pair,
    beginnings,
    first_that_differs,
    in_words,
    paired,
)

Configs = Callable[..., RunConfig]

SCALED = """
import torch
from torch import nn

class Mine(nn.Module):
    def __init__(self, shapes, *, hidden_size, dropout, gain=1.0):
        super().__init__()
        self.shapes = shapes
        self.first = nn.Linear(shapes.input_size, hidden_size)
        self.rest = nn.ModuleList(nn.Linear(hidden_size, hidden_size) for _ in range(2))
        self.{last} = nn.Linear(hidden_size, shapes.horizon * shapes.n_quantiles)
        with torch.no_grad():
            self.rest[1].weight.mul_(gain)
            self.rest[1].bias.mul_(gain)

    def forward(self, past, future, static):
        s = self.shapes
        plane = self.first(past[..., : s.n_targets].transpose(1, 2))
        for layer in self.rest:
            plane = layer(plane)
        out = self.{last}(plane).unflatten(-1, (s.horizon, s.n_quantiles))
        return out.transpose(1, 2)
"""


def _mine(folder: Path, configs: Configs, *, last: str = "head", gain: float = 1.0) -> RunConfig:
    file = folder / f"{last}.py"
    file.write_text(SCALED.replace("{last}", last))
    return _with(configs(f"{file}:Mine"), gain=gain)


def _with(config: RunConfig, **settings: object) -> RunConfig:
    architecture = Architecture(model=config.architecture.model, settings=settings)
    return dataclasses.replace(config, architecture=architecture)


def test_every_mixer_begins_as_the_original_does(
    prepared: PreparedData, run_config: Configs
) -> None:
    """Which is why their slow convergence does not come from there."""
    original = beginnings(run_config("original"), prepared)
    assert [each.name for each in original.layers if not each.inside][-3:] == [
        "blocks.1",
        "head",
        "forecast",
    ]
    for name in builtin_names()[1:]:
        pairs = paired(beginnings(run_config(name), prepared), original)
        assert first_that_differs(pairs) is None, name
        assert all(pair.ours.name == pair.theirs.name for pair in pairs)
    assert len(original.losses) == SEEDS == len(set(original.losses))


def test_another_initialisation_differs_from_the_first_layer_on(
    prepared: PreparedData, run_config: Configs
) -> None:
    """Where each block ends in a norm, only what is inside of it shows."""
    changed = _with(run_config("rmsnorm"), initialisation="he_normal")
    pairs = paired(beginnings(changed, prepared), beginnings(run_config("original"), prepared))
    blocks = {pair.ours.name: pair for pair in pairs if not pair.ours.inside}
    assert not blocks["blocks.0"].differs
    first = first_that_differs(pairs)
    assert first is not None
    assert first.ours.name.endswith(".enter")
    assert f"from {first.ours.name} on it starts with a spread" in in_words(pairs, "original")


@pytest.mark.parametrize("last", ["head", "readout"])
def test_a_class_of_one_s_own_is_held_layer_by_layer_against_another(
    prepared: PreparedData, run_config: Configs, tmp_path: Path, last: str
) -> None:
    ours = beginnings(_mine(tmp_path, run_config, gain=3.0), prepared)
    pairs = paired(ours, beginnings(_mine(tmp_path, run_config, last=last), prepared))
    named = [(pair.ours.name, pair.theirs.name, pair.differs) for pair in pairs]
    assert named[:3] == [
        ("first", "first", False),
        ("rest.0", "rest.0", False),
        ("rest.1", "rest.1", True),
    ]
    assert named[3][:2] == ("head", last)  # of another name: the one at its depth
    assert pairs[2].factor == pytest.approx(3.0, rel=1e-5)
    said = in_words(pairs, "mine")
    assert said.startswith("from rest.1 on it starts with a spread 3 times that of mine (")
    assert said.endswith("): expect another learning rate")


def test_what_is_computed_in_groups_is_looked_at_as_a_whole(tmp_path: Path) -> None:
    road = prepared_road(tmp_path)
    groups = beginnings(config_of(SHARED, settings={"group_size": 2}), road)
    names = [each.name for each in groups.layers]
    assert names == ["reversible_norm", "encoder", "readout", "forecast"]
    assert first_that_differs(paired(groups, beginnings(config_of(SHARED), road))) is None


def _pair(ours: tuple[float, ...], theirs: tuple[float, ...]) -> Pair:
    both = [
        Beginning(name="layer", means=each, spreads=each, inside=False) for each in (ours, theirs)
    ]
    return Pair(ours=both[0], theirs=both[1])


def test_spreads_that_seeds_mix_do_not_differ_nor_do_two_zeros() -> None:
    assert _pair((2.0, 2.1, 2.2), (1.0, 1.1, 1.2)).differs
    assert _pair((1.0, 1.1, 1.2), (2.0, 2.1, 2.2)).differs
    assert not _pair((1.1, 2.1, 2.2), (1.0, 1.1, 1.2)).differs
    assert not _pair((1.3, 1.4, 1.5), (1.0, 1.1, 1.2)).differs
    assert not _pair((0.0, 0.0, 0.0), (0.0, 0.0, 0.0)).differs
    infinite = _pair((1.0, 1.0, 1.0), (0.0, 0.0, 0.0))
    assert (infinite.differs, infinite.factor) == (True, math.inf)
    assert infinite.as_dict()["factor"] is None
