"""What a record says of the code that made it."""

import subprocess
from pathlib import Path

import pytest

from tuner.trial.run import git_revision

CHECKOUT = Path(__file__).parents[2]


@pytest.mark.skipif(not (CHECKOUT / ".git").exists(), reason="this is no checkout")
def test_the_revision_is_that_of_the_checkout() -> None:
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=CHECKOUT, capture_output=True, text=True, check=True
    ).stdout.strip()
    assert git_revision() in (head, f"{head}+changes")
