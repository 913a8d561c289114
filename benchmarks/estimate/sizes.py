"""Are seconds an epoch and peak memory foretold right, for every size of a space?

    python -m benchmarks.estimate.sizes --json OUT/h200-sizes.json
    python -m benchmarks.estimate.sizes --told-from benchmarks/estimate/h200-sizes.json

`tuner estimate` measures what it measures (some batches of every size, or of some sizes of a large space). Then
every size is trained for some epochs by `fit`, as a trial trains it, and both are compared. Of spaces with more
sizes than `--most`, so many are drawn at random, so that the share of those that are within bounds is one of the
whole space. `--minutes` ends the trainings of a variant. What was measured is in the JSON file: with `--told-from`
the same sizes are foretold from it anew, by the model as it is now, which needs no device.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import itertools
import json
import random
import re
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.shared.data_folder import add_data_dir

VARIANTS = ("original", "nf-tcn", "nf-patchtst")
EPOCHS, MOST, MEASURE_S = 4, 200, 240.0
TIME_WITHIN, MEMORY_WITHIN = 0.10, 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    size: dict[str, Any]
    measured: bool
    foretold_s: float | None
    epoch_s: float | None
    foretold_bytes: float | None
    peak_bytes: int | None

    @property
    def time_off(self) -> float | None:
        return _off(self.foretold_s, self.epoch_s)

    @property
    def memory_off(self) -> float | None:
        return _off(self.foretold_bytes, self.peak_bytes)


def _off(foretold: float | None, truth: float | None) -> float | None:
    """How far, as a share of the truth; nothing where it does not fit, or nobody said."""
    return None if not foretold or not truth else foretold / truth - 1.0


def foretold(
    definition: Any, task: Any, device: Any, *, data_dir: Path | None, seconds: float
) -> Any:
    """What `tuner estimate` would measure, in a process that is gone by then."""
    from tuner.estimate.measuring_process import MeasuringProcess, Subject, measured_costs

    subject = Subject(definition=definition, task=task, data_dir=data_dir, device=device)
    with MeasuringProcess(subject) as process:
        return measured_costs(process, seconds=seconds)


def compared(
    definition: Any,
    task: Any,
    device: Any,
    costs: Any,
    *,
    data_dir: Path | None,
    sizes: Sequence[Any],
    epochs: int,
    seconds: float = float("inf"),
) -> list[Compared]:
    """Each of these sizes, as `costs` foretell it and as it trains."""
    from tuner.estimate.cost_model import key_of

    times, memory = costs.epoch_seconds(sizes), costs.peak_bytes(sizes)
    found: list[Compared] = []
    began = time.monotonic()
    for size in sizes:
        if time.monotonic() - began > seconds:
            break
        epoch_s, peak = trained(definition, task, device, size, data_dir=data_dir, epochs=epochs)
        key = key_of(size)
        found.append(
            Compared(
                size=dict(size),
                measured=costs.of(size) is not None,
                foretold_s=times[key].middle if key in times else None,
                epoch_s=epoch_s,
                foretold_bytes=memory[key].middle if key in memory else None,
                peak_bytes=peak,
            )
        )
        print(
            f"{found[-1].size}: {found[-1].time_off}, {found[-1].memory_off}",
            file=sys.stderr,
            flush=True,
        )
    return found


def drawn(sizes: Sequence[Any], most: int, seed: int) -> list[Any]:
    """All of them, or so many at random: the same ones for the same seed."""
    if len(sizes) <= most:
        return list(sizes)
    return random.Random(seed).sample(list(sizes), most)


_DATA: dict[str, Any] = {}


def trained(
    definition: Any, task: Any, device: Any, size: Any, *, data_dir: Path | None, epochs: int
) -> tuple[float | None, int | None]:
    """Seconds of an epoch, the first one apart, and the most memory, of a real training."""
    from tuner.data.prepare import prepare
    from tuner.devices import CpuCores
    from tuner.estimate.cost_model import hyperparameters_of
    from tuner.training.engines.choose import what_auto_means
    from tuner.training.fit import fit
    from tuner.trial.run import run_config
    from tuner.worker.trainer import on_device

    if definition.data_hash not in _DATA:
        _DATA.clear()
        prepared = prepare(task, data_dir=data_dir)
        _DATA.update(on_device({definition.data_hash: prepared}, device))
    hyperparameters = hyperparameters_of(size, definition.space, definition.defaults)
    data = _DATA[definition.data_hash].seeing(hyperparameters.input_size)
    config = run_config(definition, hyperparameters, 0)
    choice = what_auto_means(config, data)
    config = run_config(definition, hyperparameters, 0, choice)
    training = config.training.but(max_epochs=epochs, patience=epochs + 1)
    result = fit(dataclasses.replace(config, training=training), data)
    if len(result.history) < 2:
        return None, None
    ends = [record.elapsed_s for record in result.history]
    took = [after - before for before, after in itertools.pairwise(ends)]
    peak = None if isinstance(device, CpuCores) else result.peak_memory_bytes
    return statistics.median(took), peak


def summary(variant: str, rows: Sequence[Compared], costs: Any = None) -> dict[str, Any]:
    """Of one variant, with what was measured."""
    times = [abs(each.time_off) for each in rows if each.time_off is not None]
    memory = [abs(each.memory_off) for each in rows if each.memory_off is not None]
    return {
        "variant": variant,
        "sizes": len(rows),
        "measured": sum(each.measured for each in rows),
        "time_median": statistics.median(times) if times else None,
        "time_worst": max(times, default=None),
        "time_within": sum(each <= TIME_WITHIN for each in times) / len(times) if times else None,
        "memory_worst": max(memory, default=None),
        "memory_within": sum(each <= MEMORY_WITHIN for each in memory) / len(memory)
        if memory
        else None,
        "rows": [dataclasses.asdict(each) for each in rows],
        "costs": None if costs is None else json.loads(costs.to_json()),
    }


def table(found: Sequence[dict[str, Any]]) -> str:
    lines = [
        "| variant | sizes, measured | seconds an epoch: median off, worst | within 10 % | peak memory: worst off | within 5 % |",
        "|---|---|---|---|---|---|",
    ]
    for each in found:
        lines.append(
            f"| {each['variant']} | {each['sizes']}, {each['measured']} | {_percent(each['time_median'])}, "
            f"{_percent(each['time_worst'])} | {_percent(each['time_within'])} | {_percent(each['memory_worst'])} | "
            f"{_percent(each['memory_within'])} |"
        )
    return "\n".join(lines)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def told_again(path: Path) -> list[dict[str, Any]]:
    """Of each variant of a JSON file: foretold from what was measured then, beside what it then took."""
    from tuner.estimate.cost_model import SizeCosts, key_of

    found = []
    for variant in json.loads(path.read_text())["variants"]:
        costs = SizeCosts.from_json(json.dumps(variant["costs"]))
        rows = [Compared(**row) for row in variant["rows"]]
        sizes = [row.size for row in rows]
        times, memory = costs.epoch_seconds(sizes), costs.peak_bytes(sizes)
        again = [
            dataclasses.replace(
                row,
                foretold_s=times[key_of(row.size)].middle,
                foretold_bytes=memory[key_of(row.size)].middle,
            )
            for row in rows
        ]
        found.append(summary(variant["variant"], again, costs))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--variants", default=",".join(VARIANTS))
    parser.add_argument("--task", default="etth")
    add_data_dir(parser)
    parser.add_argument("--most", type=int, default=MOST)
    parser.add_argument("--seed", type=int, default=0, help="of the sizes that are drawn")
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--measure-s", type=float, default=MEASURE_S)
    parser.add_argument("--minutes", type=float, default=60.0, help="of trainings, for a variant")
    parser.add_argument("--backend", default="auto", help="the policy of the searches")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--told-from", type=Path, metavar="JSON", help="measure nothing")
    options = parser.parse_args()
    if options.told_from:
        print(table(again := told_again(options.told_from)))
        if options.json:
            write(options.json, json.loads(options.told_from.read_text()) | {"variants": again})
        return
    from tuner.cli.device import chosen_device
    from tuner.config import Backend
    from tuner.data.prepare import prepare
    from tuner.data.task import load_task
    from tuner.devices import exclusive
    from tuner.estimate.cost_model import sizes_of
    from tuner.launch.plan import definition_of
    from tuner.spec.policy import StudySettings
    from tuner.spec.study_file import load_study_file

    device = chosen_device(gpu=None, cpu=options.cpu)
    task = load_task(options.task)
    digest = prepare(task, data_dir=options.data_dir).data_hash
    found, began = [], time.monotonic()
    with exclusive(device.lock_names):
        for variant in options.variants.split(","):
            settings = StudySettings(backend=Backend(options.backend))
            definition = definition_of(load_study_file(variant), task, digest, settings)
            costs = foretold(
                definition, task, device, data_dir=options.data_dir, seconds=options.measure_s
            )
            rows = compared(
                definition,
                task,
                device,
                costs,
                data_dir=options.data_dir,
                sizes=drawn(sizes_of(definition.space), options.most, options.seed),
                epochs=options.epochs,
                seconds=60 * options.minutes,
            )
            found.append(summary(variant, rows, costs))
            if options.json:
                keep(options.json, device.model, found)
    date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    print(f"{device.model}, {date}, after {time.monotonic() - began:.0f} s.\n")
    print(table(found))


def keep(path: Path, device: str, found: Sequence[dict[str, Any]]) -> None:
    """After each variant: what has ended is not lost with what comes."""
    date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    document = {"device": device, "date": date, "torch": _torch_version(), "variants": found}
    write(path, document)


def write(path: Path, document: dict[str, Any]) -> None:
    """One size a line."""
    text = json.dumps(document, indent=1)
    for inner in (r"\{[^{}]*\}", r"\{(?:[^{}]|\{[^{}\n]*\}){0,600}\}"):
        text = re.sub(inner, lambda found: re.sub(r"\s*\n\s*", " ", found[0]), text)
    path.write_text(text + "\n")


def _torch_version() -> str:
    import torch

    return torch.__version__


if __name__ == "__main__":
    main()
