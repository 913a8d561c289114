"""`tuner retune` as people run it: killed in its stages, given again, and once more when it is
over."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from sqlalchemy import select

from tests.support.cli_processes import STUDY, Bench, finished, kill, wait_for, workers_of
from tests.support.small_study import write_paced
from tuner.spec.margin import STEPS
from tuner.spec.policy import Registered
from tuner.storage import schema
from tuner.storage.queue.claims import ATTEMPTED
from tuner.storage.queue.verifications import is_confirmation
from tuner.study.open import list_studies, open_study, registered_in

STAGES = ("confirmation",)
"""Those in which it is killed; searches are killed in the tests of launches. These searches run
promising configurations again, so the stage in between has nothing to do."""
pytestmark = pytest.mark.slow
TWO = [STUDY, f"{STUDY}-2"]
SMALL = ["retune", "--variant", "small.toml", "--task", "tiny.toml"]
SIZES = {
    "workers": 1,
    "searches": 2,
    "trials": 20,
    "top": 1,
    "confirm-seeds": 5,
    "reruns": 0,
}
RETUNE = [*SMALL, "--cpu", *(f"--{name}={value}" for name, value in SIZES.items())]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    bench = Bench(tmp_path, f"sqlite:///{tmp_path}/storage/tuner.db")
    write_paced(tmp_path)
    # No epoch is ever better by this much than the first: each run converges, as it were, with
    # its second.
    file = tmp_path / "small.toml"
    text = file.read_text().replace("patience = 100000", "patience = 1\nmin_delta = 1e6")
    file.write_text("\n".join(map(fixed, text.splitlines())), encoding="utf-8")
    # All forecast alike, and the default's dropout costs time: it stands nowhere.
    network = tmp_path / "paced.py"
    text = network.read_text().replace("super().forward(*given)", "1e-6 * super().forward(*given)")
    text = text.replace(
        "    def forward(self, *given):\n",
        "        self.dropout = sizes['dropout']\n\n"
        "    def forward(self, *given):\n"
        "        time.sleep(0.03 * (self.dropout == 0.1))\n",
    )
    network.write_text(text, encoding="utf-8")
    return bench


def fixed(line: str) -> str:
    """A line of the study file without the ranges that there is nothing to learn of here."""
    return "" if line.startswith(("weight_decay = {", "hidden_size = {")) else line


Results = dict[str, dict[tuple[int, int], str]]


def results(bench: Bench) -> Results:
    """All results that count, by stage, each under its trial, or its trial and seed."""
    found: Results = {"search": {}, "re-evaluation": {}, "confirmation": {}}
    if not (bench.folder / "storage" / "tuner.db").exists():
        return found
    with bench.database() as database:
        with database.engine.connect() as connection:
            claims = connection.execute(select(schema.work).where(ATTEMPTED)).all()
        for row in claims:
            key = (row.study_id, row.trial_number)
            if row.state == "finished":
                assert key not in found["search"], "a trial has one result"
                found["search"][key] = row.result
        for name in list_studies(database):
            for run in open_study(database, name).verifications.runs():
                stage = str(run.plan.get("kind", "re-evaluation"))
                if run.result is not None and not run.copied:
                    key = (1000 * run.study_id + run.trial_number, run.seed)
                    found[stage][key] = run.result.to_json()
    return found


def killed_in(bench: Bench, stage: str) -> Results:
    """What there is after a retune was killed once `stage` had a result, and before it had all."""
    slow = bench.folder / "slow"
    process = bench.start(*RETUNE, cores=1)
    try:
        says_that_it_begins(process, stage)
        slow.write_text("0.1", encoding="utf-8")
        wait_for(lambda: results(bench)[stage], f"a first result of the {stage}")
        assert process.poll() is None, "it ended early"
        kill([process])  # alone: its workers hand back what they run, and end
    finally:
        kill([process])
        process.communicate()
    wait_for(lambda: not workers_of(process.pid), "the workers' end")
    slow.unlink()
    return results(bench)


def says_that_it_begins(process: subprocess.Popen[str], stage: str) -> None:
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(line)
        if f", {stage}: 0 of " in line:
            return
    raise AssertionError(f"it ended early: {''.join(said)}")


def test_killed_in_its_stages_it_ends_with_exact_counts_and_says_the_same_again(
    bench: Bench,
) -> None:
    before: Results = {}
    for stage in STAGES:
        now = killed_in(bench, stage)
        for earlier, there in before.items():
            assert there.items() <= now[earlier].items(), "nothing that was computed is lost"
        before = now
        with bench.database() as database:
            assert registered_in(database, STUDY) == Registered(
                searches=2, trials=20, confirm_seeds=5
            )

    done = finished(bench.start(*RETUNE, cores=1))
    assert done.code == 0, done.err
    after = results(bench)
    for stage, there in before.items():
        assert there.items() <= after[stage].items()
    assert after["search"] == before["search"], "it was over before the last kill"
    assert after["re-evaluation"] == {}
    with bench.database() as database:
        for name in TWO:
            study = open_study(database, name)
            assert study.ledger.counts().finished == 20
            runs = study.verifications.runs()
            assert {run.state for run in runs} == {"finished"}
            assert all(is_confirmation(run.plan) for run in runs)
            configurations = {run.trial_number for run in runs}  # the default's, and those tested
            assert len(configurations) <= 1 + STEPS
            assert {(run.trial_number, run.seed) for run in runs} == {
                (number, seed) for number in configurations for seed in {run.seed for run in runs}
            }
            assert len(runs) == 5 * len(configurations), "each runs once on each of five seeds"
            assert len({run.session for run in runs}) == 1
        assert registered_in(database, STUDY) == Registered(
            searches=2, trials=20, confirm_seeds=5, finished=True
        )
    assert "stage 1 of 4, search: done, 40 trials" in done.err
    assert "stage 2 of 4, re-evaluation: not needed" in done.err
    *sentences, more, shown, best, train, predict, dashboard = done.out.splitlines()
    assert "Details: " in more
    details = bench.run(*RETUNE, "--details", cores=1).out
    assert details.startswith("\n".join(["Answer:", *(f"  {each}" for each in sentences)]))
    assert "Confirmed on untouched seeds:" in details
    assert "The retune of small took " in details
    page = bench.folder / "storage" / f"retune-{STUDY}.html"
    assert shown == f"Page: {page}"
    assert best.startswith("Next: tuner best --study ")
    assert predict.split() == ["tuner", "predict", "model.safetensors", "recent.csv"]
    assert [each.split()[1] for each in (train, dashboard)] == ["train", "dashboard"]
    assert "What it cost, and what it gives" in page.read_text(encoding="utf-8")

    again = bench.run(*RETUNE, cores=1)
    assert (again.code, again.out) == (0, done.out)
    assert results(bench) == after
    other = bench.run(*RETUNE, "--trials", "21")
    assert other.code == 2
    assert "was registered with --trials 20, and keeps that" in other.error
    short = bench.run(*SMALL, "--json")
    document = short.json()
    assert (document["outcome"], document["registered"]["trials"]) == ("filled", 20)
    assert [each["done"] for each in document["stages"]][:3] == [
        len(after[stage]) for stage in ("search", "re-evaluation", "confirmation")
    ]
    assert "keeps --searches 2 --trials 20" in short.err
