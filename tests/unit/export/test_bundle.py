"""Definitions cut out of the package's own modules, with all they need and nothing of the package
itself."""

from __future__ import annotations

import ast

import pytest

from tuner.export.bundle import bundle, entry_text, names_in
from tuner.models.names import builtin_names

NETWORK = "tuner.models.tsmixer"


def test_a_definition_comes_with_what_it_uses_in_an_order_that_runs() -> None:
    made = bundle([("tuner.training.quantile_loss", "mean_quantile_loss")])
    names = [
        node.name for node in ast.parse(made.definitions).body if isinstance(node, ast.FunctionDef)
    ]
    assert names == [
        "pinball",
        "mean_quantile_loss_per_window",
        "mean_quantile_loss_per_column",
        "mean_quantile_loss",
    ]
    assert made.imports == "import torch\nfrom torch import Tensor"
    assert made.aliases == ""


def test_docstrings_keep_their_first_paragraph_and_notes_to_tools_go() -> None:
    made = bundle([("tuner.training.quantile_loss", "quantile_loss")])
    assert '"""The protocol\'s training and validation loss: `pinball` summed' in made.definitions
    assert "Args:" not in made.definitions
    assert "noqa" not in made.definitions
    assert "type: ignore" not in made.definitions


@pytest.mark.parametrize("variant", builtin_names())
def test_the_network_of_each_variant_is_whole_and_names_nothing_of_the_package(
    variant: str,
) -> None:
    design = entry_text(NETWORK, "DESIGNS", variant)
    made = bundle([(NETWORK, "TSMixer"), *names_in(NETWORK, design)])
    assert "tuner" not in made.imports
    module: dict[str, object] = {"__name__": "builtins"}
    header = "from __future__ import annotations\n"
    exec(
        compile(
            f"{header}{made.imports}\n{made.aliases}\n{made.definitions}", "network.py", "exec"
        ),
        module,
    )
    assert {"TSMixer", "Design", design.partition("(")[2].partition("(")[0]} <= module.keys()


def test_another_variants_parts_are_left_out() -> None:
    design = entry_text(NETWORK, "DESIGNS", "original")
    made = bundle([(NETWORK, "TSMixer"), *names_in(NETWORK, design)])
    assert "class TimeFirst" in made.definitions
    assert "class ChannelFirst" not in made.definitions
    assert "class SideStreams" not in made.definitions


def test_protocols_that_only_annotations_name_become_any() -> None:
    made = bundle([(NETWORK, "TSMixer")])
    assert (
        made.aliases == "Branches = Design = Join = ModelShapes = Stretch = Any"
        "  # named in annotations only"
    )
    assert "class Branches" not in made.definitions
    assert "Any" in made.imports


def test_what_a_package_hands_on_is_taken_from_where_it_is_defined() -> None:
    handed_on = bundle([("tuner.config", "ModelShapes")])
    assert handed_on == bundle([("tuner.config", "ModelShapes")])
    assert "class ModelShapes" in handed_on.definitions


def test_two_definitions_of_one_name_are_refused() -> None:
    with pytest.raises(
        ValueError, match="another definition of the name 'SETTLE'; rename one of the two"
    ):
        bundle(
            [("tuner.profile.stage_times", "SETTLE"), ("tuner.profile.variant_profile", "SETTLE")]
        )


def test_another_modules_definition_is_taken_where_it_has_the_name() -> None:
    instead = {"tuner.models.dropout": "tuner.export.plain_operations"}
    made = bundle([("tuner.models.dropout", "dropout")], instead=instead)
    assert made == bundle([("tuner.export.plain_operations", "dropout")])
    assert "numpy" not in made.imports


def test_an_unknown_variant_has_no_design() -> None:
    with pytest.raises(KeyError):
        entry_text(NETWORK, "DESIGNS", "no-such-variant")
