"""Two launches of one study at the same moment: what each says is done, or told, in order."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.small_study import definition
from tuner.spec.definition import StudyDefinition
from tuner.storage.database import Database, open_database
from tuner.study import relaunch
from tuner.study.open import open_study
from tuner.study.relaunch import Launched, Said, open_studies

LONG_ENOUGH_S = 1.5
"""For a launch that nothing keeps waiting."""


class Other:
    """Another launch, in a thread and with a connection of its own."""

    def __init__(
        self, database: Database, asked: Mapping[str, StudyDefinition], said: Said
    ) -> None:
        self.launched: list[Launched] = []
        self.failed: Exception | None = None
        self._begun = False
        self._thread = threading.Thread(target=self._run, args=(database, asked, said))

    def begins(self) -> None:
        """The first time; it has ended after this where nothing keeps it waiting."""
        if not self._begun:
            self._begun = True
            self._thread.start()
            self._thread.join(LONG_ENOUGH_S)

    def ended(self) -> list[Launched]:
        self._thread.join(60)
        if self.failed is not None:
            raise self.failed
        return self.launched

    def _run(self, database: Database, asked: Mapping[str, StudyDefinition], said: Said) -> None:
        mine = open_database(database.address)
        try:
            self.launched += open_studies(mine, asked, said, device_model="A")
        except Exception as error:  # noqa: BLE001 - the test raises it
            self.failed = error
        finally:
            mine.close()


@contextmanager
def begun_at(moment: str, other: Other) -> Iterator[None]:
    """The other launch begins when the first one calls `moment` of its module."""
    real = getattr(relaunch, moment)

    def meanwhile(*given: Any, **more: Any) -> Any:
        other.begins()
        return real(*given, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(relaunch, moment, meanwhile)
        yield


MOMENTS = ["asked_searches", "change_policy"]
"""While it looks at what is there, and after it made the study."""


@pytest.mark.parametrize("moment", MOMENTS)
def test_what_two_first_launches_say_is_done_in_order_and_told(
    moment: str, database: Database
) -> None:
    asked = {"small": definition()}
    second = {"sampler": "random", "seed": 5, "max_gpu_s": 7200.0, "max_mql": 0.9}
    other = Other(database, asked, Said(trials=3, policy=second))
    first = {"sampler": "tpe", "max_gpu_s": 3600.0, "max_time_s": 60.0}
    with begun_at(moment, other):
        (one,) = open_studies(database, asked, Said(trials=5, policy=first), device_model="A")
    (two,) = other.ended()
    assert (one.notes, one.changed, one.budget) == ((), {}, 5)  # a new study changes from nothing
    assert two.budget == 3
    assert "small: --trials lowers its budget from 5 to 3" in two.notes
    (changes,) = [line for line in two.notes if "changes from" in line]
    for flags in (
        "--sampler tpe to --sampler random",
        "--sampler-seed none to --sampler-seed 5",
        "--max-gpu-hours 1 to --max-gpu-hours 2",
    ):
        assert flags in changes
    assert "small keeps --max-time 60" in two.notes
    study = open_study(database, "small")
    assert study.ledger.counts().budget == 3
    policy = study.policy()
    assert (policy.sampler, policy.seed, policy.max_gpu_s) == ("random", 5, 7200.0)
    assert (policy.max_time_s, policy.max_mql) == (60.0, 0.9)


def test_what_a_first_launch_makes_a_study_with_is_kept_by_one_that_says_less(
    database: Database,
) -> None:
    other = Other(database, {"small": definition()}, Said())
    said = Said(definition=("max_epochs",))
    with begun_at("check_resumable", other):
        open_studies(database, {"small": definition(max_epochs=9)}, said, device_model="A")
    (two,) = other.ended()
    assert two.notes == ("small keeps --max-epochs 9",)


def test_the_device_hours_of_two_searches_are_those_of_the_later_launch(
    database: Database,
) -> None:
    asked = {"g": definition()}
    other = Other(database, asked, Said(searches=3, policy={"max_gpu_s": 7200.0}))
    said = Said(searches=2, policy={"max_gpu_s": 3600.0})
    with begun_at("lowered", other):
        open_studies(database, asked, said, device_model="A")
    names = ["g", "g-2", "g-3"]
    assert [each.study.name for each in other.ended()] == names
    policies = [open_study(database, name).policy() for name in names]
    assert {policy.max_gpu_s for policy in policies} == {7200.0}
    assert {policy.gpu_shared for policy in policies} == {tuple(names)}
