"""Planted pairs: is a true difference found, and is none claimed where there is none?

    python benchmarks/verdict/planted_pairs.py --output benchmarks/verdict/planted-pairs

Two configurations are drawn again and again with 10 shared seeds each and judged as `tuner compare` judges them, with
what differs planted: time by a ratio, MQL by a difference. A seed's noise is that of the reference job: six runs of
`original` on an H200 (three in benchmarks/protocol-h200.json) gave epochs with a relative standard deviation of 5 % and
ETTh1 MQL with one of 0.0073. Smaller and larger ones, other shapes and occasional misses show how much hangs on that.
Also: how often an interval holds the true value, and what stopping early costs. Writes OUTPUT.json and OUTPUT.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tuner.stats import Comparison, Question, Sample, judge, judge_at_look
from tuner.stats.intervals import difference_of_medians, median_interval, ratio_of_medians
from tuner.stats.sequential import looks_for

MEASURED = "benchmarks/protocol-h200.json"
QUESTION = [Question(a="a", b="b", family="between")]


@dataclass(frozen=True)
class Noise:
    """A seed's noise: standard deviation of log time and of MQL, the distribution's shape, and the share of misses."""

    name: str
    time: float
    mql: float
    shape: str = "normal"
    misses: float = 0.0


NOISES = (
    Noise("quiet", 0.03, 0.006),
    Noise("reference job", 0.05, 0.0073),
    Noise("reference job, uniform ±8.7 % and ±0.0126", 0.05, 0.0073, "uniform"),
    Noise("reference job, heavy tails (t, 3 df)", 0.05, 0.0073, "t3"),
    Noise("reference job, 5 % of runs miss", 0.05, 0.0073, misses=0.05),
    Noise("loud", 0.05, 0.012),
)
PLANTED = ((1.0, 0.0), (1.1, 0.0), (1.0, 0.02), (1.1, 0.02))


def draw(rng: np.random.Generator, noise: Noise, n: int) -> np.ndarray:
    """`n` standardised deviations of mean 0 and standard deviation 1."""
    if noise.shape == "uniform":
        return rng.uniform(-np.sqrt(3), np.sqrt(3), n)
    if noise.shape == "t3":
        return rng.standard_t(3, n) / np.sqrt(3)
    return rng.normal(size=n)


def sample(name: str, rng: np.random.Generator, noise: Noise, *, seeds: int, ratio: float, more: float) -> Sample:
    seconds = 4.0 * ratio * np.exp(noise.time * draw(rng, noise, seeds))
    mql = 0.806 + more + noise.mql * draw(rng, noise, seeds)
    kept = np.flatnonzero(rng.random(seeds) >= noise.misses)
    return Sample(
        name=name,
        seconds={int(i): float(seconds[i]) for i in kept},
        mql={int(i): float(mql[i]) for i in kept},
        runs=seeds,
        misses=seeds - len(kept),
    )


def first(found: Sample, look: int) -> Sample:
    """The sample's runs on the first `look` seeds."""
    kept = [seed for seed in found.seconds if seed < look]
    return Sample(
        name=found.name,
        seconds={s: found.seconds[s] for s in kept},
        mql={s: found.mql[s] for s in kept},
        runs=look,
        misses=look - len(kept),
    )


def early(a: Sample, b: Sample, seeds: int) -> tuple[Comparison, int]:
    """The answer of a verification that may stop early, and after how many seeds."""
    looks = looks_for(seeds)
    for look in looks:
        (answer,) = judge_at_look([first(a, look), first(b, look)], QUESTION, look=look, looks=looks)
        if answer.decided:
            break
    return answer, look


def repeat(noise: Noise, ratio: float, more: float, *, seeds: int, repetitions: int) -> dict[str, Any]:
    rng = np.random.default_rng([20261120, round(1000 * ratio), round(1000 * more)])
    found = {"time": 0, "mql": 0, "any": 0, "early_time": 0, "early_mql": 0, "early_any": 0}
    used = []
    for _ in range(repetitions):
        a = sample("a", rng, noise, seeds=seeds, ratio=ratio, more=more)
        b = sample("b", rng, noise, seeds=seeds, ratio=1.0, more=0.0)
        (answer,) = judge([a, b], QUESTION)
        stopped, look = early(a, b, seeds)
        used.append(look)
        for prefix, each in (("", answer), ("early_", stopped)):
            found[f"{prefix}time"] += each.seconds.claimed
            found[f"{prefix}mql"] += each.mql.claimed
            found[f"{prefix}any"] += each.seconds.claimed or each.mql.claimed
    planted = {"ratio": ratio, "difference": more, "noise": asdict(noise), "seeds": seeds, "repetitions": repetitions}
    return planted | found | {"early_seeds": float(np.mean(used))}


def coverage(noise: Noise, *, seeds: int, repetitions: int) -> dict[str, Any]:
    """How often 95 % intervals hold the truth: of a median, a ratio of medians, a difference of medians."""
    rng = np.random.default_rng(20261121)
    held = {"median": 0, "ratio": 0, "difference": 0}
    for _ in range(repetitions):
        time = [np.exp(noise.time * draw(rng, noise, seeds)) for _ in range(2)]
        mql = [0.8 + noise.mql * draw(rng, noise, seeds) for _ in range(2)]
        for name, interval, truth in (
            ("median", median_interval(mql[0]), 0.8),
            ("ratio", ratio_of_medians(time[0], time[1]), 1.0),
            ("difference", difference_of_medians(mql[0], mql[1]), 0.0),
        ):
            assert interval is not None
            held[name] += interval.covers(truth)
    return {"noise": asdict(noise), "seeds": seeds, "repetitions": repetitions} | held


def measured() -> dict[str, float]:
    """The seed's noise in committed runs of `original`: relative sd of epochs and sd of ETTh1 MQL, and of how many runs."""
    runs = [r for r in json.loads(Path(MEASURED).read_text())["runs"] if r["variant"] == "original"]
    epochs = np.array([r["epochs"] for r in runs], dtype=float)
    mql = np.array([r["test_mql"]["ETTh1"] for r in runs])
    return {
        "runs": len(runs),
        "sd_log_epochs": float(np.std(np.log(epochs), ddof=1)),
        "sd_mql": float(np.std(mql, ddof=1)),
    }


def table(document: dict[str, Any]) -> str:
    n = document["repetitions"]
    lines = [
        f"| a seed's noise | planted: time | planted: MQL | time claimed of {n} | MQL claimed | any claimed | stopping early: time | MQL | any | mean seeds |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for r in document["pairs"]:
        noise = r["noise"]
        lines.append(
            f"| {noise['name']} (sd {noise['time']:.0%}, {noise['mql']}) | {r['ratio']:g} x | {r['difference']:+g} "
            f"| {r['time']} | {r['mql']} | {r['any']} | {r['early_time']} | {r['early_mql']} | {r['early_any']} | {r['early_seeds']:.1f} |"
        )
    lines += [
        "",
        "| interval holds the truth, a seed's noise | median | ratio of medians | difference of medians |",
        "|---|---|---|---|",
    ]
    for r in document["coverage"]:
        share = {k: f"{r[k] / r['repetitions']:.1%}" for k in ("median", "ratio", "difference")}
        lines.append(
            f"| {r['noise']['name']}, {r['seeds']} seeds | {share['median']} | {share['ratio']} | {share['difference']} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--repetitions", type=int, default=200)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    pairs = []
    for noise in NOISES:
        for ratio, more in PLANTED:
            pairs.append(repeat(noise, ratio, more, seeds=options.seeds, repetitions=options.repetitions))
            print(json.dumps(pairs[-1]), flush=True)
    covered = [coverage(noise, seeds=n, repetitions=1000) for noise in NOISES[1:4] for n in (5, options.seeds)]
    document = {
        "command": " ".join(["python", *sys.argv]),
        "measured_noise": measured() | {"source": MEASURED},
        "seeds": options.seeds,
        "repetitions": options.repetitions,
        "pairs": pairs,
        "coverage": covered,
    }
    options.output.with_suffix(".json").write_text(json.dumps(document, indent=1) + "\n")
    options.output.with_suffix(".md").write_text(table(document) + "\n")
    print(table(document))


if __name__ == "__main__":
    main()
