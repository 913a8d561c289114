"""What the campaign consists of, how far it is, and how long the rest takes."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[2]))
from benchmarks.shared.circumstances import QUICK as QUICK_DATA
from tuner.errors import UsageError
from tuner.storage.database import Database
from tuner.study.open import OpenStudy, open_study
from tuner.study.results import StudyResults, read_results
from tuner.verdict.runs_model import front_of_runs
from tuner.verdict.verification_plan import configurations, study_names
from tuner.verdict.verified import verifications_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Studies that are searched together, each until it holds so many trials."""

    variants: tuple[str, ...]
    trials: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """Searches, then the verification of all of them; none where `seeds` is 0."""

    task: str
    searches: tuple[Search, ...]
    top: int
    seeds: int
    options: tuple[str, ...] = ()
    """More for `tuner launch`."""

    @property
    def variants(self) -> tuple[str, ...]:
        return tuple(variant for search in self.searches for variant in search.variants)

    def studies(self, search: Search | None = None) -> list[str]:
        """Names of the studies of a search, or of all."""
        return study_names(",".join(search.variants if search else self.variants), task=self.task)


FULL = Campaign(
    task="etth",
    searches=(
        Search(variants=("original", "rmsnorm"), trials=200),
        Search(variants=("layernorm", "simple", "batchnorm"), trials=80),
    ),
    top=5,
    seeds=10,
    options=("--sampler", "tpe"),
)
"""TPE throughout, as it began: `auto` asked Gaussian processes that took some tenths of a second a suggestion then."""

TABLE = Campaign(
    task="etth",
    searches=(Search(variants=("original",), trials=400),),
    top=0,
    seeds=0,
    options=("--sampler", "qmc", "--no-prune"),
)
"""Trials that cover the space, each trained to its own end: for the samplers' table and for the replay of pruning."""

PRUNED = Campaign(
    task="etth",
    searches=(Search(variants=("original",), trials=200),),
    top=0,
    seeds=0,
    options=("--sampler", "qmc", "--prune"),
)
"""The first trials of `TABLE` again, with pruning: the same configurations and seeds, since the study's name fixes the
sequence."""

THOUSAND = Campaign(
    task="etth",
    searches=(Search(variants=("original",), trials=1000),),
    top=0,
    seeds=0,
    options=("--sampler", "tpe", "--prune"),
)
"""A long search: trials an hour on one GPU, and what the time goes to.
benchmarks/study_overhead/study_overhead.py --study says it."""

QUICK = Campaign(
    task=str(QUICK_DATA / "quick.toml"),
    searches=(Search(variants=(str(Path(__file__).parent / "quick-original.toml"),), trials=2),),
    top=1,
    seeds=2,
    options=("--reruns", "0", "--sampler", "random"),
)
"""A dry run: everything that the campaign does, on generated data, in seconds on a CPU."""


PLANS = {"campaign": FULL, "table": TABLE, "pruned": PRUNED, "thousand": THOUSAND, "quick": QUICK}


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One line of what is to be done. `each_s` is the seconds that one takes a worker; None before the first."""

    name: str
    done: int
    wanted: int
    each_s: float | None

    @property
    def left(self) -> int:
        return max(0, self.wanted - self.done)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the campaign is."""

    items: tuple[Item, ...]

    def left_s(self, workers: int) -> float | None:
        """Seconds until the end with so many workers; None before anything was measured.

        What has no trial yet is taken to take what the others take.
        """
        known = [item.each_s for item in self.items if item.each_s is not None]
        if not known:
            return None
        usual = statistics.fmean(known)
        return (
            sum(item.left * (usual if item.each_s is None else item.each_s) for item in self.items)
            / workers
        )

    def lines(self) -> list[str]:
        """A table in Markdown."""
        rows = ["| what | done | wanted | s each |", "|---|---|---|---|"]
        for item in self.items:
            each = "" if item.each_s is None else f"{item.each_s:.2f}"
            rows.append(f"| {item.name} | {item.done} | {item.wanted} | {each} |")
        return rows


VERIFICATION = "verification runs"


def progress(campaign: Campaign, database: Database | None) -> Progress:
    """How far the campaign is in this database; None where there is none yet."""
    items, opened = [], []
    planned = 0
    for search in campaign.searches:
        for name in campaign.studies(search):
            study = _opened(database, name)
            results = read_results(study) if study is not None else None
            done = study.ledger.counts().finished if study is not None else 0
            items.append(Item(name=name, done=done, wanted=search.trials, each_s=_trial_s(results)))
            planned += campaign.seeds * _to_verify(results, campaign.top)
            opened += [study] if study is not None else []
    if not campaign.seeds:
        return Progress(tuple(items))
    runs = verifications_of(opened).runs() if opened else ()
    finished = [
        run.result.recorded
        for run in runs
        if run.state in ("finished", "skipped") and run.result is not None
    ]
    wanted = sum(run.state != "skipped" for run in runs) if runs else planned
    items.append(
        Item(
            name=VERIFICATION,
            done=len(finished),
            wanted=wanted,
            each_s=_mean(each.total_s for each in finished),
        )
    )
    return Progress(tuple(items))


def _opened(database: Database | None, name: str) -> OpenStudy | None:
    try:
        return open_study(database, name) if database is not None else None
    except UsageError:  # not created yet
        return None


def _trial_s(results: StudyResults | None) -> float | None:
    """What a trial takes its worker: its whole cycle, where that is known."""
    said = [record.recorded for record in results.records] if results is not None else []
    return _mean(each.total_s if each.cycle_s is None else each.cycle_s for each in said)


def _to_verify(results: StudyResults | None, top: int) -> int:
    """How many configurations will be verified: the default one and at most `top` of the front."""
    return (
        len(configurations(results, top, front_of_runs(results)))
        if results and results.front
        else top + 1
    )


def _mean(values: Sequence[Any] | Any) -> float | None:
    known = [float(value) for value in values if value is not None]
    return statistics.fmean(known) if known else None
