"""Two terminals, one study: two launches share the budget exactly, and each follows when the other
changes it."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from tests.support.cli_processes import STUDY, Bench, finished, wait_for
from tuner.errors import TunerError

pytestmark = pytest.mark.slow

EPOCHS = 60


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, f"sqlite:///{tmp_path}/storage/tuner.db")


def at_work(bench: Bench) -> bool:
    with (
        contextlib.suppress(TunerError),
        bench.opened() as study,
    ):  # neither database nor study may be there yet
        return bool(study.roster.working())
    return False


def budget(bench: Bench) -> int:
    with bench.opened() as study:
        return study.ledger.counts().budget


def test_a_second_launch_raises_the_budget_and_shares_it_and_a_third_lowers_it(
    bench: Bench,
) -> None:
    slow = bench.slowed()
    with bench.launched(2, epochs=EPOCHS) as launch:
        wait_for(lambda: at_work(bench), "a worker of the first launch")
        with bench.launched(3, epochs=EPOCHS) as other:
            wait_for(lambda: budget(bench) == 3, "the second launch")
            slow.unlink()
            first, second = finished(launch), finished(other)
    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert bench.trials() == [(number, "COMPLETE") for number in range(3)]
    assert sorted(bench.claims(), key=str) == [("finished", number) for number in range(3)]
    for done in (first, second):
        assert "3 of 3 trials finished" in done.out
        assert "Traceback" not in done.err
    assert (
        f"the budget of {STUDY} was changed from 2 to 3 trials meanwhile, by another launch"
        in first.err
    )
    assert "meanwhile" not in second.err

    with bench.opened() as study:
        study.roster.join("ann", host="h", pid=1, device="CPU core 0", device_uuid="u")
    third = bench.launch(1, epochs=EPOCHS)
    assert third.code == 0
    said = "lowers its budget from 3 to 1; 1 other worker is at work on it, and will end"
    assert f"{STUDY}: --trials {said}" in third.err
    assert f"nothing to do: {STUDY} holds 3 finished trials, and 1 were asked for" in third.err
    assert "3 trials finished, 1 asked for" in third.out
