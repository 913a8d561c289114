"""Each kind of argument gets the range that its name and its default suggest."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from tuner.models.constructor import Argument, Constructor, Kind
from tuner.spec.study_text import Left, Proposal, Searched, propose, study_text, variant_name

POWERS = {"type": "int", "powers_of_two": True}


def proposed(name: str, kind: Kind, default: Any = None, **more: Any) -> Searched | Left:
    given = Argument(name=name, kind=kind, default=default, **more)
    found = of(given)
    (each,) = found.searched or found.left
    return each


def of(*arguments: Argument, **sizes: Argument) -> Proposal:
    return propose(constructor(*arguments, **sizes))


def constructor(*arguments: Argument, **sizes: Argument) -> Constructor:
    return Constructor(
        class_name="MyMixer",
        about="",
        arguments=arguments,
        hidden_size=sizes.get("hidden_size"),
        dropout=sizes.get("dropout"),
    )


@pytest.mark.parametrize(
    ("name", "kind", "default", "space"),
    [
        ("depth", Kind.INT, 2, {"type": "int", "low": 1, "high": 4}),
        ("n_blocks", Kind.INT, 1, {"type": "int", "low": 1, "high": 3}),
        ("steps", Kind.INT, 3, {"type": "int", "low": 1, "high": 6}),
        ("skips", Kind.INT, 0, {"type": "int", "low": 0, "high": 2}),
        ("kernel_size", Kind.INT, 3, {"type": "int", "low": 1, "high": 7, "step": 2}),
        ("channels", Kind.INT, 64, POWERS | {"low": 32, "high": 256}),
        ("width", Kind.INT, 8, POWERS | {"low": 4, "high": 32}),
        ("n_heads", Kind.INT, 4, POWERS | {"low": 2, "high": 16}),
        ("attention_dropout", Kind.FLOAT, 0.1, {"type": "float", "low": 0.0, "high": 0.5}),
        ("drop_path", Kind.FLOAT, 0.0, {"type": "float", "low": 0.0, "high": 0.5}),
        ("alpha", Kind.FLOAT, 1, {"type": "float", "low": 0.1, "high": 10.0, "scale": "log"}),
        ("ratio", Kind.FLOAT, 0.8, {"type": "float", "low": 0.4, "high": 0.9}),
        ("gated", Kind.BOOL, False, {"type": "choice", "choices": [True, False]}),
    ],
)
def test_an_argument_gets_a_range_about_its_default(
    name: str, kind: Kind, default: Any, space: dict[str, Any]
) -> None:
    found = proposed(name, kind, default)
    assert isinstance(found, Searched)
    assert (found.name, found.default, found.space) == (name, default, space)
    assert found.reason


def test_a_literal_is_a_choice_of_its_values() -> None:
    found = proposed("norm", Kind.CHOICE, "batch", choices=("layer", "batch"))
    assert isinstance(found, Searched)
    assert found.default == "batch"
    assert found.space == {"type": "choice", "choices": ["layer", "batch"]}
    needed = proposed("norm", Kind.CHOICE, choices=("layer", "batch"), required=True)
    assert isinstance(needed, Searched)
    assert needed.default == "layer"


@pytest.mark.parametrize(
    ("name", "kind", "default", "value"),
    [
        ("activation", Kind.TEXT, "relu", "relu"),
        ("seed", Kind.INT, 3, 3),
        ("eps", Kind.FLOAT, 1e-5, 1e-5),
        ("lag", Kind.INT, -1, -1),
        ("sizes", Kind.OTHER, (3, 5), (3, 5)),
        ("norm", Kind.CHOICE, "layer", "layer"),
        ("layer", Kind.OTHER, str.join, None),
        ("ff", Kind.INT, None, None),
        ("learning_rate", Kind.FLOAT, 1e-3, None),
        ("own", Kind.INT, 3, None),
        ("scales", Kind.OTHER, (1.0, None), None),
        ("limit", Kind.FLOAT, float("inf"), None),
        ("shift", Kind.FLOAT, float("nan"), None),
        ("dropout_of_what", Kind.FLOAT, "none", "none"),
        ("rows", Kind.INT, 1 << 29, 1 << 29),
    ],
)
def test_what_has_no_obvious_range_stays_as_it_is(
    name: str, kind: Kind, default: Any, value: Any
) -> None:
    found = proposed(name, kind, default)
    assert isinstance(found, Left)
    assert (found.value, found.to_fill) == (value, False)
    assert found.comment


@pytest.mark.parametrize("kind", [Kind.UNKNOWN, Kind.TEXT, Kind.OTHER, Kind.FLOAT])
def test_what_the_class_leaves_open_is_left_to_the_user(kind: Kind) -> None:
    found = of(Argument(name="mode", kind=kind, required=True))
    assert found.to_fill == ("mode",)
    assert of(Argument(name="batch_size", kind=Kind.INT, required=True)).to_fill == ("batch_size",)


def test_a_size_without_a_default_is_guessed_by_its_name() -> None:
    width, depth = (proposed(name, Kind.INT, required=True) for name in ("width", "depth"))
    assert isinstance(width, Searched)
    assert isinstance(depth, Searched)
    assert (width.default, depth.default) == (64, 2)
    assert "a guess" in width.reason


def test_hidden_size_and_dropout_are_there_where_the_class_takes_them() -> None:
    assert of().sizes == ()
    found = of(
        hidden_size=Argument(name="hidden_size", kind=Kind.INT, default=100),
        dropout=Argument(name="dropout", kind=Kind.FLOAT, default=0.7),
    )
    sizes = {each.name: each for each in found.sizes}
    assert sizes["hidden_size"].default == 64
    assert sizes["hidden_size"].space == {"low": 32, "high": 256}
    assert sizes["dropout"].space == {"low": 0.0, "high": 0.85}


def test_the_text_holds_what_is_proposed_and_what_comes_next() -> None:
    built = constructor(
        Argument(name="depth", kind=Kind.INT, default=2),
        Argument(name="alpha", kind=Kind.FLOAT, default=0.001),
        Argument(name="mode", kind=Kind.TEXT, default='a "quoted"\nword'),
        Argument(name="layer", kind=Kind.OTHER, default=object),
        Argument(name="needed", kind=Kind.UNKNOWN, required=True),
        hidden_size=Argument(name="hidden_size", kind=Kind.INT),
    )
    path = Path("my file.toml")
    text = study_text(built, propose(built), "nets.py:MyMixer", path)
    data = tomllib.loads(text)
    assert (data["name"], data["model"]) == ("my-mixer", "nets.py:MyMixer")
    assert data["model_settings"] == {"mode": 'a "quoted"\nword'}
    assert list(data["defaults"]) == list(data["space"])
    assert list(data["space"]) == [
        "learning_rate",
        "weight_decay",
        "hidden_size",
        "batch_size",
        "depth",
        "alpha",
    ]
    assert all(table["reason"] for table in data["space"].values())
    assert "alpha = 1e-3\n" in text
    assert "# needed = ...\n" in text
    assert text.endswith(
        "#   tuner variants --check 'my file.toml' --task demo\n"
        "#   tuner launch --variant 'my file.toml' --task demo\n"
    )
    assert max(len(line) for line in text.split("\n")) <= 120


@pytest.mark.parametrize(
    ("class_name", "name"),
    [
        ("LastValueMLP", "last-value-mlp"),
        ("TSMixer2", "ts-mixer2"),
        ("_Module", "module"),
        ("Original", "original-own"),
        ("Ünet", "net"),
        ("Ü", "mine"),
    ],
)
def test_a_class_gives_its_study_a_name(class_name: str, name: str) -> None:
    assert variant_name(class_name) == name
