"""What `auto` was measured to mean for the networks of recorded studies, on the GPUs that they ran on.

    PYTHONPATH=. python benchmarks/neuralforecast_classes/auto_choices.py STUDY.json.gz ... --output OUT/auto

Each combination of sizes is measured once in a study, off the clock, and its trials carry what was found. So the table needs no device.
"""

from __future__ import annotations

import argparse
import re
import statistics
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.estimate.cost_model import key_of, size_of
from tuner.study.archive import Archive, read_archive
from tuner.study.results import TrialRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """For one combination of sizes: the backend, and seconds that an epoch takes by each that was tried."""

    backend: str
    epoch_s: dict[str, float]

    @classmethod
    def of(cls, trial: TrialRecord) -> Choice | None:
        """None where nothing was measured."""
        told = re.findall(r"([\d.e+-]+) s by (\w+)", trial.recorded.backend_measured or "")
        if not told:
            return None
        epoch_s = {name: float(seconds) for seconds, name in told}
        return cls(backend=str(trial.recorded.backend), epoch_s=epoch_s)

    @property
    def times(self) -> float:
        """How many times as long plain operations take."""
        return self.epoch_s["eager"] / self.epoch_s["graph"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("studies", type=Path, nargs="+")
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    lines = [
        "# What `auto` means, measured",
        "",
        "Of the combinations of sizes that each study's trials had; seconds of an epoch as they were foretold from some twenty steps.",
        "",
        "| study | GPU | torch | arithmetic | sizes | `auto` | the default: graph | eager | eager : graph, all sizes |",
        "|---|---|---|---|---:|---|---:|---:|---|",
        *(line(read_archive(path)) for path in given.studies),
    ]
    Path(f"{given.output}.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def line(archive: Archive) -> str:
    choices = choices_of(archive)
    default = choices[key_of(size_of(archive.definition.defaults.as_dict()))]
    chosen = Counter(each.backend for each in choices.values())
    meant = ", ".join(f"{name} {count}" for name, count in chosen.most_common())
    times = [each.times for each in choices.values() if {"graph", "eager"} <= set(each.epoch_s)]
    spread = f"{statistics.median(times):.1f} ({min(times):.1f} to {max(times):.1f})"
    cells: list[Any] = [
        archive.definition.variant,
        archive.device_model,
        (archive.records[0].recorded.versions or {})["torch"],
        archive.definition.training.precision.value,
        len(choices),
        meant,
        f"{default.epoch_s['graph']:.3f} s",
        f"{default.epoch_s['eager']:.3f} s",
        spread,
    ]
    return f"| {' | '.join(map(str, cells))} |"


def choices_of(archive: Archive) -> dict[str, Choice]:
    """By sizes: what was measured first counts, for that is what the study goes by."""
    found: dict[str, Choice] = {}
    for trial in archive.records:
        choice = Choice.of(trial) if trial.params else None
        if choice is not None:
            found.setdefault(key_of(size_of(trial.params)), choice)
    return found


if __name__ == "__main__":
    main()
