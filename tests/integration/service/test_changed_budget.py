"""Two terminals, one study: two launches share the budget exactly, and each follows when the other changes it."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest
from command import STUDY, Bench, finished, wait_for

from tuner.errors import TunerError

EPOCHS = 60


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, f"sqlite:///{tmp_path}/storage/tuner.db")


def at_work(bench: Bench) -> bool:
    with contextlib.suppress(TunerError), bench.opened() as study:  # neither database nor study may be there yet
        return bool(study.roster.working())
    return False


def test_a_second_launch_raises_the_budget_and_shares_it_and_a_third_lowers_it(bench: Bench) -> None:
    with bench.launched(2, epochs=EPOCHS) as launch:
        wait_for(lambda: at_work(bench), "a worker of the first launch")
        second = bench.launch(3, epochs=EPOCHS)
        first = finished(launch)
    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert bench.trials() == [(number, "COMPLETE") for number in range(3)]
    assert sorted(bench.claims(), key=str) == [("finished", number) for number in range(3)]
    assert "3 of 3 trials finished" in second.out
    # The first may have been through its own two trials in the moment before the second came.
    assert re.search(r"^(3 of 3|2 of 2) trials finished", first.out, flags=re.MULTILINE), first.out
    assert "Traceback" not in first.err + second.err

    third = bench.launch(1, epochs=EPOCHS)
    assert third.code == 0
    assert f"nothing to do: {STUDY} holds 3 finished trials, and 1 were asked for" in third.err
    assert "3 trials finished, 1 asked for" in third.out
