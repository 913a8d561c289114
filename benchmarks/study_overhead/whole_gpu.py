"""How much of a GPU's time is training: whole launches, from Enter to the prompt, read off their trials' own records.

    python benchmarks/study_overhead/whole_gpu.py --data-dir DIR --runs earlier,sqlite,postgresql --earlier TREE --output OUT/whole-gpu
    python benchmarks/study_overhead/whole_gpu.py --data-dir DIR --runs sqlite,earlier --sampler tpe --trials 1000 --earlier TREE --output OUT/thousand
    python benchmarks/study_overhead/whole_gpu.py --data-dir DIR --runs one,two --trials 200 --output OUT/scaling
    python benchmarks/study_overhead/whole_gpu.py --data-dir DIR --runs cold,warm --trials 200 --output OUT/cold

`earlier`, `sqlite` and `postgresql` are searches as people launch them (`auto`, with pruning), one after the other on one
GPU: by the package in TREE, and by this one with either database. `one` and `two` are the same configurations, none
pruned, on one GPU and on two. `cold` and `warm` are one search with nothing compiled before, and again with what the first
left; for `cold` to be that of a fresh machine, it is to be the first command there.

For each: trials an hour between the end of the first and of the last, the share of training and validation in that time
(times the GPUs), the seconds from Enter to the first timed step and to the first trial's end, and of the whole command. What
the shares of the rest are follows from the trials' records, as in study_overhead.py. Writes OUTPUT.md, OUTPUT.json and each
study without its curves, OUTPUT-RUN.study.json.gz. `--quick` is a dry run on the CPU.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT))
from benchmarks.shared.circumstances import QUICK, circumstances, heading, write
from benchmarks.shared.data_folder import add_data_dir
from benchmarks.study_overhead.analysis import PARTS, analyse
from tuner.study.archive import Archive, read_archive, write_archive

STUDY = "whole"


@dataclass(frozen=True, slots=True)
class Run:
    """One launch: by which package, on what, and how it searches."""

    name: str
    tree: Path = ROOT
    postgres: bool = False
    gpus: str = "0"
    search: tuple[str, ...] = ()
    cold: bool = False


def runs_of(options: argparse.Namespace) -> list[Run]:
    """Those that `--runs` names, in its order."""
    same = ("--sampler", "random", "--no-prune")
    known = {
        "earlier": Run("earlier", tree=options.earlier or ROOT),
        "sqlite": Run("sqlite"),
        "postgresql": Run("postgresql", postgres=True),
        "one": Run("one", search=same),
        "two": Run("two", gpus="0,1", search=same),
        "cold": Run("cold", cold=True),
        "warm": Run("warm", cold=True),
    }
    return [known[name] for name in options.runs.split(",")]


@dataclass(frozen=True, slots=True)
class Ran:
    """What a launch left: its study, when Enter was pressed (seconds since 1970), and how long it took."""

    run: Run
    archive: Archive
    entered: float
    seconds: float


def launched(run: Run, options: argparse.Namespace, folder: Path, caches: Path) -> Ran:
    """Press Enter, and wait for the prompt."""
    place = folder / run.name
    place.mkdir()
    with database(run, place) as url:
        environment = os.environ | {
            "PYTHONPATH": f"{run.tree}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        }
        environment["TUNER_STORAGE"] = url
        if run.cold:
            environment["TRITON_CACHE_DIR"] = str(caches / "triton")
        device = ("--cpu", "--workers", "1") if options.cpu else ("--gpus", run.gpus)
        words = [
            "launch", "--variant", options.variant, "--task", options.task, "--study", STUDY, *device,
            *(("--data-dir", str(options.data_dir)) if options.data_dir else ()), "--trials", str(options.trials),
            "--timeout", options.timeout, *(("--max-epochs", str(options.max_epochs)) if options.max_epochs else ()),
            *(run.search or ("--sampler", options.sampler)), *(("--reruns", "0") if options.quick else ()),
        ]  # fmt: skip
        print(f"{run.name}: tuner {' '.join(words)}", flush=True)
        entered, began = time.time(), time.monotonic()
        called(words, place, environment, show=options.show)
        seconds = time.monotonic() - began
        called(["study", "export", STUDY, "--output", "study.json.gz"], place, environment)
        said = [path.read_text() for path in sorted(place.rglob("*.log"))]
        Path(f"{options.output}-{run.name}.log").write_text("\n".join(said))
    return Ran(run, read_archive(place / "study.json.gz"), entered, seconds)


def called(
    words: Sequence[str], place: Path, environment: Mapping[str, str], *, show: bool = False
) -> None:
    command = [sys.executable, "-m", "tuner", *words]
    with (place / f"{words[0]}.log").open("w") as log:
        out = None if show else log
        done = subprocess.run(
            command, cwd=place, env=environment, stdout=out, stderr=out, check=False
        )
    if done.returncode:
        print((place / f"{words[0]}.log").read_text()[-4000:], file=sys.stderr)
        raise SystemExit(done.returncode)


@contextlib.contextmanager
def database(run: Run, place: Path) -> Iterator[str]:
    """Its address."""
    if not run.postgres:
        yield f"sqlite:///{place}/study.db"
        return
    from tests.support.postgres_cluster import running_cluster

    with running_cluster() as cluster:
        yield cluster.escaped_url(cluster.create_database())


def figures(ran: Ran) -> dict[str, Any]:
    """What is said of a launch."""
    recorded = [record.recorded for record in ran.archive.records if record.recorded.timed_from]
    recorded.sort(key=lambda each: float(each.timed_until or 0))
    trained = sum(float(each.wall_clock_s or 0) for each in recorded[1:])
    first, last = float(recorded[0].timed_until or 0), float(recorded[-1].timed_until or 0)
    gpus = len(ran.run.gpus.split(","))
    found = analyse(ran.archive.records)
    return {
        "trials": len(recorded),
        "ended": found["ended"],
        "trials_per_hour": 3600 * (len(recorded) - 1) / (last - first),
        "training_share": trained / (last - first) / gpus,
        "first_step_s": min(float(each.timed_from or 0) for each in recorded) - ran.entered,
        "first_trial_s": first - ran.entered,
        "command_s": ran.seconds,
        "contaminated": sum(bool(each.contaminated) for each in recorded),
        "parts": {part: found["parts"][part]["share"] for part in PARTS},
        "medians": {part: found["parts"][part]["median"] for part in PARTS},
        "memory": found["memory"],
        "revisions": sorted({str(each.git_revision) for each in recorded}),
        "versions": recorded[0].versions,
    }


def table(found: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The results in Markdown, a launch a line."""
    lines = [
        "| launch | trials | an hour | training and validation | first step s | first trial s | command s | how they ended |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, f in found.items():
        ended = ", ".join(f"{end} {count}" for end, count in f["ended"].items())
        lines.append(
            f"| {name} | {f['trials']} | {f['trials_per_hour']:.0f} | {f['training_share']:.1%} | {f['first_step_s']:.1f} "
            f"| {f['first_trial_s']:.1f} | {f['command_s']:.1f} | {ended} |"
        )
    lines += [
        "",
        f"| share of a trial's cycle | {' | '.join(found)} |",
        f"|---|{'---|' * len(found)}",
    ]
    for part in PARTS:
        cells = [
            f"{f['parts'][part]:.1%} ({1000 * f['medians'][part]:.1f} ms)" for f in found.values()
        ]
        lines.append(f"| {part} | {' | '.join(cells)} |")
    lines += [
        "",
        "Shares, and medians a trial, of the cycles from one training's end to the next one's.",
    ]
    for name, f in found.items():
        if (held := f["memory"]) is not None:
            early, last = (f"{bytes_ / 2**20:.1f}" for bytes_ in held["allocated_memory_bytes"])
            most, end = (f"{bytes_ / 2**20:.1f}" for bytes_ in held["reserved_memory_bytes"])
            after = " and ".join(map(str, held["after"]))
            lines.append(
                f"{name}: held after trial {after}: {early} and {last} MiB in tensors, {most} and {end} MiB in all."
            )
        if f["contaminated"]:
            lines.append(f"{name}: {f['contaminated']} timings were disturbed.")
    return lines


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_data_dir(parser)
    parser.add_argument("--runs", default="sqlite")
    parser.add_argument("--earlier", type=Path, help="a checkout of an earlier revision")
    parser.add_argument("--variant", default="original")
    parser.add_argument("--task", default="etth")
    parser.add_argument("--trials", type=int, default=400)
    parser.add_argument("--sampler", default="auto", help="of searches")
    parser.add_argument("--max-epochs", type=int)
    parser.add_argument("--timeout", default="8m")
    parser.add_argument("--cpu", action="store_true", help="one worker")
    parser.add_argument("--caches", type=Path, help="where the cold run leaves what it compiled")
    parser.add_argument("--show", action="store_true", help="what the launches say")
    parser.add_argument("--quick", action="store_true", help="a dry run: tiny trials on the CPU")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args(arguments)
    if options.quick:
        options.cpu, options.trials, options.max_epochs = True, 3, 1
        options.task, options.variant = (
            str(QUICK / "quick.toml"),
            str(QUICK / "small-original.toml"),
        )
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        caches = options.caches or Path(folder) / "caches"
        for run in runs_of(options):
            ran = launched(run, options, Path(folder), caches)
            found[run.name] = figures(ran)
            kept = dataclasses.replace(ran.archive, curves={})
            write_archive(kept, Path(f"{options.output}-{run.name}.study.json.gz"))
            where = circumstances(ran.archive.device_model or "no device")
            lines = [*heading(where), *table(found)]
            write(options.output, where | {"runs": found}, lines)  # each at once: a call may end
    print("\n".join(lines))


if __name__ == "__main__":
    main()
