"""Nine planted faults, each in a training of its own: is it named first, and is the gain true?

    python benchmarks/profile/faults.py [--full] [--faults NAME,NAME] [--output DIR]

Each training is profiled as a stranger's script (`tuner profile --python`). The gain that the first
piece of advice foretells stands beside the one that a full epoch then had: of the faulty script,
and of the repaired one, each in a process of its own without any hook. Of a list that grows, the
repaired script keeps the last: what fell is mended, and what each step costs anyhow stays.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from tuner.devices import CpuCores, list_gpus
from tuner.devices.cpu import available_cores
from tuner.profile.profile_page import as_document
from tuner.profile.profile_records import Profile
from tuner.profile.script_profile import Script, profile_script

TRAINING = Path(__file__).parent / "faulty_training.py"

EXPECTED = {
    "slow_transform": "transform the data once",
    "slow_disk": "waits for a disk",
    "host_slices": "the host prepares batches",
    "loop_per_series": "encoders",
    "tiny_batch": "batch_size",
    "sync_each_step": "waits for the device",
    "full_precision": "products in",
    "dead_branch": "pooling",
    "falling_throughput": "throughput falls",
}
"""What the first piece of advice has to speak of."""

NOT_ON_A_CPU = ("full_precision",)
WITHIN = 0.2
ROUNDS = 3


@dataclass(frozen=True, kw_only=True)
class Row:
    fault: str
    bottleneck: str
    first: bool
    """Whether the planted fault is named first."""
    foretold: float | None
    had: float
    within: bool | None
    """Whether the two differ by 20 % at most; None where nothing was foretold."""


def profiled(fault: str, *, steps: int, full: bool) -> Profile:
    gpus = list_gpus(os.environ)
    device = gpus[0] if gpus else CpuCores(available_cores())
    arguments = ("--fault", fault, "--epochs", "1000", *(("--full",) if full else ()))
    script = Script(path=TRAINING, arguments=arguments, steps=steps)
    return profile_script(script, device, advice=True, announce=said)


class Training:
    """A process that trains when it is asked to: what starts once, is not paid for each time."""

    def __init__(self, fault: str, *extra: str, full: bool) -> None:
        # A whole epoch: the first of a training whose throughput falls, else the second.
        epochs = "1" if fault == "falling_throughput" else "2"
        command = [sys.executable, str(TRAINING), "--fault", fault, "--asked", *extra]
        command += ["--epochs", epochs, *(("--full",) if full else ())]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        self.epoch_s()  # the first is slow: libraries are loaded, memory is asked for

    def epoch_s(self) -> float:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return float(json.loads(self.process.stdout.readline())[-1])

    def end(self) -> None:
        self.process.communicate()


def row(fault: str, found: Profile, *, full: bool) -> Row:
    """What was foretold, beside what an epoch has."""
    advice = found.advice[0]
    repaired = ["--repaired"]
    if fault == "tiny_batch" and (size := re.search(r"batch_size (\d+)", advice.change)):
        repaired = ["--batch", size[1]]
    if fault == "full_precision":
        repaired = ["--precision", "bf16" if "bfloat16" in advice.change else "tf32"]
    faulty, sound = Training(fault, full=full), Training(fault, *repaired, full=full)
    before, after = [], []
    for _ in range(ROUNDS):  # in turns: what else the machine does meets both
        before.append(faulty.epoch_s())
        after.append(sound.epoch_s())
    faulty.end()
    sound.end()
    had = statistics.median(before) / statistics.median(after)
    within = None if advice.gain is None else abs(advice.gain / had - 1) <= WITHIN
    words = f"{advice.change} {advice.why}"
    return Row(
        fault=fault,
        bottleneck=found.bottleneck,
        first=EXPECTED[fault] in words,
        foretold=advice.gain,
        had=had,
        within=within,
    )


def said(line: str) -> None:
    print(f"  {line}", file=sys.stderr)


def table(rows: list[Row]) -> str:
    lines = ["| fault | named first | foretold | had | within 20 % |", "|---|---|---|---|---|"]
    for each in rows:
        foretold = "-" if each.foretold is None else f"{each.foretold:.2f} x"
        within = {True: "yes", False: "no", None: "-"}[each.within]
        first = "yes" if each.first else "no"
        lines.append(f"| {each.fault} | {first} | {foretold} | {each.had:.2f} x | {within} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="sizes for a GPU")
    parser.add_argument("--faults", default=",".join(EXPECTED))
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    on_gpu = bool(list_gpus(os.environ))
    rows = []
    for fault in options.faults.split(","):
        if fault in NOT_ON_A_CPU and not on_gpu:
            continue
        said(fault)
        steps = options.steps or (200 if options.full else 60)
        found = profiled(fault, steps=steps, full=options.full)
        keep(options.output, f"{fault}.json", json.dumps(as_document(found), indent=1))
        said(found.bottleneck)
        rows.append(row(fault, found, full=options.full))
        keep(options.output, "faults.json", json.dumps([asdict(each) for each in rows], indent=2))
        keep(options.output, "faults.md", table(rows))
        print(table(rows[-1:]), flush=True)
    print(table(rows))


def keep(folder: Path | None, name: str, text: str) -> None:
    """As soon as it is there: the rest may be cut off."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
