"""A retune's searches begin alike: of one draw, and a reference that is added later as those that
are there."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tests.support.groups import launch
from tests.support.planned_confirmations import opened
from tests.support.small_study import definition
from tuner.errors import UsageError
from tuner.launch.retune import RetuneRequest
from tuner.launch.retune_agreement import agreement, alike, search_request
from tuner.spec.policy import CAP, SearchPolicy
from tuner.storage.database import Database, open_database
from tuner.storage.url import parse_url

ASKED = RetuneRequest(variant="rmsnorm", against="original", task="demo")


def test_a_retune_is_of_one_draw(unverified: Database) -> None:
    assert {each.membership.draw for each in opened(unverified)} == {1}
    found = agreement(dataclasses.replace(ASKED, draw=1), unverified.address)
    assert search_request(ASKED, found, None).draw == 1
    with pytest.raises(UsageError, match=r"is of draw 1, and --draw 2 was said"):
        agreement(dataclasses.replace(ASKED, draw=2), unverified.address)


def test_a_new_database_takes_what_is_said(tmp_path: Path) -> None:
    address = parse_url(f"sqlite:///{tmp_path}/new.db")
    for draw in (None, 3):
        request = dataclasses.replace(ASKED, draw=draw)
        found = search_request(request, agreement(request, address), None)
        assert found.draw == draw
        assert found.policy.said() == {"cap": CAP, "against": "demo-original"}


def test_a_reference_that_is_added_later_begins_as_the_variant_did(tmp_path: Path) -> None:
    address = parse_url(f"sqlite:///{tmp_path}/later.db")
    with_it = open_database(address)
    policy = {"sampler": "random", "reruns": 0}
    (made,) = launch(with_it, "demo-rmsnorm", definition(), draw=5, policy=policy)
    with_it.close()
    found = search_request(ASKED, agreement(ASKED, address), None)
    assert list(found.variants) == ["original", "rmsnorm"]
    assert found.draw == made.study.membership.draw == 5
    assert found.policy.said() == policy | {"cap": CAP, "against": "demo-original"}
    said = dataclasses.replace(ASKED, policy=SearchPolicy(sampler="tpe"))
    found = search_request(said, agreement(said, address), None)
    assert found.policy.said() == {
        "sampler": "tpe",
        "reruns": 0,
        "cap": CAP,
        "against": "demo-original",
    }


def test_groups_of_two_draws_go_on_with_their_own(tmp_path: Path) -> None:
    address = parse_url(f"sqlite:///{tmp_path}/both.db")
    with_it = open_database(address)
    for draw, name in enumerate(("demo-rmsnorm", "demo-original"), 1):
        launch(with_it, name, definition(), draw=draw)
    with_it.close()
    assert search_request(ASKED, agreement(ASKED, address), None).draw is None


def test_where_all_are_there_nothing_is_said_for_them(unverified: Database) -> None:
    (one, _, other, _) = opened(unverified)
    assert alike([[one], [other]], None).policy is None
    assert alike([[one], []], None).policy == one.policy()
    assert alike([[], []], 7).draw == 7
