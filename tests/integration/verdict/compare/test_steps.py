"""What each step of a rewrite costs, of recorded runs whose factors are known."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.support.drawn_verifications import drawn_result, verify_all
from tests.support.forked_cli import run
from tests.support.recorded_studies import record_study
from tuner.errors import UsageError
from tuner.storage.database import open_database
from tuner.storage.records import TrialResult
from tuner.storage.url import parse_url
from tuner.study.open import open_study
from tuner.trial.job import TrialJob
from tuner.verdict.compare.steps import Row, StepsReport, steps_report
from tuner.verdict.verification_plan import plan_verification

VARIANTS = ("original", "simple", "rmsnorm", "layernorm", "batchnorm")
PACE = {"simple": 0.8, "rmsnorm": 0.8, "layernorm": 0.8}
EPOCHS = {"rmsnorm": 1.9, "layernorm": 1.9 * 1.3, "batchnorm": 1.2}
MQL = {"layernorm": 0.05}


def known(job: TrialJob) -> TrialResult:
    """A step each: simple saves a fifth an epoch, rmsnorm takes 1.9 times the epochs, layernorm has
    1.3 times these and another MQL; captured, all takes a tenth. Something disturbs two timings of
    simple, and a limit cuts off two runs of batchnorm.
    """
    variant = job.study.removeprefix("demo-").removesuffix("-captured")
    captured = job.study.endswith("-captured")
    result = drawn_result(job, mql=0.8 + MQL.get(variant, 0.0))
    rng = np.random.default_rng([job.seed or 0, len(job.study)])
    epochs = round(60 * EPOCHS.get(variant, 1.0) * np.exp(rng.normal(0, 0.06)))
    pace = (0.1 if captured else 1.0) * PACE.get(variant, 1.0) * np.exp(rng.normal(0, 0.02))
    odd = (job.seed or 0) % 4 == 0
    recorded = replace(
        result.recorded,
        epochs=epochs,
        s_per_epoch=pace * (5 if odd and variant == "simple" else 1),
        contaminated=odd and variant == "simple",
        converged=not (odd and variant == "batchnorm"),
        backend="graph" if captured else "eager",
    )
    return TrialResult(result.state, result.values, recorded)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    url = f"sqlite:///{tmp_path_factory.mktemp('steps')}/tuner.db"
    names = [record_study(url, variant=variant, trials=1) for variant in VARIANTS]
    others = [(variant, f"demo-{variant}-captured") for variant in ("original", "rmsnorm")]
    names += [record_study(url, variant=variant, trials=1, name=name) for variant, name in others]
    record_study(url, variant="rmsnorm", trials=1, name="unverified")
    database = open_database(parse_url(url), create=False)
    opened = [open_study(database, name) for name in names]
    plan_verification(opened, top=1, seeds=8)
    verify_all(opened, known)
    yield url
    database.close()


def told(url: str, *names: str) -> StepsReport:
    return steps_report(names, task="demo", storage=url)


def row_of(report: StepsReport, kind: str, loop: str = "eager") -> Row:
    return next(row for row in report.rows if (row.kind, row.loop) == (kind, loop))


def covers(row: Row, **factors: float) -> None:
    for figure, true in factors.items():
        change = row.changes[figure]
        assert change.low <= true <= change.high, figure


def test_each_step_has_its_factors_and_they_multiply_to_the_whole(url: str) -> None:
    report = told(url, "original", "simple", "rmsnorm", "layernorm")
    steps: Sequence[Row] = report.rows[:-1]
    covers(steps[0], s_per_epoch=0.8, epochs=1.0, total_time_s=0.8, test_mql=0.0)
    covers(steps[1], s_per_epoch=1.0, epochs=1.9, total_time_s=1.9, test_mql=0.0)
    covers(steps[2], s_per_epoch=1.0, epochs=1.3, total_time_s=1.3, test_mql=0.05)
    whole = report.rows[-1]
    assert (whole.kind, whole.before, whole.after) == ("whole", "original", "layernorm")
    covers(whole, s_per_epoch=0.8, epochs=2.47, total_time_s=0.8 * 2.47)
    for figure in ("s_per_epoch", "epochs", "total_time_s"):
        together = np.prod([row.changes[figure].estimate for row in steps])
        assert whole.changes[figure].estimate == pytest.approx(together)
    for row in report.rows:
        product = row.changes["s_per_epoch"].estimate * row.changes["epochs"].estimate
        assert row.changes["total_time_s"].estimate == pytest.approx(product)
    assert report.carried_by == {
        "s_per_epoch": "simple",
        "epochs": "rmsnorm",
        "total_time_s": "rmsnorm",
        "test_mql": "layernorm",
    }
    assert report.answer.startswith("rmsnorm carries the cost: 1.")
    assert "simple: 2" in report.answer
    assert "% fewer seconds an epoch" in report.answer
    (disturbed,) = report.notes
    assert "simple" in disturbed
    assert "contaminated" in disturbed


def test_both_orders_of_two_changes_and_what_they_do_together(url: str) -> None:
    report = told(url, "original", "simple", "rmsnorm", "batchnorm@swap")
    assert [row.kind for row in report.rows] == [
        *["step"] * 2,
        *["other order"] * 2,
        "interaction",
        "whole",
    ]
    assert [row.after for row in report.rows[2:4]] == ["batchnorm", "rmsnorm"]
    together = row_of(report, "interaction").changes
    assert together["s_per_epoch"].low <= 1.0 <= together["s_per_epoch"].high
    assert together["epochs"].bound == "at most"  # batchnorm would have taken longer
    assert "both changes together, beside each alone: at most" in report.answer
    assert any("batchnorm" in note and "cut off" in note for note in report.notes)
    with pytest.raises(UsageError, match="three, where a fourth has @swap"):
        told(url, "original", "batchnorm@swap")


def test_two_loops_have_a_total_each(url: str) -> None:
    both = [f"{name},study:demo-{name}-captured" for name in ("original", "rmsnorm")]
    report = told(url, both[0], both[1])
    assert [(row.kind, row.loop, row.backends) for row in report.rows] == [
        ("step", "captured", ("graph",)),
        ("whole", "captured", ("graph",)),
        ("step", "eager", ("eager",)),
        ("whole", "eager", ("eager",)),
    ]
    assert "the whole on the eager loop: " in report.answer


def test_what_lacks_runs_is_named_with_the_command_that_makes_them(url: str) -> None:
    report = told(url, "original", "study:unverified", "rmsnorm@best")
    assert report.rows == ()
    assert report.answer == "Nothing can be said yet: too few runs on fresh seeds."
    for line, command in zip(report.missing, ("--choose front", "--confirm"), strict=True):
        assert "0 of 3 runs on fresh seeds" in line
        assert f"tuner verify {command}" in line


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (["original"], "two names at least"),
        (["original", "original"], "one is named twice"),
        (["original,simple", "rmsnorm"], "have different configurations"),
    ],
)
def test_what_is_no_chain_is_refused(url: str, names: list[str], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        told(url, *names)


def test_the_command_prints_the_answer_first_and_writes_what_the_table_holds(
    url: str, tmp_path: Path
) -> None:
    command = ("compare", "original", "simple", "rmsnorm", "--steps", "--task", "demo")
    files = ("--csv", "steps.csv", "--html", "steps.html")
    for _ in range(2):  # it writes over its own files
        done = run(*command, "--storage", url, *files, folder=tmp_path)
        assert done.code == 0, done.err
    assert done.out.startswith("rmsnorm carries the cost: ")
    rows = list(csv.DictReader((tmp_path / "steps.csv").open(encoding="utf-8")))
    document = json.loads(run(*command, "--storage", url, "--json", folder=tmp_path).out)
    assert [row["after"] for row in rows] == [row["after"] for row in document["rows"]]
    changes = document["rows"][1]["changes"]
    assert float(rows[1]["epochs_low"]) == changes["epochs"]["low"]
    page = (tmp_path / "steps.html").read_text(encoding="utf-8")
    assert "step: simple -&gt; rmsnorm" in page
    assert "seconds an epoch" in page
    refused = run(*command, "--pick", "knee", folder=tmp_path)
    assert refused.code == 2
