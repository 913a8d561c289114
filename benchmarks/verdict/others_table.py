"""What the searches of benchmarks/verdict/others.py came to, and the report of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.stats import t as student

from benchmarks.verdict.budgets import Gpu, Judged, judged
from benchmarks.verdict.made_jobs import KINDS, OTHER_KNOBS
from benchmarks.verdict.others_contenders import ENTRIES, Entry
from benchmarks.verdict.others_rules import OWN, in_words, tested
from benchmarks.verdict.truths import Training
from tuner.spec.margin import CONFIRMATION_SEEDS, MARGIN

LEVEL = 0.9
REFERENCE = "kg"
HEADER = (
    "| contender | what is recommended | searches | time after confirmation | times kg's, 90 % "
    "| recommended | truly within | confirmed | of these truly within | trainings, configurations "
    "| suggestions, s | waited for, s |"
)

RULE_HEADER = "| contender | our steps, in place of | gives so many times the time, 90 % |"
SHORT = (
    "| contender | what is recommended | searches | time after confirmation | times `kg`'s, 90 % "
    "| truly within | trainings | seconds of suggestions a training |"
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One search by one rule."""

    contender: str
    rule: str
    truth: str
    seed: int
    recommended: Judged
    trainings: int
    configurations: int
    suggest_s: float
    waited_s: float


def outcomes(found: dict[str, Any], entry: Entry) -> list[Outcome]:
    """Of one search: what each rule of its contender makes of its runs."""
    gpu = Gpu(found["truth"], found["seed"], found["budget_s"])
    for row in found["trials"]:
        gpu.record(tuple(row[:-3]), Training(*row[-3:]))
    rows = []
    for rule in entry.rules:
        own = () if found["own"] is None else (tuple(found["own"]),)
        steps = own if rule == OWN else tested(rule, gpu)
        rows.append(
            Outcome(
                entry.key,
                rule,
                gpu.name,
                gpu.seed,
                judged(gpu, steps, seeds=CONFIRMATION_SEEDS),
                len(gpu.trained),
                len({place for place, _ in gpu.trained}),
                found["suggest_s"],
                found["waited_s"],
            )
        )
    return rows


def summary(rows: Sequence[Outcome], reference: Sequence[Outcome]) -> dict[str, Any]:
    """Of one contender and rule, with the difference to the reference on the same truths and seeds.

    Truths count alike. The interval is Student's, of the truths' mean differences: it holds for
    other truths of that kind, and takes two.
    """
    gains: dict[str, list[float]] = {}
    for row in rows:
        gains.setdefault(row.truth, []).append(row.recommended.log_gain)
    named = [row.recommended for row in rows if row.recommended.recommended]
    confirmed = sum(n.confirmed for n in named)
    return {
        "contender": rows[0].contender,
        "rule": rows[0].rule,
        "searches": len(rows),
        "truths": len(gains),
        "after_confirmation": math.exp(-float(np.mean([np.mean(m) for m in gains.values()]))),
        "times_kg": interval(differences(rows, reference)),
        "recommended": len(named) / len(rows),
        "truly_within": float(np.mean([n.worse_by <= MARGIN for n in named])) if named else None,
        "confirmed": confirmed / len(named) if named else None,
        "confirmed_within": 1 - sum(n.wrong for n in named) / confirmed if confirmed else None,
        "trainings": float(np.mean([row.trainings for row in rows])),
        "configurations": float(np.mean([row.configurations for row in rows])),
        "suggest_s": float(np.mean([row.suggest_s for row in rows])),
        "waited_s": float(np.mean([row.waited_s for row in rows])),
    }


def differences(rows: Sequence[Outcome], reference: Sequence[Outcome]) -> list[float]:
    """Of log time after confirmation, of each truth the mean over the seeds that both have."""
    theirs = {(row.truth, row.seed): row.recommended.log_gain for row in reference}
    apart: dict[str, list[float]] = {}
    for row in rows:
        if (row.truth, row.seed) in theirs:
            more = theirs[row.truth, row.seed] - row.recommended.log_gain
            apart.setdefault(row.truth, []).append(more)
    return [float(np.mean(mine)) for mine in apart.values()]


def interval(logs: Sequence[float]) -> list[float | None]:
    """The exponential of a mean, with the ends of its interval; None of what is not known."""
    if not logs:
        return [None, None, None]
    mean = float(np.mean(logs))
    if len(logs) == 1:
        return [math.exp(mean), None, None]
    error = float(np.std(logs, ddof=1)) / math.sqrt(len(logs))
    half = float(student.ppf((1 + LEVEL) / 2, len(logs) - 1)) * error
    return [math.exp(mean), math.exp(mean - half), math.exp(mean + half)]


def document_of(
    found: Sequence[dict[str, Any]], budget_s: float, left_out: Sequence[str]
) -> dict[str, Any]:
    by_key = {entry.key: entry for entry in ENTRIES}
    rows = [row for each in found for row in outcomes(each, by_key[each["contender"]])]
    reference = [row for row in rows if row.contender == REFERENCE]
    methods: list[dict[str, Any]] = []
    rules: list[dict[str, Any]] = []
    for entry in ENTRIES:
        of_rule = {
            r: [row for row in rows if (row.contender, row.rule) == (entry.key, r)]
            for r in entry.rules
        }
        methods += [summary(mine, reference) for mine in of_rule.values() if mine]
        for rule in entry.rules[:-1]:
            if of_rule[rule]:
                times = interval(differences(of_rule[entry.rules[-1]], of_rule[rule]))
                rules.append({"contender": entry.key, "in_place_of": rule, "times": times})
    libraries: dict[str, list[str]] = {}
    for each in found:
        for name, version in each["libraries"].items():
            if version is not None and version not in libraries.setdefault(name, []):
                libraries[name].append(version)
    return {
        "budget_s": budget_s,
        "libraries": libraries,
        "cpus": sorted({each["cpu"] for each in found}),
        "left_out": list(left_out),
        "methods": methods,
        "rules": rules,
        "outcomes": [asdict(row) for row in rows],
    }


def lines(document: dict[str, Any]) -> list[str]:
    names = {entry.key: entry.name for entry in ENTRIES}
    versions = (f"{n} {' and '.join(v)}" for n, v in document["libraries"].items())
    text = [
        f"{document['budget_s']:g} GPU seconds each, suggestions included; confirmation apart.",
        f"Libraries: {', '.join(versions)}.",
        f"Suggestions: one thread of {' or '.join(document['cpus'])}, with others at work.",
    ]
    text += [f"Left out: {name}." for name in document["left_out"]]
    text += ["", HEADER, "|" + "---|" * HEADER.count(" |")]
    for s in document["methods"]:
        rule = in_words(s["rule"])
        text.append(
            f"| {names[s['contender']]} | {rule} | {s['searches']} on {s['truths']} truths "
            f"| {s['after_confirmation']:.3f} | {_times(s)} | {s['recommended']:.0%} "
            f"| {_share(s['truly_within'])} | {_share(s['confirmed'])} "
            f"| {_share(s['confirmed_within'])} | {s['trainings']:.0f}, {s['configurations']:.0f} "
            f"| {s['suggest_s']:.1f} | {s['waited_s']:.1f} |"
        )
    text += ["", RULE_HEADER, "|---|---|---|"]
    for r in document["rules"]:
        rule = in_words(r["in_place_of"])
        text.append(f"| {names[r['contender']]} | {rule} | {_with_ends(r['times'])} |")
    return [*text, *by_kind(document)]


def by_kind(document: dict[str, Any]) -> list[str]:
    """Of made jobs, the time after confirmation by what decides; empty of others."""
    gains: dict[tuple[str, str], dict[str, list[float]]] = {}
    for each in document["outcomes"]:
        made, *kind = each["truth"].split(", ")[:2]
        if made == "made":
            mine = gains.setdefault((each["contender"], each["rule"]), {})
            mine.setdefault(kind[0], []).append(each["recommended"]["log_gain"])
    if not gains:
        return []
    names = {entry.key: entry.name for entry in ENTRIES}
    heads = ["contender", "what is recommended", *KINDS, "six of other knobs"]
    text = ["", f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for (contender, rule), mine in gains.items():
        logs = {kind: float(np.mean(mine[kind])) for kind in KINDS if kind in mine}
        other = [logs[kind] for kind in OTHER_KNOBS if kind in logs]
        cells = [f"{math.exp(-logs[kind]):.2f}" if kind in logs else "-" for kind in KINDS]
        cells.append(f"{math.exp(-float(np.mean(other))):.2f}" if other else "-")
        text.append(f"| {names[contender]} | {in_words(rule)} | {' | '.join(cells)} |")
    return text


def short(document: dict[str, Any]) -> list[str]:
    """The table of what other libraries leave: what it comes to, and what it costs."""
    names = {entry.key: entry.name for entry in ENTRIES}
    text = [SHORT, "|" + "---|" * SHORT.count(" |")]
    for s in document["methods"]:
        rule = in_words(s["rule"])
        text.append(
            f"| {names[s['contender']]} | {rule} | {s['searches']} | {s['after_confirmation']:.2f} "
            f"| {_times(s)} | {_share(s['truly_within'])} | {s['trainings']:.0f} "
            f"| {s['suggest_s'] / max(1e-9, s['trainings']):.2f} |"
        )
    return text


def _times(summary: dict[str, Any]) -> str:
    return "-" if summary["contender"] == REFERENCE else _with_ends(summary["times_kg"])


def _with_ends(times: Sequence[float | None]) -> str:
    mean, low, high = times
    if mean is None:
        return "-"
    return f"{mean:.2f}" + (" [-]" if low is None else f" [{low:.2f}, {high:.2f}]")


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"
