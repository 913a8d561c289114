"""`tuner gate` and what its page tells a CI to run: files, plans, claims and results are real,
trainings are drawn."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.drawn_verifications import drawn_result
from tests.support.forked_cli import Done, run_here
from tests.support.paths import REPOSITORY
from tests.support.small_study import STUDY_TOML, TASK_TOML
from tuner.cli.options import opened_database
from tuner.launch.crew import Crew
from tuner.launch.request import Outcome, Progress, StopRequests
from tuner.storage.records import TrialResult
from tuner.study.open import OpenStudy, list_studies, open_study
from tuner.trial.job import TrialJob
from tuner.worker.loop import Worker
from tuner.worker.process import StopFlag
from tuner.worker.trial_source import TrialSource, VerificationSource

GATE = ["gate", "--variant", "model.toml", "--against", "base.toml"]
GATE += ["--task", "task.toml", "--cpu", "--seeds", "10"]


@dataclass(slots=True)
class Trainings:
    """Drawn figures in place of workers: the changed model's MQL may be higher, its time longer."""

    mql: float = 1.0
    time: float = 1.0
    until: int = 1000
    """After so many it is ended from outside."""
    by: signal.Signals | None = None
    """The signal that ends it; None: its time is over."""
    made: int = 0
    stop: StopFlag = field(default_factory=StopFlag)

    def one(self, job: TrialJob) -> TrialResult | None:
        if self.made >= self.until:
            if self.by is not None:
                os.kill(os.getpid(), self.by)
            self.stop.set()
            return None
        self.made += 1
        new = job.study.endswith("-new")
        seconds, mql = 10 * self.time**new, 0.8 * self.mql**new + 0.02 * job.number
        return drawn_result(job, seconds=seconds, mql=mql, sd_time=0.01, sd_mql=0.001)

    def work(
        self, crew: Crew, studies: Sequence[OpenStudy], progress: Progress, stop: StopRequests
    ) -> Outcome:
        source = VerificationSource if crew.verify else TrialSource
        self.stop = StopFlag()
        device = crew.devices[0]
        with progress.watching(studies):
            Worker(studies, device, self.one, source=source, stop=self.stop, name="drawn").run()
        if not self.stop.is_set() or stop.first is not None:
            return stop.first or Outcome.FILLED
        assert crew.deadline is not None
        assert crew.deadline > time.monotonic() + 3000
        return Outcome.TIMED_OUT


@pytest.fixture
def trainings(monkeypatch: pytest.MonkeyPatch) -> Trainings:
    drawn = Trainings()
    monkeypatch.setattr(Crew, "work", lambda crew, *given: drawn.work(crew, *given[:3]))
    return drawn


@pytest.fixture
def gate(tmp_path: Path) -> Callable[..., Done]:
    """The command in a folder with a changed file that is called as the one before."""
    write(tmp_path)
    (tmp_path / "base.toml").write_text(STUDY_TOML, encoding="utf-8")
    return partial(run_here, *GATE, folder=tmp_path)


def write(folder: Path) -> None:
    (folder / "task.toml").write_text(TASK_TOML, encoding="utf-8")
    changed = STUDY_TOML.replace("dropout = 0.1\n", "dropout = 0.2\n")
    (folder / "model.toml").write_text(changed, encoding="utf-8")


def test_the_answer_is_a_sentence_a_table_a_report_and_an_exit_code(
    gate: Callable[..., Done], trainings: Trainings, tmp_path: Path
) -> None:
    done = gate("--output", "report.md")
    assert done.code == 0, done.err
    sentence, _, *table = done.out.splitlines()
    assert sentence == (
        "`model.toml` is as good as `base.toml`, or better: MQL and time to convergence passed "
        "after 10 pairs of trainings."
    )
    assert len(sentence.split()) <= 25
    assert (tmp_path / "report.md").read_text() == f"<!-- tuner gate -->\n{done.out}"
    assert [line.count("|") for line in table] == [7] * 5
    made = trainings.made
    document = gate("--json", "--output", "report.md").json()  # its own report it writes over
    assert (document["answer"], document["sentence"], made) == (
        "as good or better",
        sentence,
        trainings.made,
    )
    (tmp_path / "report.md").write_text("mine")
    assert gate("--output", "report.md").code == 2
    (tmp_path / "model.toml").write_text(STUDY_TOML.replace("1e-3", "2e-3"))
    assert gate("--only", "mql").code == 0
    assert trainings.made > made  # another model is another question


@pytest.mark.parametrize(
    ("planted", "said"),
    [
        ({"mql": 1.03}, r"MQL is [23]\.\d % higher, 1 % is allowed\."),
        ({"time": 1.3}, r"time to convergence is (2[89]|3[0-2])\.\d % higher, 10 % is allowed\."),
    ],
)
def test_what_is_planted_worse_is_found(
    gate: Callable[..., Done], trainings: Trainings, planted: dict[str, float], said: str
) -> None:
    for name, factor in planted.items():
        setattr(trainings, name, factor)
    done = gate()
    assert done.code == 3, done.out
    sentence = done.out.splitlines()[0]
    assert re.search(said, sentence)
    assert len(sentence.split()) <= 25


@pytest.mark.parametrize(
    ("by", "code", "ended"),
    [
        (signal.SIGINT, 130, "interrupted"),
        (signal.SIGTERM, 143, "terminated"),
        (None, 4, "timed_out"),
    ],
)
def test_it_goes_on_where_it_was_ended(
    gate: Callable[..., Done],
    trainings: Trainings,
    tmp_path: Path,
    by: signal.Signals | None,
    code: int,
    ended: str,
) -> None:
    trainings.until, trainings.by = 7, by
    first = gate("--json", "--timeout", "1h")
    assert (first.code, first.json()["outcome"]) == (code, ended)
    assert first.json()["sentence"] == "Undecided: it ended before the first look."
    assert "the same command continues where this one stopped" in first.err
    trainings.until = 1000
    assert gate().code == 0
    assert trainings.made == 20
    with opened_database(f"sqlite:///{tmp_path}/storage/tuner.db") as database:
        runs = [
            run
            for name in list_studies(database)
            for run in open_study(database, name).verifications.runs()
        ]
    assert {run.state for run in runs} == {"finished"}
    assert len({run.seed for run in runs}) == 10


def test_a_changed_model_may_have_a_search_first(
    gate: Callable[..., Done], trainings: Trainings
) -> None:
    assert gate("--retune").code == 2
    done = gate("--retune", "--budget", "50s")
    assert done.code == 4
    assert re.fullmatch(
        "Undecided: a recommendation takes 12 configurations that converged, its default among "
        r"them; the search of `model\.toml` has [345]: raise --budget\.\n",
        done.out,
    )
    done = gate("--retune", "--budget", "200s", "--json")
    assert done.code in (0, 3), done.err
    assert trainings.made > done.json()["pairs"] * 2


BLOCKS = re.findall(r"```yaml\n(.*?)```", (REPOSITORY / "docs/watch.md").read_text(), re.DOTALL)


def lines_of(job: dict[str, Any]) -> list[str]:
    return job.get("script") or [step["run"] for step in job["steps"] if "run" in step]


@pytest.mark.parametrize("block", BLOCKS)
def test_every_line_of_a_ci_runs_in_a_fresh_clone(
    block: str, tmp_path: Path, trainings: Trainings
) -> None:
    document = yaml.safe_load(block)
    (job,) = document.get("jobs", document).values()
    origin, clone = tmp_path / "origin", tmp_path / "clone"
    origin.mkdir()
    (origin / "model.toml").write_text(STUDY_TOML, encoding="utf-8")
    git = "git -c user.name=ann -c user.email=ann@example.org"
    shell(f"git init -q -b main && git add . && {git} commit -qm first", origin)
    shell(f"git clone -q {origin} {clone}", tmp_path)
    write(clone)
    ran = 0
    for line in lines_of(job):
        if line == "pip install tuner":
            continue
        if line.startswith("tuner "):
            done = run_here(*line.split()[1:], folder=clone)
            assert done.code == 0, done.err
            ran += 1
        else:
            shell(line, clone)
    assert ran == 1
    assert (clone / "report.md").read_text().startswith("<!-- tuner gate -->\n`model.toml` is as")


def shell(line: str, folder: Path) -> None:
    names = {"GITHUB_BASE_REF": "main", "CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "main"}
    environment = {**names, "GITHUB_STEP_SUMMARY": str(folder / "summary.md"), "PATH": "/usr/bin"}
    subprocess.run(["bash", "-ec", line], cwd=folder, env=environment, check=True)
