"""What a study costs beside its trainings: N trials through the real worker, read off the trials' own records.

    python benchmarks/study_overhead/study_overhead.py --data-dir DIR --gpu 0 --output OUT/200-trials
    python benchmarks/study_overhead/study_overhead.py --study OUT/etth-original.json.gz --output OUT/1000-trials-h200

200 trials of `original` on the reference job, proposed by TPE, none pruned, each at most 5 epochs long: a study of real
trials would take longer, and what is measured here happens once a trial however long that is. On an H200 that was a minute
and a half; `--timeout` ends it in any case, and the table says how many there were. `--trials 1000` makes it longer,
`--max-epochs 200 --prune` makes the trials real ones, as a search has them.

With `--study` nothing is run: an exported study is analysed, such as one of 1,000 real trials that was made in several
calls of `benchmarks/campaign/run.py --plan thousand`. It answers how many trials one GPU does in an hour, and what the
time went to. Each call begins with a trial of its own set-up, which is left out.

Every second of the worker is in one of the parts (docs/how-it-works.md says what each is): from one return of a training
to the next, `cycle_s`. What is not training, validation or asking the sampler is to stay under 0.25 s a trial. How much
of an epoch is validation is measured apart, at the default sizes: a trial's own clock does not stop between the two.

Memory that the process holds on its GPU when a trial's network is gone must be the same after trial 10 and after the
last. What a trial costs must not grow with the study: medians of the first and of the last tenth of the trials stand
beside each other. Writes OUTPUT.md, OUTPUT.json and the study itself without its learning curves, OUTPUT.study.json.gz.
`--quick` is a dry run with tiny trials.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[2]))
from benchmarks.shared.circumstances import QUICK, circumstances, heading, tuner, write
from benchmarks.shared.data_folder import add_data_dir
from benchmarks.study_overhead.analysis import TARGET_S, analyse
from tuner.search.methods import prunes
from tuner.storage.database import open_database
from tuner.storage.url import parse_url
from tuner.study.archive import Archive, archive_of, read_archive, write_archive
from tuner.study.open import open_study
from tuner.study.results import TrialRecord, judged

MIB = 2**20


def ran(records: Sequence[TrialRecord]) -> dict[str, Any]:
    """When the trials ran, and on what code: an analysis may be made later, elsewhere. Dates are this machine's time."""
    times = sorted(time for record in records for time in (record.started, record.ended) if time)
    versions = [each for record in records if isinstance(each := record.recorded.versions, dict)]
    return {
        "between": [times[0], times[-1]] if times else None,
        "versions": [each for n, each in enumerate(versions) if each not in versions[:n]],
        "revisions": sorted(
            {str(r.recorded.git_revision) for r in records if r.recorded.git_revision}
        ),
    }


def front_of(archive: Archive) -> list[list[float]]:
    """The study's front: the values of its trials, the fastest first."""
    results = judged(archive.records, archive.definition.objectives, archive.policy)
    return [list(record.values) for record in results.front if record.values]


def validation_share(variant: str, task: str, data_dir: Path | None, device: str) -> float:
    """The share of validation in an epoch at the default sizes, the device synchronised between the two."""
    import torch

    from tuner.bench.contender import Job
    from tuner.bench.entrants import Ours, make_plan
    from tuner.config import Precision
    from tuner.data.prepare import prepare
    from tuner.data.task import load_task
    from tuner.data.windows import to_device
    from tuner.spec.study_file import load_study_file

    job = Job(
        prepared=prepare(load_task(task), data_dir=data_dir),
        device=torch.device(device),
        precision=Precision.FP32,
    )
    default = load_study_file(variant).default_hyperparameters()
    plan = make_plan(
        job,
        to_device(job.prepared, job.device),
        variants=variant,
        backends="graph" if device.startswith("cuda") else "eager",
        against="none",
        hidden=[default.hidden_size],
        batch=[default.batch_size],
    )
    (contender,) = plan.contenders
    assert isinstance(contender, Ours)
    turn = contender.run(3)
    return statistics.median(
        1 - epoch.step_s * turn.n_steps / epoch.seconds for epoch in turn.epochs
    )


def table(found: dict[str, Any]) -> list[str]:
    """The result in Markdown."""
    rows = [
        (part, f, f"{f['share']:.1%}", f"{f['first_tenth']:.4f}, {f['last_tenth']:.4f}")
        for part, f in found["parts"].items()
    ]
    rows.append(("**all but training, validation and suggesting**", found["overhead_s"], "", ""))
    rows.append(("a trial's cycle", found["cycle_s"], "100 %", ""))
    cell = "| {} | {:.4f} | {:.4f} | {:.4f} | {} | {} |"
    verdict = "met" if found["target_met"] else "missed"
    lines = [
        f"{found['trials']} trials, {found['counted']} with a whole cycle; {found['trials_per_hour']:.0f} trials an hour"
        f" of at most {found['max_epochs']} epochs, sampler {found['sampler']}, "
        f"{'with' if found['prune'] else 'without'} pruning. How they ended: "
        + ", ".join(f"{end} {count}" for end, count in found["ended"].items())
        + ".",
        "",
        "| part of a trial | median s | p95 s | max s | share | median s of the first and the last tenth |",
        "|---|---|---|---|---|---|",
        *(
            cell.format(part, f["median"], f["p95"], f["max"], share, drift)
            for part, f, share, drift in rows
        ),
        "",
        f"Target: at most {TARGET_S} s a trial in the median beside training, validation and suggesting: **{verdict}**.",
    ]
    if found.get("front"):
        (fastest, its), (slowest, lowest) = found["front"][0], found["front"][-1]
        lines.append(
            f"Front: {len(found['front'])} trials, from {fastest:.3f} s and MQL {its:.4f} to {slowest:.3f} s and {lowest:.4f}."
        )
    if (share := found.get("validation_share")) is not None:
        lines.append(f"Validation is {share:.1%} of an epoch at the default sizes, measured apart.")
    if (held := found["memory"]) is not None:
        (first, last), same = held["after"], "equal" if held["equal"] else "**not equal**"
        pairs = ", ".join(
            f"{name} {held[key][0] / MIB:.1f} and {held[key][1] / MIB:.1f} MiB (most {held['most'][key] / MIB:.1f})"
            for name, key in (
                ("allocated", "allocated_memory_bytes"),
                ("reserved", "reserved_memory_bytes"),
            )
        )
        lines.append(
            f"Memory held on the GPU after trial {first} and after trial {last}: {same}: {pairs}."
        )
    return lines


def its_trials(ran: dict[str, Any]) -> list[str]:
    """What the heading cannot say where an exported study is analysed: that speaks of the analysis."""
    versions = "; ".join(
        ", ".join(f"{name} {version}" for name, version in each.items() if version)
        for each in ran["versions"]
    )
    when = " to ".join(ran["between"] or ["unknown"])
    return [
        f"Its trials ran from {when} with {versions}; revision {', '.join(ran['revisions'])}.",
        "",
    ]


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_data_dir(parser)
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--gpu", type=int, default=0)
    place.add_argument("--cpu", action="store_true", help="one worker")
    parser.add_argument("--variant", default="original")
    parser.add_argument("--task", default="etth")
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--max-epochs", type=int, default=5)
    parser.add_argument("--sampler", default="tpe")
    parser.add_argument(
        "--prune", action="store_true", help="end hopeless trials early, as a search does"
    )
    parser.add_argument("--timeout", default="8m")
    parser.add_argument("--study", type=Path, help="analyse this exported study; nothing is run")
    parser.add_argument("--quick", action="store_true", help="a dry run: tiny trials on the CPU")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args(arguments)
    if options.quick:
        options.cpu, options.trials, options.max_epochs = True, 4, 1
        options.task = str(QUICK / "quick.toml")
    return options


def search(options: argparse.Namespace) -> Archive:
    """The study that these options ask for."""
    with tempfile.TemporaryDirectory() as folder:
        storage = f"sqlite:///{folder}/study.db"
        tuner(
            "launch", "--variant", options.variant, "--task", options.task, "--study", "overhead",
            *(("--cpu", "--workers", "1") if options.cpu else ("--gpus", "0")),
            *(("--data-dir", str(options.data_dir)) if options.data_dir else ()),
            "--trials", str(options.trials), "--max-epochs", str(options.max_epochs), "--sampler", options.sampler,
            "--prune" if options.prune else "--no-prune",
            "--timeout", options.timeout, "--storage", storage, *(("--reruns", "0") if options.quick else ()),
        )  # fmt: skip
        database = open_database(parse_url(storage), create=False)
        archive = archive_of(open_study(database, "overhead"))
        database.close()
    return archive


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    if options.study is not None:
        archive, share = read_archive(options.study), None
    else:
        if not options.cpu:
            from tuner.cli.device import own_device

            own_device(
                gpu=options.gpu, cpu=False, cores=None
            )  # from here on it is GPU 0, for the launch and for us
        archive = search(options)
        device = "cpu" if options.cpu else "cuda:0"
        share = validation_share(options.variant, options.task, options.data_dir, device)
    write_archive(dataclasses.replace(archive, curves={}), Path(f"{options.output}.study.json.gz"))
    found = analyse(archive.records) | {
        "max_epochs": archive.definition.training.max_epochs,
        "validation_share": share,
    }
    found |= {"ran": ran(archive.records), "front": front_of(archive)}
    policy = archive.policy
    found |= {"sampler": policy.sampler, "prune": prunes(policy.sampler, policy.prune)}
    where = circumstances(archive.device_model or "no device")
    lines = [
        *heading(where),
        *(its_trials(found["ran"]) if options.study is not None else []),
        *table(found),
    ]
    write(options.output, where | found, lines)
    print("\n".join(lines))


if __name__ == "__main__":
    main()
