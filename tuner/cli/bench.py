"""`tuner bench`: our backends, darts and neuralforecast on the same job, batch and device; or the
ladder of one variant's settings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tuner.cli.bench_ladder import climb
from tuner.cli.bench_options import BACKENDS, BATCH, HIDDEN, TRAIN_BUDGET_S, BenchOptions
from tuner.cli.bench_run import Asked, job_of, measured
from tuner.cli.command import takes
from tuner.cli.device import chosen_device
from tuner.cli.options import note
from tuner.cli.output import print_json
from tuner.cli.own_output import printed_to_stderr
from tuner.cli.replace import check_bench_free
from tuner.errors import TunerError, UsageError

if TYPE_CHECKING:
    from tuner.bench import Circumstances, Plan
    from tuner.bench.contender import Job, Measurement


@takes(BenchOptions)
def bench(options: BenchOptions) -> int:
    """Measure our backends against darts and neuralforecast, interleaved, on one device; or, with
    --ladder, what each setting of a training brings.

    Prints a table and writes results.csv and results.md, from the first round on after each.
    """
    from tuner.bench.report import FIRST_COLUMNS

    if options.ladder:
        return climb(options)
    if misplaced := _of_a_ladder(options):
        raise UsageError(f"{misplaced} is of a ladder; add --ladder, or leave it out")
    check_bench_free(options.folder, list(FIRST_COLUMNS), force=options.force)
    sizes = _sizes(options.hidden, HIDDEN, "--hidden"), _sizes(options.batch, BATCH, "--batch")
    device = chosen_device(gpu=options.gpu, cpu=options.cpu)
    with printed_to_stderr(wanted=options.json):
        job = job_of(options, device)
        plan = _plan(options, job, *sizes)
        for notice in plan.notices:
            note(notice)
    asked = Asked(options=options, job=job, device=device, contenders=plan.contenders)
    measurements, circumstances = measured(asked, lambda found, done: _write(options, found, done))
    return _report(options, measurements, circumstances)


def _write(
    options: BenchOptions, measurements: Sequence[Measurement], circumstances: Circumstances
) -> None:
    from tuner.bench import summarise, write_results

    write_results(summarise(measurements), circumstances, options.folder)


def _plan(options: BenchOptions, job: Job, hidden: list[int], batch: list[int]) -> Plan:
    from tuner.bench import make_plan
    from tuner.data.windows import to_device

    return make_plan(
        job,
        to_device(job.prepared, job.device),
        variants=options.variants,
        backends=BACKENDS if options.backends is None else options.backends,
        against=options.against,
        hidden=hidden,
        batch=batch,
        against_everywhere=options.against_everywhere,
    )


def _report(
    options: BenchOptions, measurements: Sequence[Measurement], circumstances: Circumstances
) -> int:
    from tuner.bench import as_documents, print_table, summarise, write_results

    rows = summarise(measurements)
    written = write_results(rows, circumstances, options.folder)
    if options.json:
        print_json(
            {"results": as_documents(rows, circumstances), "files": [str(path) for path in written]}
        )
    else:
        print_table(rows, circumstances)
    note(f"wrote {' and '.join(str(path) for path in written)}")
    if not all(row.failure for row in rows):
        return 0
    if not options.json:
        raise TunerError(f"all contenders dropped out, the first because: {rows[0].failure}")
    return TunerError.exit_code


def _of_a_ladder(options: BenchOptions) -> str:
    """The first option that was given and has a meaning with --ladder only; or nothing."""
    if options.ladder_batch is not None:
        return "--ladder-batch"
    if options.train:
        return "--train"
    return "--train-budget" if options.train_budget != TRAIN_BUDGET_S else ""


def _sizes(said: str | None, usual: str, flag: str) -> list[int]:
    text = usual if said is None else said
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(
            f"{flag}: {text!r} is no list of whole numbers; expected e.g. 64 or 64,128"
        ) from None
