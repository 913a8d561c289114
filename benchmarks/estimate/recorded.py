"""Make the table of recorded searches that `tuner estimate` goes by, from all recorded runs:

    python -m benchmarks.estimate.recorded

It writes tuner/estimate/recorded_searches.json.gz: of each trial its epochs (of a pruned one those that it had),
which share of all sizes of its space cost less, its own counted half, and its learning rate; and which of them
ran the default.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.runs.table import archives
from tuner.estimate.cost_model import (
    CostModel,
    Size,
    key_of,
    size_of,
    sizes_of,
    steps_of_epoch,
)
from tuner.estimate.foretold import Ended, default_is_cut
from tuner.search.history import configuration
from tuner.search.methods import method_of, prunes
from tuner.storage.records import device_seconds
from tuner.study.archive import Archive, read_archive
from tuner.study.results import TrialRecord

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "tuner" / "estimate" / "recorded_searches.json.gz"
OTHERS = "notebooks/data"
"""A folder with exports beside those of the table of recorded runs."""
BEGUN = "-begun"
"""A folder of searches that are under way, which nobody looks at before they are done."""
OF_OTHERS = "botorch"
"""Searches in our workers by a sampler that is not ours, which their policies do not name."""
MOST_TRIALS = 400
LEAST_TRIALS = 10


def quantile_of(figures: Mapping[str, float], key: str) -> float:
    """Which share of the sizes cost less than this one, with half of those that cost the same."""
    mine = figures[key]
    less = sum(value < mine for value in figures.values())
    same = sum(value == mine for value in figures.values())
    return (less + 0.5 * same) / len(figures)


def exports() -> dict[str, Archive]:
    """Every recorded search, by the path that its export has or had; of one that was exported again
    after more verification runs the first.
    """
    read = {path_of(name): archive for name, archive in archives().items()}
    for path in sorted((ROOT / OTHERS).glob("*.json.gz")):
        if (beside := readable(path)) is not None:
            read[str(path.relative_to(ROOT))] = beside
    found: dict[str, Archive] = {}
    for name in sorted(read, key=Path):
        archive, folder = read[name], Path(name).parent.name
        if folder.endswith(BEGUN) or folder == OF_OTHERS:
            continue
        if len(trials_of(archive)) >= LEAST_TRIALS:
            found[name] = archive
    first: dict[tuple[float, ...], str] = {}
    for name in sorted(found, key=lambda each: len(found[each].verifications)):
        first.setdefault(tuple(took(found[name])), name)
    return {name: found[name] for name in found if name in first.values()}


def path_of(export: str) -> str:
    """Where an export of the table lay in the repository."""
    return f"benchmarks/{export}.json.gz"


def took(archive: Archive) -> list[float]:
    """Seconds that each trial held its device: no two searches agree on all of them."""
    return [device_seconds(each.recorded) for each in trials_of(archive)]


def readable(path: Path) -> Archive | None:
    try:
        return read_archive(path)
    except Exception:  # noqa: BLE001 - of another kind
        return None


def trials_of(archive: Archive) -> list[TrialRecord]:
    """Those that trained, in their order."""
    return [
        each
        for each in archive.records
        if each.state.is_finished()
        and not each.recorded.foreign
        and each.params
        and (each.recorded.wall_clock_s or 0) > 0
    ]


def costs_of(archive: Archive) -> tuple[CostModel, int]:
    """Seconds of a step by size, as the trials had them, and the windows of an epoch."""
    points: list[tuple[Size, float]] = []
    windows = []
    for each in trials_of(archive):
        epoch_s, rate = each.recorded.s_per_epoch, each.recorded.samples_per_s
        if epoch_s and rate and math.isfinite(epoch_s * rate) and (each.recorded.epochs or 0) > 1:
            windows.append(round(epoch_s * rate))
            batches = steps_of_epoch(windows[-1], int(each.params["batch_size"]))
            points.append((size_of(each.params), epoch_s / batches))
    return CostModel.of(points), int(np.median(windows))


def epoch_seconds(archive: Archive) -> dict[str, float]:
    """Of every size of its space, by key."""
    model, windows = costs_of(archive)
    sizes = sizes_of(archive.definition.space)
    known = {key_of(size_of(each.params)): size_of(each.params) for each in trials_of(archive)}
    everything = list({key_of(s): s for s in (*sizes, *known.values())}.values())
    found = {}
    for size, step in zip(everything, model.at(everything), strict=True):
        if step is not None:
            found[key_of(size)] = step.middle * steps_of_epoch(windows, int(size["batch_size"]))
    return found


def as_row(name: str, archive: Archive) -> dict[str, Any]:
    figures = epoch_seconds(archive)
    definition, policy = archive.definition, archive.policy
    rows = []
    for each in trials_of(archive)[:MOST_TRIALS]:
        seen = each.recorded
        key = key_of(size_of(each.params))
        epoch_s = figures.get(key) or seen.s_per_epoch or math.inf
        epochs = (seen.wall_clock_s or 0.0) / epoch_s
        share = quantile_of(figures, key) if key in figures else 0.5
        rows.append(
            [round(epochs, 1), round(share, 3), float(f"{each.params['learning_rate']:.3g}")]
        )
    return {
        "name": name,
        "variant": definition.variant,
        "sampler": policy.sampler,
        "repeats": method_of(policy.sampler).repeats,
        "prune": prunes(policy.sampler, policy.prune),
        "pruned_share": round(pruned_share(archive), 3),
        "max_epochs": definition.training.max_epochs,
        "patience": definition.training.patience,
        "of_default": of_default(archive),
        "default_cut": default_is_cut(ended_of(archive)),
        "trials": rows,
    }


def ended_of(archive: Archive) -> list[Ended]:
    """Its trials that trained, as an estimate knows them."""
    default = configuration(archive.definition.defaults.as_dict())
    return [
        Ended(
            trained_s=each.recorded.wall_clock_s or 0.0,
            held_s=device_seconds(each.recorded),
            of_default=configuration(each.params) == default,
            cut=each.recorded.is_cut,
        )
        for each in trials_of(archive)
    ]


def of_default(archive: Archive) -> list[int]:
    """Which of its trials, counted from 0, ran its default."""
    ended = ended_of(archive)[:MOST_TRIALS]
    return [number for number, each in enumerate(ended) if each.of_default]


def pruned_share(archive: Archive) -> float:
    """Of its seconds, for trials that were ended early."""
    every = [each.recorded for each in trials_of(archive)]
    pruned = [each for each in every if each.pruned_at_epoch is not None]
    ended_s, all_s = (sum(each.wall_clock_s or 0.0 for each in some) for some in (pruned, every))
    return ended_s / all_s


def same_trials(one: Archive, other: Archive) -> bool:
    """Whether two exports hold mostly the same configurations: twins tell nothing of each other."""
    first, second = trials_of(one), trials_of(other)
    if one.definition.variant != other.definition.variant:
        return False
    alike = sum(a.params == b.params for a, b in zip(first, second, strict=False))
    return alike > 0.5 * min(len(first), len(second))


def overheads(archive: Archive) -> list[float]:
    """Seconds of its device that each trial took beside its training."""
    return [
        device_seconds(each.recorded) - (each.recorded.wall_clock_s or 0.0)
        for each in trials_of(archive)
    ]


def main() -> None:
    rows = [as_row(name, archive) for name, archive in exports().items()]
    text = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    TABLE.write_bytes(gzip.compress(f"[\n{text}\n]\n".encode(), mtime=0))
    print(f"{len(rows)} searches, {sum(len(row['trials']) for row in rows)} trials: {TABLE}")


if __name__ == "__main__":
    main()
