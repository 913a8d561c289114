"""A class of the user's that is a module of Lightning's: what it says of its training is said to be
unused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.forked_cli import run
from tests.support.own_classes import OWN, check

IMPORT = "from torch import nn\n"
LIT = (
    OWN.replace(IMPORT, IMPORT + "from pytorch_lightning import LightningModule\n")
    + """

class Lit(Own, LightningModule):
    def training_step(self, batch, number):
        return 0.0

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1.0)
"""
)


@pytest.fixture
def lit(tmp_path: Path) -> Path:
    """A module of Lightning's, which takes seconds to import, in a file of its own."""
    (tmp_path / "own.py").write_text(OWN, encoding="utf-8")
    (tmp_path / "lit.py").write_text(LIT, encoding="utf-8")
    return tmp_path


def test_what_a_lightning_module_says_of_its_training_is_said_to_be_unused(lit: Path) -> None:
    done = run(*check(lit, "Lit", "--json"), folder=lit)
    assert done.code == 0, done.err
    found = json.loads(done.out)  # whatever the class prints
    assert found["unused_methods"] == ["training_step", "configure_optimizers"]
    notice, *_ = found["notices"]
    assert "Lit: its own training_step and configure_optimizers will not be used" in notice
    plain = json.loads(run(*check(lit, "Own", "--json"), folder=lit).out)
    assert plain["unused_methods"] == []
    assert not any("will not be used" in each for each in plain["notices"])


def test_a_launch_says_it_at_its_start_and_its_trials_have_it(lit: Path) -> None:
    launched = run(
        *(
            "launch",
            "--variant",
            "lit.py:Lit",
            "--task",
            "demo",
            "--cpu",
            "--workers",
            "1",
            "--study",
            "lit",
        ),
        *("--trials", "1", "--max-epochs", "1"),
        folder=lit,
        environment={"TMPDIR": str(lit)},
    )
    assert launched.code == 0, launched.err
    assert "its own training_step and configure_optimizers will not be used" in launched.err
    trial = json.loads(run("trial", "0", "--study", "lit", "--json", folder=lit).out)
    assert "training_step" in json.dumps(trial)
