"""`tuner bench --ladder`: what each setting of a training brings, alone and beside others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tuner.cli.bench_run import Asked, job_of, measured
from tuner.cli.device import chosen_device
from tuner.cli.options import note
from tuner.cli.output import print_json
from tuner.cli.own_output import printed_to_stderr
from tuner.cli.replace import check_bench_free
from tuner.config import Precision
from tuner.errors import TunerError, UsageError

if TYPE_CHECKING:
    from tuner.bench import Circumstances
    from tuner.bench.contender import Measurement
    from tuner.bench.ladder import LadderRow, Trainings
    from tuner.cli.bench_options import BenchOptions

OWN_SIZES = "a ladder begins with the variant's own sizes and settings"


def climb(options: BenchOptions) -> int:
    """Measure the rungs interleaved, train them where that was asked for, and report."""
    from tuner.bench.entrants import names
    from tuner.bench.ladder import Trainings, ladder_rows, make_ladder, train_rungs, write_ladder
    from tuner.bench.ladder.ladder_report import FIRST_LADDER_COLUMNS
    from tuner.data.windows import to_device
    from tuner.spec.study_file import load_study_file

    _check(options)
    check_bench_free(options.folder, list(FIRST_LADDER_COLUMNS), force=options.force)
    (variant, *others) = names(options.variants, "--variants")
    if others or variant == "all":
        raise UsageError(f"--variants: {options.variants!r}; a ladder is of one variant")
    device = chosen_device(gpu=options.gpu, cpu=options.cpu)
    with printed_to_stderr(wanted=options.json):
        job = job_of(options, device)
        data = to_device(job.prepared, job.device)
        ladder = make_ladder(
            job,
            data,
            load_study_file(variant),
            precision=Precision.BF16 if options.precision is Precision.FP32 else options.precision,
            batch_size=options.ladder_batch,
        )
    for rung in ladder.rungs:
        if rung.why_not:
            note(f"left out: {rung.change} ({rung.kind}): {rung.why_not}")
    trainings = Trainings()

    def rows(measurements: Sequence[Measurement]) -> list[LadderRow]:
        return ladder_rows(ladder, measurements, trainings, seeds=options.train)

    def train(measurements: Sequence[Measurement], write: Callable[[], object]) -> None:
        nonlocal trainings

        def keep(so_far: Trainings) -> None:
            nonlocal trainings
            trainings = so_far
            write()

        trainings = train_rungs(
            ladder,
            data,
            seeds=options.train,
            budget_s=options.train_budget,
            announce=note,
            after_each=keep,
            failed={n: each.failure for n, each in enumerate(measurements) if each.failure},
        )

    asked = Asked(options=options, job=job, device=device, contenders=ladder.contenders)
    measurements, circumstances = measured(
        asked,
        lambda found, done: write_ladder(rows(found), done, options.folder),
        more=train,
    )
    return _report(options, rows(measurements), circumstances)


def _check(options: BenchOptions) -> None:
    """Raises UsageError for options that a ladder has no use for."""
    usual = type(options)()
    for name in ("backends", "against", "against_everywhere", "hidden", "batch"):
        if getattr(options, name) not in (None, False):
            flag = f"--{name.replace('_', '-')}"
            raise UsageError(f"--ladder and {flag} exclude each other: {OWN_SIZES}")
    if options.train_budget != usual.train_budget and not options.train:
        raise UsageError("--train-budget is of trainings; add --train SEEDS, or leave it out")


def _report(options: BenchOptions, rows: Sequence[LadderRow], circumstances: Circumstances) -> int:
    from tuner.bench.ladder import as_ladder_documents, print_ladder, write_ladder

    written = write_ladder(rows, circumstances, options.folder)
    if options.json:
        print_json(
            {
                "ladder": as_ladder_documents(rows, circumstances),
                "files": [str(path) for path in written],
            }
        )
    else:
        print_ladder(rows, circumstances)
    note(f"wrote {' and '.join(str(path) for path in written)}")
    if not all(row.failure for row in rows):
        return 0
    if not options.json:
        raise TunerError(f"no rung could be measured, the first because: {rows[0].failure}")
    return TunerError.exit_code
