"""Whole trainings to convergence, ten seeds a backend: do the backends train the same model?

    python benchmarks/equal_backends/equivalence.py --data-dir DIR --minutes 9 --output OUT/equivalence
    python benchmarks/equal_backends/equivalence.py --data-dir DIR --minutes 9 --earlier FILE.runs.jsonl --output OUT/equivalence

`original` on the reference job at the team's hyperparameters, by `--backends eager,graph,compile`. Accuracy only: the
runs share the GPU, several at a time, so that their times mean nothing. Alone on a large GPU a training takes 4 s captured,
4 s compiled after some 15 s of compiling, 25 s eagerly: together 3 to 5 minutes for ten seeds of each.

Each finished training is a line of OUTPUT.runs.jsonl at once, with the device, torch and revision that it was trained with.
Nothing is begun that would not end within the minutes; the second form goes on with what is missing, on the same model of
device and with the same torch, and the table says which revisions its runs are of. OUTPUT.md and OUTPUT.json say what there is: means and their standard errors, and
how far each backend's mean is from the first one's with a 95 % interval (Welch). Masks of dropout differ between
backends, so a training differs as it does between seeds; the means must not. `--quick` is a dry run on the CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))
from benchmarks.equal_backends.differences import Run, compare, table
from benchmarks.shared.circumstances import QUICK, circumstances, heading, write
from benchmarks.shared.data_folder import add_data_dir
from tuner.trial.run import versions

USUAL_S = 60.0
"""A training that is begun may take this, sharing the GPU; later ones what the longest of its process took."""


def child(options: argparse.Namespace) -> None:
    """Train these seeds with one backend and print a line each, as long as there is time."""
    import torch

    from benchmarks.reference_protocol.protocol import run
    from tuner.config import Backend
    from tuner.data.prepare import prepare
    from tuner.data.task import load_task
    from tuner.data.windows import to_device
    from tuner.trial.run import git_revision

    backend, seeds = options.child
    data = to_device(prepare(load_task(options.task), data_dir=options.data_dir), options.device)
    usual = 0.0 if options.quick else USUAL_S
    origin = {
        "device": device_model(options.device),
        "torch": torch.__version__,
        "git_revision": git_revision(),
    }
    for number, seed in enumerate(map(int, seeds.split(","))):
        began = time.time()
        if began + usual > options.deadline:
            return
        done = run(options.variant, seed, Backend(backend), data)
        if done["backend"] != backend:
            raise SystemExit(
                f"{backend} does not serve this network here: it ran as {done['backend']}"
            )
        done["test_mql"] = next(iter(done["test_mql"].values()))  # of the first series: ETTh1's
        print(json.dumps(done | origin), flush=True)
        usual = max(time.time() - began, usual if number else 0.0)


def earlier_runs(file: Path, now: Mapping[str, str]) -> list[Run]:
    """The runs of an earlier call; none where there was none. `now` is what must not differ: device and torch.

    Lines that do not say so themselves are of what the result beside them says.

    Raises:
        SystemExit: they are of another device or torch, or nobody knows of which.
    """
    if not file.exists():
        return []
    beside = Path(str(file).removesuffix(".runs.jsonl") + ".json")
    result = json.loads(beside.read_text(encoding="utf-8")) if beside.exists() else {}
    told = {"device": result.get("device"), "torch": result.get("versions", {}).get("torch")}
    runs = [told | json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    for name, here in now.items():
        if others := {run[name] or "an unknown one" for run in runs} - {here}:
            raise SystemExit(
                f"{file}: the {name} of its runs is {' and '.join(sorted(others))}, here it is {here}; such runs do not "
                "stand in one table: go on where these were made, or begin anew with another --output"
            )
    return runs


def revisions(runs: Sequence[Run]) -> dict[str, dict[str, int]]:
    """How many runs of each backend are of each revision."""
    found: dict[str, Counter[str]] = {}
    for run in runs:
        found.setdefault(run.get("git_revision") or "not recorded", Counter())[run["backend"]] += 1
    return {revision: dict(counted) for revision, counted in found.items()}


def left(runs: Sequence[Run], backends: Sequence[str], seeds: int) -> dict[str, list[int]]:
    """The seeds that each backend has not trained yet."""
    there = {(run["backend"], run["seed"]) for run in runs}
    return {backend: [s for s in range(seeds) if (backend, s) not in there] for backend in backends}


def train_all(
    options: argparse.Namespace, missing: Mapping[str, Sequence[int]], to: Path
) -> list[Run]:
    """Train what is missing, in several processes a backend at the same time; every run is written as it ends.

    Raises:
        SystemExit: one of the processes failed; the others were ended, and what had finished is in the file.
    """
    runs: list[Run] = []
    if time.time() >= options.deadline:
        return runs
    one_at_a_time = threading.Lock()

    def listen(process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("{"):
                with one_at_a_time, to.open("a", encoding="utf-8") as file:
                    file.write(line)
                    runs.append(json.loads(line))
                print(line, end="", file=sys.stderr, flush=True)

    processes = [
        start(options, backend, share) for backend, share in shares(missing, options.processes)
    ]
    threads = [threading.Thread(target=listen, args=(process,)) for _, process in processes]
    for thread in threads:
        thread.start()
    try:
        for backend, process in processes:
            if process.wait():
                raise SystemExit(f"a {backend} training failed; its message is above")
    finally:
        for _, process in processes:
            process.kill()
        for thread in threads:
            thread.join()
    return runs


def shares(missing: Mapping[str, Sequence[int]], processes: int) -> list[tuple[str, list[int]]]:
    """Who trains which seeds: at most so many processes a backend, none without a seed."""
    split = [
        (backend, list(seeds[n::processes]))
        for backend, seeds in missing.items()
        for n in range(processes)
    ]
    return [(backend, share) for backend, share in split if share]


def start(
    options: argparse.Namespace, backend: str, seeds: Sequence[int]
) -> tuple[str, subprocess.Popen[str]]:
    command = [
        sys.executable,
        __file__,
        "--child",
        backend,
        ",".join(map(str, seeds)),
        "--device",
        options.device,
    ]
    command += [
        "--variant",
        options.variant,
        "--task",
        options.task,
        "--deadline",
        str(options.deadline),
    ]
    command += ["--quick"] if options.quick else []
    command += ["--data-dir", str(options.data_dir)] if options.data_dir else []
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return backend, subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_data_dir(parser)
    parser.add_argument(
        "--backends",
        default="eager,graph,compile",
        help="the first is what the others are held against",
    )
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--processes", type=int, default=4, help="per backend, at the same time")
    parser.add_argument(
        "--earlier", type=Path, help="the runs of an earlier call, to go on with what is missing"
    )
    parser.add_argument("--output", type=Path)
    parser.add_argument(
        "--quick", action="store_true", help="a dry run: a tiny network on the CPU, eagerly"
    )
    parser.add_argument("--child", nargs=2, metavar=("BACKEND", "SEEDS"), help=argparse.SUPPRESS)
    for name, default in (("--device", "cuda"), ("--variant", "original"), ("--task", "etth")):
        parser.add_argument(name, default=default, help=argparse.SUPPRESS)
    parser.add_argument("--deadline", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.quick:
        options.device, options.backends, options.seeds, options.processes = (
            "cpu",
            "eager",
            min(options.seeds, 2),
            1,
        )
        options.variant, options.task = (
            str(QUICK / "small-original.toml"),
            str(QUICK / "quick.toml"),
        )
    if options.child is None and options.output is None:
        parser.error("--output is needed")
    return options


def device_model(device: str) -> str:
    import torch

    from tuner.devices.cpu import processor_name

    return torch.cuda.get_device_name() if device == "cuda" else processor_name()


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    if options.child:
        child(options)
        return
    options.deadline = time.time() + 60 * options.minutes
    backends = options.backends.split(",")
    options.output.parent.mkdir(parents=True, exist_ok=True)
    file = Path(f"{options.output}.runs.jsonl")
    earlier = options.earlier or file
    runs = earlier_runs(
        earlier, {"device": device_model(options.device), "torch": versions()["torch"]}
    )
    file.write_text("".join(json.dumps(run) + "\n" for run in runs), encoding="utf-8")
    runs += train_all(options, left(runs, backends, options.seeds), file)
    missing = {
        backend: len(seeds)
        for backend, seeds in left(runs, backends, options.seeds).items()
        if seeds
    }
    found = compare(runs, backends)
    where = circumstances(device_model(options.device))
    unfinished = (
        [f"Still missing: {', '.join(f'{n} of {backend}' for backend, n in missing.items())}."]
        if missing
        else []
    )
    of = revisions(runs)
    told = [
        f"Revision {name}: {', '.join(f'{n} of {each}' for each, n in by.items())}."
        for name, by in of.items()
    ]
    lines = [*heading(where), *table(found), "", *told, *unfinished]
    write(
        options.output,
        where | {"backends": found, "missing": missing, "revisions": of, "runs": runs},
        lines,
    )
    print("\n".join(lines))


if __name__ == "__main__":
    main()
