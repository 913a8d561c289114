"""A study that minimised the validation MQL, verified while others used the machine: every figure
is named by its split, nothing that is known is left out, and what is missing is told with what
helps.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import TrialState

from tests.support.drawn_verifications import drawn_result, missed, verify_all
from tests.support.present import present
from tests.support.recorded_studies import record_study
from tuner.errors import TunerError
from tuner.export import load_best
from tuner.export.script_text import headline
from tuner.report.dashboard.downloads import StudyFiles
from tuner.report.study_status import read_trial, status_of
from tuner.report.terminal.tables import print_status
from tuner.report.terminal.trial_sections import print_trial
from tuner.report.terminal.verification import print_verified, verification_document
from tuner.spec.pareto import Point
from tuner.storage.database import open_database
from tuner.storage.records import TrialResult
from tuner.storage.url import parse_url
from tuner.study.open import OpenStudy, open_study
from tuner.study.results import read_results
from tuner.study.snapshot import snapshot
from tuner.trial.job import TrialJob
from tuner.verdict.compare.fairness import differences
from tuner.verdict.verification_plan import plan_verification
from tuner.verdict.verified import verified_in

SEEDS = 5
CONTAMINATED = 2
TEST = 1.0966
"""What every trial of the search recorded; their values are of validation."""


@pytest.fixture
def study(tmp_path: Path) -> Iterator[OpenStudy]:
    yield from searched_on_validation(tmp_path, said={"test_mql": TEST})


@pytest.fixture
def without_test(tmp_path: Path) -> Iterator[OpenStudy]:
    """None of its trials told a test MQL, which a program need not."""
    yield from searched_on_validation(tmp_path, said={})


def searched_on_validation(folder: Path, *, said: dict[str, float]) -> Iterator[OpenStudy]:
    url = f"sqlite:///{folder / f'tuner-{len(said)}.db'}"
    name = record_study(url, variant="rmsnorm", trials=8, mql_split="val", said=said)
    with closing(open_database(parse_url(url), create=False)) as database:
        yield open_study(database, name)


def values(study: OpenStudy, number: int) -> Point:
    """Of the search, as it minimised them."""
    return present(present(read_results(study).configuration_of(number)).values)


def result(job: TrialJob, *, contaminated: bool, test: bool = True) -> TrialResult:
    """A run whose validation MQL, which is its value, is near 0.8; its test MQL is 0.1 above."""
    drawn = drawn_result(job)
    seconds, mql = present(drawn.values)
    recorded = dataclasses.replace(
        drawn.recorded,
        contaminated=contaminated,
        val_mql=mql,
        test_mql=mql + 0.1 if test else None,
    )
    return TrialResult(TrialState.COMPLETE, (seconds, mql), recorded)


def some_disturbed(count: int = CONTAMINATED, *, test: bool = True) -> Callable[..., TrialResult]:
    """Of each configuration the first timings are contaminated."""
    seen: dict[int, int] = {}

    def run(job: TrialJob) -> TrialResult:
        seen[job.number] = seen.get(job.number, 0) + 1
        return result(job, contaminated=seen[job.number] <= count, test=test)

    return run


def verify(study: OpenStudy, run: Callable[..., Any], *, seeds: int = SEEDS) -> list[int]:
    """The trials of the configurations that ran."""
    plan_verification([study], top=2, seeds=seeds)
    verify_all([study], run)
    return list(verified_in(snapshot(study)))


def table(text: str) -> dict[int, str]:
    """The rows of a table by the trial that they begin with."""
    rows = [line for line in text.splitlines() if line.strip()[:1].isdigit()]
    return {int(line.split()[0]): line for line in rows}


def test_both_columns_are_of_the_test_split(
    study: OpenStudy, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers = verify(study, some_disturbed(0))
    print_verified([study], ended="filled")
    said = capsys.readouterr().out
    rows = table(said)
    for number in numbers:
        assert f" {TEST:.4f} " in rows[number], "beside a median of the test split"
        assert f"{values(study, number)[1]:.4f}" not in rows[number], "which is of validation"
    assert "test MQL in both columns; the search minimised the validation MQL" in said


def test_where_no_run_told_the_test_mql_both_columns_are_of_validation(
    without_test: OpenStudy, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers = verify(without_test, some_disturbed(0, test=False))
    print_verified([without_test], ended="filled")
    said = capsys.readouterr().out
    assert "val MQL (search)" in said
    assert "test MQL" not in said
    for number in numbers:
        assert f" {values(without_test, number)[1]:.4f} " in table(said)[number]
        found = load_best(
            study=without_test.name,
            trial=number,
            storage=without_test.database.address.full(),
        )
        (line,) = [line for line in headline(found) if line.startswith("Verified on")]
        assert "validation MQL 0." in line
        assert "test MQL" not in line


def test_the_document_has_what_the_table_has_where_timings_do_not_count(study: OpenStudy) -> None:
    numbers = verify(study, some_disturbed())
    (document,) = verification_document([study])["studies"]
    for each, verified in zip(
        document["configurations"], verified_in(snapshot(study)).values(), strict=True
    ):
        assert each["runs"] == {
            "planned": SEEDS,
            "finished": SEEDS,
            "converged": SEEDS,
            "missed": 0,
            "contaminated": CONTAMINATED,
        }
        clock, validation = values(study, each["trial"])
        assert each["search"] == {
            "wall_clock_s": clock,
            "val_mql": validation,
            "test_mql": TEST,
        }
        mql, epochs = present(verified.mql), present(verified.of_counted(lambda run: run.epochs))
        assert each["fresh_seeds"] == {
            "wall_clock_s": None,
            "test_mql": mql.as_dict() | {"runs": SEEDS},
            "epochs": epochs.as_dict() | {"runs": SEEDS},
        }
        assert each["verified"] is None, "it takes a time, as before"
    assert document["lacking"]["trials"] == numbers
    assert (document["lacking"]["choose"], document["lacking"]["seeds"]) == ("front", 7)


def test_a_document_without_anything_missing_says_so(study: OpenStudy) -> None:
    verify(study, some_disturbed(0))
    (document,) = verification_document([study])["studies"]
    assert document["lacking"] is None
    assert verification_document([study])["about_test_split"] == []
    assert status_of(study)["lacking"] is None
    for each in document["configurations"]:
        assert each["fresh_seeds"]["wall_clock_s"] == each["verified"]["wall_clock_s"] | {"runs": 5}


def test_what_is_missing_is_named_with_a_remedy_that_works(
    study: OpenStudy, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers = verify(study, some_disturbed())
    url = study.database.address.full()

    def picked() -> int:
        return load_best(study=study.name, pick="mql", values="verified", storage=url).trial

    with pytest.raises(TunerError) as refused:
        picked()
    remedy = "the same 'tuner verify' with --choose front --seeds 7 adds runs"
    counts = ", ".join(f"trial {number} has 3 of 5 (2 contaminated)" for number in numbers)
    assert "a median takes 5 that count" in str(refused.value)
    assert remedy in str(refused.value)
    assert counts in str(refused.value)
    print_status([study])
    said = capsys.readouterr().out
    assert f"{counts}: {remedy}" in said
    on_front = len({each.number for each in read_results(study).front} & {*numbers})
    assert f"({on_front} lack timings)" in said
    print_verified([study], ended="filled")
    assert f"{counts}: {remedy}" in capsys.readouterr().out
    # And it does work: two more runs of each, and no more.
    planned = plan_verification([study], top=2, seeds=7).new_runs
    assert planned == 2 * len(numbers)
    with pytest.raises(TunerError, match=f"{planned} runs are still to be made"):
        picked()
    verify_all([study], some_disturbed(0))
    assert picked() in numbers
    print_status([study])
    assert "timings" not in capsys.readouterr().out


def test_seeds_that_a_configuration_has_not_run_on_come_first(study: OpenStudy) -> None:
    """A second configuration joined later: it has room on the seeds that are there."""
    plan_verification([study], top=1, seeds=8)
    verify_all([study], some_disturbed(0))
    plan_verification([study], top=2, seeds=SEEDS)
    verify_all([study], some_disturbed())
    lacking = present(status_of(study)["lacking"])
    assert lacking["seeds"] == SEEDS + CONTAMINATED
    plan_verification([study], top=2, seeds=lacking["seeds"])
    verify_all([study], some_disturbed(0))
    assert status_of(study)["lacking"] is None


def test_runs_that_all_missed_have_no_remedy_by_seeds(study: OpenStudy) -> None:
    verify(study, missed)
    assert status_of(study)["lacking"] is None
    with pytest.raises(TunerError, match=r"has 0 of 5 \(5 missed\).*with a larger --top"):
        load_best(
            study=study.name,
            pick="mql",
            values="verified",
            storage=study.database.address.full(),
        )


def test_a_trial_tells_what_there_is_of_which_split(
    study: OpenStudy, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers = verify(study, some_disturbed())
    detail = read_trial(study, numbers[-1])
    print_trial(detail)
    said = " ".join(capsys.readouterr().out.split())
    assert f"(test {TEST:.4f})" in said
    assert "of the timings 3 of 5 (2 contaminated) count, and a median takes 5" in said
    assert present(detail.as_dict()["unverified"]).startswith("on 5 fresh seeds")
    found = load_best(study=study.name, trial=numbers[-1], storage=study.database.address.full())
    (figures,) = [line for line in headline(found) if "to convergence" in line]
    assert f"(test MQL {TEST:.4f})" in figures


def test_the_table_of_trials_names_values_by_their_split(without_test: OpenStudy) -> None:
    results, files = read_results(without_test), StudyFiles()
    announced = map(json.loads, files.attributes(without_test, results).values())
    (number,) = (each["artifact_id"] for each in announced if each["filename"] == "trials.csv")
    rows = list(csv.DictReader(io.StringIO(present(files.find(number)).content())))
    for row, record in zip(rows, results.records, strict=True):
        assert "test_mql" not in row
        if record.values:
            assert float(row["val_mql"]) == record.values[1]


def test_a_comparison_says_whose_mqls_are_of_validation(
    study: OpenStudy, without_test: OpenStudy
) -> None:
    stands = "its validation MQL stands for it here"
    assert stands in " ".join(differences([snapshot(without_test)]))
    assert stands not in " ".join(differences([snapshot(study)]))
