"""Pruning confirmed live: the same search with and without it, trained twice, compared trial by trial.

    python benchmarks/pruning/live.py UNPRUNED.json.gz PRUNED.json.gz --output benchmarks/pruning/live-h200

Two exported studies of one definition on one device model, of which only the second pruned. Launched with
`--sampler qmc` under one name, in databases of their own, both propose the same configurations in the same order, and a
trial's number fixes its seed: what differs is pruning, and the clock. `benchmarks/campaign/run.py --plan table` and
`--plan pruned` are such a pair. Compared are the configurations that both have finished.

Seconds saved are those of the trials' own clocks, and of their whole runs, set-up and evaluation included; and, for
machines of different speed, those of the epochs that were not trained, by the clock of the study that did not prune. The
hypervolume lost is that of the trials that pruning ended, all points taken from the study that did not prune: noise of
the clock is in neither. The same with each study's own points is given beside it, noise included. As in `pruning.py`
the reference point is one tenth beyond the worst point of the unpruned front. Writes OUTPUT.md and OUTPUT.json.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[2]))
from benchmarks.pruning.replay import TARGET_LOST, TARGET_SAVED
from benchmarks.shared.circumstances import circumstances, heading, write
from tuner.errors import UsageError
from tuner.search.history import configuration
from tuner.search.methods import prunes
from tuner.spec.pareto import Point, front_indices, hypervolume, reference_point
from tuner.study.archive import Archive, read_archive
from tuner.study.results import TrialRecord

Pair = tuple[TrialRecord, TrialRecord]
"""One configuration without pruning, and with it."""


def pairs_of(unpruned: Archive, pruned: Archive) -> list[Pair]:
    """The configurations that both studies have finished.

    Raises:
        SystemExit: the studies are no such pair, or have no configuration in common.
    """
    if unpruned.definition.identity() != pruned.definition.identity():
        raise SystemExit(
            f"{unpruned.name} and {pruned.name} have different definitions; give two studies of one search"
        )
    if unpruned.device_model != pruned.device_model:
        models = f"{unpruned.device_model} and {pruned.device_model}"
        raise SystemExit(
            f"the studies were timed on {models}: their seconds do not compare; give two of one model"
        )
    without, with_it = (
        prunes(each.policy.sampler, each.policy.prune) for each in (unpruned, pruned)
    )
    if without or not with_it:
        raise SystemExit(
            "expected a study launched with --no-prune, then one launched with --prune"
        )
    with_pruning = {
        configuration(record.params): record for record in pruned.records if _finished(record)
    }
    pairs = [
        (record, with_pruning[key])
        for record in unpruned.records
        if _finished(record) and (key := configuration(record.params)) in with_pruning
    ]
    if not pairs:
        raise SystemExit(
            "the studies have no finished configuration in common; launch both with --sampler qmc"
        )
    return pairs


def _finished(record: TrialRecord) -> bool:
    return record.state.is_finished() and record.recorded.wall_clock_s is not None


def analyse(pairs: Sequence[Pair]) -> dict[str, Any]:
    """What pruning saved and lost over these configurations."""
    ended = [pair for pair in pairs if _pruned(pair[1])]
    kept = [pair for pair in pairs if not _pruned(pair[1])]
    everything = [point for pair in pairs if (point := _point(pair[0])) is not None]
    if not everything:
        raise SystemExit(
            "none of the common configurations converged without pruning: there is no front to lose"
        )
    left = [point for pair in kept if (point := _point(pair[0])) is not None]
    measured = [point for pair in kept if (point := _point(pair[1])) is not None]
    front = [everything[i] for i in front_indices(everything)]
    reference = reference_point(front)
    volume = hypervolume(everything, reference)
    saved, lost = _saved(pairs, "wall_clock_s"), 1 - hypervolume(left, reference) / volume
    return {
        "configurations": len(pairs),
        "pruned": len(ended),
        "saved": saved,
        "saved_on_one_clock": _saved_on_one_clock(pairs),
        "saved_of_whole_runs": _saved(pairs, "total_s"),
        "lost": lost,
        "lost_as_measured": 1 - hypervolume(measured, reference) / volume,
        "front": len(front),
        "front_pruned": sum(_point(pair[0]) in front for pair in ended),
        "pruned_at_epoch": _median([pair[1].recorded.epochs for pair in ended]),
        "epochs_without_pruning": _median([pair[0].recorded.epochs for pair in ended]),
        "clock_ratio_of_the_others": _median([_ratio(pair) for pair in kept]),
        "same_mql_of_the_others": sum(_mql(a) == _mql(b) for a, b in kept),
        "others": len(kept),
        "reference": reference,
        "target_met": saved["share"] >= TARGET_SAVED and lost <= TARGET_LOST,
    }


def _pruned(record: TrialRecord) -> bool:
    return record.recorded.stopped_by == "pruned"


def _point(record: TrialRecord) -> Point | None:
    return record.values if record.converged else None


def _mql(record: TrialRecord) -> float | None:
    return record.values[1] if record.values else None


def _ratio(pair: Pair) -> float | None:
    """Seconds an epoch with pruning, by those without."""
    without, with_pruning = (record.recorded.s_per_epoch for record in pair)
    return with_pruning / without if without and with_pruning else None


def _saved(pairs: Sequence[Pair], name: str) -> dict[str, float]:
    """Seconds of the attribute `name` without pruning and with it, and the share saved."""
    both = [
        (first, second)
        for first, second in ((a.recorded.named(name), b.recorded.named(name)) for a, b in pairs)
        if first is not None and second is not None
    ]
    without, with_pruning = (
        (sum(column) for column in zip(*both, strict=True)) if both else (0.0, 0.0)
    )
    return {
        "without_s": without,
        "with_s": with_pruning,
        "share": 1 - with_pruning / without if without else 0.0,
    }


def _saved_on_one_clock(pairs: Sequence[Pair]) -> float:
    """Share of the seconds without pruning that went into epochs which pruning did without."""
    seconds = [a.recorded.wall_clock_s for a, _ in pairs]
    kept = [b.recorded.epochs / a.recorded.epochs if _pruned(b) else 1.0 for a, b in pairs]
    return 1 - sum(s * share for s, share in zip(seconds, kept, strict=True)) / sum(seconds)


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def table(found: dict[str, Any]) -> list[str]:
    """The result in Markdown."""
    seconds, whole = found["saved"], found["saved_of_whole_runs"]
    ended, full = found["pruned_at_epoch"], found["epochs_without_pruning"]
    lines = [
        (
            f"{found['configurations']} configurations, each trained without pruning and offered to it; "
            f"{found['pruned']} were pruned."
        ),
        "",
        "| | without pruning | with it | |",
        "|---|---|---|---|",
        (
            f"| seconds of training and validation | {seconds['without_s']:.1f} | {seconds['with_s']:.1f} "
            f"| {seconds['share']:.1%} saved |"
        ),
        f"| seconds of whole runs | {whole['without_s']:.1f} | {whole['with_s']:.1f} | {whole['share']:.1%} saved |",
        (
            f"| trials on the front | {found['front']} | {found['front'] - found['front_pruned']} "
            f"| {found['front_pruned']} pruned |"
        ),
    ]
    if ended is not None and full is not None:
        lines.append(f"| median epochs of what was pruned | {full:.0f} | {ended:.0f} | |")
    met = "met" if found["target_met"] else "missed"
    lines += [
        "",
        (
            f"By the clock of the study without pruning, the epochs that pruning did without took "
            f"{found['saved_on_one_clock']:.1%} of the seconds."
        ),
        f"Hypervolume lost: {found['lost']:.2%}; {found['lost_as_measured']:.2%} with each study's own times and errors.",
        f"Target, at least {TARGET_SAVED:.0%} of the seconds at no more than {TARGET_LOST:.0%} of the hypervolume: **{met}**.",
    ]
    if (ratio := found["clock_ratio_of_the_others"]) is not None:
        lines.append(
            f"Of the {found['others']} that were not pruned, {found['same_mql_of_the_others']} came to the same test MQL to "
            f"the last bit, and an epoch took {ratio:.3f} of its time without pruning in the median."
        )
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("unpruned", type=Path)
    parser.add_argument("pruned", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args(arguments)
    try:
        unpruned, pruned = read_archive(options.unpruned), read_archive(options.pruned)
    except UsageError as error:
        raise SystemExit(str(error)) from None
    found = analyse(pairs_of(unpruned, pruned))
    where = circumstances(unpruned.device_model or "no device")
    lines = [*heading(where), *table(found)]
    write(options.output, where | found, lines)
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
