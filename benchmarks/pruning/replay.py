"""Pruning replayed on recorded learning curves: training seconds saved against hypervolume lost.

    python benchmarks/pruning/replay.py --simulate --output OUT/simulated
    python benchmarks/pruning/replay.py STUDY.json.gz [STUDY.json.gz ...] --output OUT/recorded

STUDY.json.gz is a study of randomly drawn trials, launched with `--sampler random --no-prune` and exported. With
`--even-clock` every epoch of a trial takes as long as its shortest: for studies recorded on a machine that was busy. With
`--trials 188-399` only trials of these numbers are replayed, as if there were no others: those, say, that no bound was
chosen on.

Every recorded trial has its whole curve, because it was not pruned. A replay takes the trials in a shuffled order, as if
one worker ran them one after the other, shows the pruner each epoch as it would have come, and ends a trial where the
pruner says so: its seconds from there on are saved, and it cannot stand on the front. Twenty orders a set.

Writes OUTPUT.csv (one line a replay), OUTPUT.md (the table) and OUTPUT.png (the figure).

The hypervolume's reference point is one tenth beyond the worst point of the *front* of all trials: one tenth beyond the
worst of all trials, as `tuner status` takes it, would make any loss look small. Both are in the CSV.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parents[2]))
from benchmarks.pruning.curve_sets import Curves, Recorded, numbers, read_curves, simulated_sets
from tuner.search.bounds import Caution, FinishedTrial
from tuner.search.pruning import Pruner
from tuner.spec.pareto import Point, front_indices, hypervolume, reference_point

ORDERS = 20
TARGET_SAVED, TARGET_LOST = 0.40, 0.01


@dataclass(frozen=True, slots=True)
class Replay:
    """What pruning did to one order of one set."""

    curves: str
    order: int
    trials: int
    pruned: int
    front: int
    front_pruned: int
    seconds: float
    seconds_saved: float
    saved: float
    """Share of the training seconds."""
    lost: float
    """Share of the hypervolume, reference beyond the worst of the front."""
    lost_wide: float
    """The same, reference beyond the worst of all."""
    verdict_ms: float
    """Mean time of a verdict."""


def replay(curves: Curves, order: int, caution: Caution) -> Replay:
    """Run the set's trials in the order of this number, with pruning."""
    shuffled = [
        curves.trials[i] for i in np.random.default_rng(order).permutation(len(curves.trials))
    ]
    done: list[FinishedTrial] = []
    kept: list[Recorded] = []
    spent, verdicts, judging = 0.0, 0, 0.0
    for trial in shuffled:
        pruner = Pruner(done, curves.stopping, caution=caution)
        for epoch in range(
            1, len(trial.losses)
        ):  # nothing is asked about the last: the training is over then
            began = time.perf_counter()
            verdict = pruner.verdict(trial.losses[:epoch], trial.elapsed_s[:epoch])
            judging, verdicts = judging + time.perf_counter() - began, verdicts + 1
            if verdict is not None:
                spent += trial.elapsed_s[epoch - 1]
                break
        else:
            spent += trial.seconds
            kept.append(trial)
            if (finished := trial.finished()) is not None:
                done.append(finished)
    everything, left = _points(curves.trials), _points(kept)
    front = [everything[i] for i in front_indices(everything)]
    narrow, wide = reference_point(front), reference_point(everything)
    seconds = sum(trial.seconds for trial in curves.trials)
    return Replay(
        curves=curves.name,
        order=order,
        trials=len(shuffled),
        pruned=len(shuffled) - len(kept),
        front=len(front),
        front_pruned=len(set(front) - set(left)),
        seconds=round(seconds, 3),
        seconds_saved=round(seconds - spent, 3),
        saved=1 - spent / seconds,
        lost=1 - hypervolume(left, narrow) / hypervolume(everything, narrow),
        lost_wide=1 - hypervolume(left, wide) / hypervolume(everything, wide),
        verdict_ms=1e3 * judging / max(1, verdicts),
    )


def _points(trials: Sequence[Recorded]) -> list[Point]:
    return [trial.values for trial in trials if trial.converged and trial.values is not None]


def table(replays: Sequence[Replay]) -> str:
    """One line a set: median, mean and worst of its orders."""
    lines = [
        "| curves | trials | seconds saved: median, mean, worst | hypervolume lost: median, mean, worst | pruned | front pruned | a verdict |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(r.curves for r in replays):
        of_set = [r for r in replays if r.curves == name]
        saved, lost = [r.saved for r in of_set], [r.lost for r in of_set]
        lines.append(
            f"| {name} | {of_set[0].trials} | {np.median(saved):.0%}, {np.mean(saved):.0%}, {min(saved):.0%} "
            f"| {np.median(lost):.2%}, {np.mean(lost):.2%}, {max(lost):.2%} | {np.median([r.pruned for r in of_set]):.0f} "
            f"| {np.mean([r.front_pruned for r in of_set]):.1f} of {of_set[0].front} "
            f"| {np.mean([r.verdict_ms for r in of_set]):.2f} ms |"
        )
    return "\n".join(lines) + "\n"


def figure(replays: Sequence[Replay], path: Path) -> None:
    """Each replay a point: seconds saved to the right, hypervolume lost upwards; the targets as lines."""
    import plotly.graph_objects as go

    drawn = go.Figure()
    for name in dict.fromkeys(r.curves for r in replays):
        of_set = [r for r in replays if r.curves == name]
        drawn.add_scatter(
            x=[100 * r.saved for r in of_set],
            y=[100 * r.lost for r in of_set],
            mode="markers",
            name=name,
        )
    drawn.add_vline(x=100 * TARGET_SAVED, line={"dash": "dot", "color": "gray", "width": 1})
    drawn.add_hline(y=100 * TARGET_LOST, line={"dash": "dot", "color": "gray", "width": 1})
    drawn.update_layout(
        template="simple_white",
        xaxis={"title": "training seconds saved, %", "range": [0, 100]},
        yaxis={
            "title": "hypervolume lost, %",
            "range": [0, 110 * max(TARGET_LOST, *(r.lost for r in replays))],
        },
        title="Pruning replayed: each point one order of the same trials",
    )
    drawn.write_image(path, width=900, height=540, scale=2)


def main() -> int:
    """Replay and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("curves", nargs="*", type=Path)
    parser.add_argument(
        "--simulate",
        action="store_true",
        help="made-up curves (benchmarks/pruning/simulated_curves.py)",
    )
    parser.add_argument("--output", type=Path, required=True, help="path without ending")
    parser.add_argument(
        "--even-clock", action="store_true", help="every epoch of a trial as long as its shortest"
    )
    parser.add_argument(
        "--trials", type=numbers, metavar="FIRST-LAST", help="only trials of these numbers"
    )
    parser.add_argument("--orders", type=int, default=ORDERS)
    given = parser.parse_args()
    sets = [
        *(
            read_curves(path, even_clock=given.even_clock, numbers=given.trials)
            for path in given.curves
        ),
        *(simulated_sets() if given.simulate else ()),
    ]
    if not sets:
        parser.error("give files of recorded curves, or --simulate")
    replays = [replay(each, order, Caution()) for each in sets for order in range(given.orders)]
    given.output.parent.mkdir(parents=True, exist_ok=True)
    with given.output.with_suffix(".csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(Replay.__dataclass_fields__))
        writer.writeheader()
        writer.writerows(asdict(r) for r in replays)
    given.output.with_suffix(".md").write_text(table(replays), encoding="utf-8")
    figure(replays, given.output.with_suffix(".png"))
    print(table(replays))
    return 0


if __name__ == "__main__":
    sys.exit(main())
