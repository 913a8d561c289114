"""What is confirmed of a search that has run nothing five times, and of one in which nothing is as
good as the default."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from tests.support.drawn_verifications import known, verify_all
from tests.support.repeated_configurations import (
    REPEATED,
    opened,
    run_of,
    with_runs,
)
from tuner.spec.margin import LEAST_RUNS
from tuner.study.archive import Archive
from tuner.study.open import OpenStudy
from tuner.study.snapshot import snapshot
from tuner.verdict.confirmation import Confirmation, confirmation_of
from tuner.verdict.confirmation_plan import plan_confirmation
from tuner.verdict.reasons import because_of_answer, confirmed_sentence
from tuner.verdict.same_quality import Answer, answer_of

SEEDS = 12


def last(study: OpenStudy) -> Confirmation:
    found = confirmation_of(snapshot(study))
    assert found is not None
    return found


def all_worse(archive: Archive) -> Archive:
    """Nothing comes near the default."""
    records = []
    for each in archive.records:
        if each.number == 0 or each.values is None:
            records.append(each)
            continue
        seconds, mql = each.values
        records.append(run_of(archive, each, each.number, (seconds, 3.0 + mql)))
    return dataclasses.replace(archive, records=tuple(records))


def test_what_ran_twice_is_not_recommended_and_is_tested(repeated: Archive, tmp_path: Path) -> None:
    study = opened(with_runs(repeated, ((0.1, 0.5), (0.12, 0.51))), tmp_path)
    answer = answer_of(snapshot(study))
    assert isinstance(answer, Answer)
    assert answer.default_stands
    assert answer.nearest is not None
    said = because_of_answer(answer)
    assert f"but it ran 2 times, and {LEAST_RUNS} runs of it are needed" in said
    assert said.endswith("on fresh seeds: tuner verify --confirm.")
    plan_confirmation([study], seeds=SEEDS)
    assert REPEATED in last(study).frozen.steps()
    verify_all([study], known(mql=0.79))
    assert last(study).claimed
    now = answer_of(snapshot(study))
    assert isinstance(now, Answer)
    assert now.confirmed
    assert not now.default_stands


def test_where_nothing_is_as_good_the_default_alone_runs_and_not_for_long(
    repeated: Archive, tmp_path: Path
) -> None:
    study = opened(all_worse(repeated), tmp_path)
    planned = plan_confirmation([study], seeds=SEEDS)
    assert planned.new_runs == LEAST_RUNS
    assert "the default stands, so there is nothing to hold against it" in planned.notes[0]
    verify_all([study], known(mql=0.9))
    found = last(study)
    assert found.complete
    assert found.default_stands
    assert confirmed_sentence(found, name="few").startswith("few: the default stands")
    again = plan_confirmation([study], seeds=SEEDS)
    assert (again.new_runs, again.notes) == (0, ())
