"""Planted pairs: is a true difference found, and is none claimed where there is none?

    python benchmarks/verdict/planted_pairs.py --output OUT/planted-pairs

Two configurations are drawn again and again with 10 shared seeds each and judged as `tuner compare` judges them, with
what differs planted: time by a ratio, MQL by a difference. A seed's noise is simulated, or recorded:

- Simulated as it was known before the campaign: six runs of `original` on an H200 (three in benchmarks/reference_protocol/h200.json)
  gave epochs with a relative standard deviation of 5 % and ETTh1 MQL with one of 0.0073. Smaller and larger ones, other
  shapes and occasional misses show how much hangs on that.
- Recorded in the campaign's verification (benchmarks/campaign): each of the two takes the noise of one verified
  configuration, drawn at random, by drawing from its runs' deviations from their mean (log time and MQL of a run together,
  scaled up for the degree of freedom that the mean took). With more seeds, too: how many it would take.

Also: how often an interval holds the true value. Writes OUTPUT.json and OUTPUT.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parents[2]))
from benchmarks.verdict.noise import NOISES, Noise, recorded_noises
from tuner.verdict.stats.intervals import Comparison, Question, Sample, median_interval
from tuner.verdict.stats.pairs import judge
from tuner.verdict.stats.permutation import ALPHA, sign_flip_interval

MEASURED = "benchmarks/reference_protocol/h200.json"
QUESTION = [Question(a="a", b="b", family="between")]
PLANTED = ((1.0, 0.0), (1.1, 0.0), (1.0, 0.02), (1.1, 0.02))
COVERED = {
    "median": "median",
    "time": "time ratio, 95 %",
    "mql": "MQL difference, 95 %",
    "time_holm": "time, as printed",
    "mql_holm": "MQL, as printed",
    "both_holm": "both, as printed",
}
"""The intervals of which it is counted how often they hold the truth."""
MORE_SEEDS = (10, 20, 40)
PLANTED_FOR_MORE = ((1.0, 0.0), (1.1, 0.0), (1.25, 0.0), (1.0, 0.02))


def sample(
    name: str, rng: np.random.Generator, noise: Noise, *, seeds: int, ratio: float, more: float
) -> Sample:
    of_time, of_mql = noise.deviations(rng, seeds)
    seconds = 4.0 * ratio * np.exp(of_time)
    mql = 0.806 + more + of_mql
    kept = np.flatnonzero(rng.random(seeds) >= noise.misses)
    return Sample(
        name=name,
        seconds={int(i): float(seconds[i]) for i in kept},
        mql={int(i): float(mql[i]) for i in kept},
        runs=seeds,
        misses=seeds - len(kept),
    )


def repeat(
    noise: Noise, ratio: float, more: float, *, seeds: int, repetitions: int
) -> dict[str, Any]:
    """How often what is planted is claimed."""
    pairs = planted(noise, ratio, more, seeds=seeds, repetitions=repetitions)
    what = _asked(noise, ratio, more, seeds, repetitions)
    return what | counted([answer for pair in pairs for answer in judge(pair, QUESTION)])


def _asked(noise: Noise, ratio: float, more: float, seeds: int, repetitions: int) -> dict[str, Any]:
    """What was planted, in which noise, how often."""
    return {
        "ratio": ratio,
        "difference": more,
        "noise": noise.described(),
        "seeds": seeds,
        "repetitions": repetitions,
    }


def planted(
    noise: Noise, ratio: float, more: float, *, seeds: int, repetitions: int
) -> Iterator[tuple[Sample, Sample]]:
    rng = np.random.default_rng([20261120, round(1000 * ratio), round(1000 * more)])
    for _ in range(repetitions):
        a = sample("a", rng, noise, seeds=seeds, ratio=ratio, more=more)
        yield a, sample("b", rng, noise, seeds=seeds, ratio=1.0, more=0.0)


def counted(answers: Sequence[Comparison]) -> dict[str, int]:
    return {
        "time": sum(each.seconds.claimed for each in answers),
        "mql": sum(each.mql.claimed for each in answers),
        "any": sum(each.seconds.claimed or each.mql.claimed for each in answers),
    }


def coverage(noise: Noise, *, seeds: int, repetitions: int) -> dict[str, Any]:
    """How often intervals hold the truth, where time differs by 1.1 and MQL by 0.02.

    Of a median, and of the deciding test of each objective: asked alone at 95 %, and as `tuner compare` prints them, at
    the levels of Holm's steps (each, and both together).
    """
    rng = np.random.default_rng(20261121)
    ratio, more = 1.1, 0.02
    held = dict.fromkeys(COVERED, 0)
    for _ in range(repetitions):
        a = sample("a", rng, noise, seeds=seeds, ratio=ratio, more=more)
        b = sample("b", rng, noise, seeds=seeds, ratio=1.0, more=0.0)
        median = median_interval(list(b.mql.values()))
        assert median is not None
        held["median"] += median.covers(0.806)
        time = np.log([a.seconds[s] / b.seconds[s] for s in a.seconds])
        mql = np.array([a.mql[s] - b.mql[s] for s in a.mql])
        for name, differences, truth in (("time", time, np.log(ratio)), ("mql", mql, more)):
            low, high = sign_flip_interval(differences, ALPHA)
            held[name] += bool(low <= truth <= high)
        (answer,) = judge([a, b], QUESTION)
        assert answer.seconds.estimate is not None
        assert answer.mql.estimate is not None
        holds = answer.seconds.estimate.covers(ratio), answer.mql.estimate.covers(more)
        held["time_holm"] += holds[0]
        held["mql_holm"] += holds[1]
        held["both_holm"] += all(holds)
    return {"noise": noise.described(), "seeds": seeds, "repetitions": repetitions} | held


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
        f"| a seed's noise | planted: time | planted: MQL | time claimed of {n} | MQL claimed | any claimed |",
        "|---|---|---|---|---|---|",
    ]
    for r in document["pairs"]:
        noise = r["noise"]
        lines.append(
            f"| {noise['name']} (sd {noise['time']:.0%}, {noise['mql']}) | {r['ratio']:g} x | {r['difference']:+g} "
            f"| {r['time']} | {r['mql']} | {r['any']} |"
        )
    lines += [
        "",
        f"| a seed's noise | planted | {' | '.join(f'claimed of {n}, {seeds} seeds' for seeds in MORE_SEEDS)} |",
        f"|---|---|{'---|' * len(MORE_SEEDS)}",
    ]
    for (name, ratio, more), row in _by_seeds(document["more_seeds"]).items():
        what = f"MQL {more:+g}" if more else f"time {ratio:g} x"
        counts = (r["mql"] if more else r["any"] if ratio == 1 else r["time"] for r in row)
        lines.append(
            f"| {name} | {what if more or ratio != 1 else 'nothing'} | {' | '.join(map(str, counts))} |"
        )
    lines += [
        "",
        f"| interval holds the truth, a seed's noise | {' | '.join(COVERED.values())} |",
        f"|---|{'---|' * len(COVERED)}",
    ]
    for r in document["coverage"]:
        shares = (f"{r[name] / r['repetitions']:.1%}" for name in COVERED)
        lines.append(f"| {r['noise']['name']}, {r['seeds']} seeds | {' | '.join(shares)} |")
    return "\n".join(lines)


def _by_seeds(pairs: list[dict[str, Any]]) -> dict[tuple[str, float, float], list[dict[str, Any]]]:
    """Rows of the same noise and planting, in the order of their seeds."""
    rows: dict[tuple[str, float, float], list[dict[str, Any]]] = {}
    for r in pairs:
        rows.setdefault((r["noise"]["name"], r["ratio"], r["difference"]), []).append(r)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--repetitions", type=int, default=200)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    pairs = []
    recorded = recorded_noises()
    for noise in (*NOISES, *recorded):
        for ratio, more in PLANTED:
            pairs.append(
                repeat(noise, ratio, more, seeds=options.seeds, repetitions=options.repetitions)
            )
            print(json.dumps(pairs[-1]), flush=True)
    by_seeds = [
        repeat(noise, ratio, more, seeds=seeds, repetitions=options.repetitions)
        for noise in recorded
        for ratio, more in PLANTED_FOR_MORE
        for seeds in MORE_SEEDS
    ]
    covered = [
        coverage(noise, seeds=n, repetitions=1000)
        for noise in NOISES[1:4]
        for n in (6, options.seeds, 2 * options.seeds)
    ]
    document = {
        "command": " ".join(["python", *sys.argv]),
        "measured_noise": measured() | {"source": MEASURED},
        "seeds": options.seeds,
        "repetitions": options.repetitions,
        "pairs": pairs,
        "more_seeds": by_seeds,
        "coverage": covered,
    }
    options.output.with_suffix(".json").write_text(json.dumps(document, indent=1) + "\n")
    options.output.with_suffix(".md").write_text(table(document) + "\n")
    print(table(document))


if __name__ == "__main__":
    main()
