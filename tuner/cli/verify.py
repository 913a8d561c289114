"""`tuner verify`: what may be recommended, and the default, again on fresh seeds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import typer

from tuner.cli.asked import WorkOptions
from tuner.cli.command import option, switch, takes
from tuner.cli.options import opened_database, print_json, say_told
from tuner.config import MANY
from tuner.errors import UsageError
from tuner.spec.margin import CONFIRMATION_SEEDS, margin_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuner.launch.verification import VerificationOutcome, VerificationRequest
    from tuner.study.open import OpenStudy


# The options of `tuner verify`.


class FrontChosen(StrEnum):
    """`tuner.verdict.runs_model.Choice`, without its imports."""

    FRONT = "front"
    EXPECTED = "expected"
    RECOMMENDED = "recommended"


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions(WorkOptions):
    """The options of `tuner verify`."""

    variant: str = option("NAME[,NAME]", "Variants whose studies to verify, together.", default=...)
    confirm: bool = switch(
        "Test what each study recommends against its default, on untouched seeds."
    )
    ablate: bool = switch(
        "Run what each study recommends with one value at a time set back to the default."
    )
    top: int | None = option(
        "N",
        "Configurations along each front, its knee included (5); of each round (6).",
        min=1,
        max=MANY,
    )
    choose: FrontChosen | None = option(
        None,
        "What may be recommended, in rounds (where 12 configurations converged); from the "
        "front as the search saw it; or from what all trials together expect of each.",
    )
    seeds: int | None = option(
        "N",
        "Fresh seeds for each configuration (10; of each round 6; with --confirm "
        f"{CONFIRMATION_SEEDS}; with --ablate 10).",
        min=1,
        max=MANY,
    )
    against: str | None = option(
        "NAME",
        "With --confirm: also what has the quality of this variant's default, or "
        "group:NAME's (the first variant's, where several are named).",
    )
    margin: str | None = option(
        "1%", "With --confirm: as good is an MQL at most so much above the default's."
    )
    print_only: bool = switch(
        "Print what the engine would be told; the studies are made, nobody works.", named="--print"
    )
    stop_early: bool = switch("End at a planned look (60 or 80 % of the seeds) when all is clear.")
    study: str | None = option(
        "NAME[,NAME]", "Studies, or group:NAME (default: all searches of <task>-<variant>)."
    )


@takes(VerifyOptions)
def verify(options: VerifyOptions) -> int:
    """Run what may be recommended, and the default, again on seeds that the search never used.

    With --confirm it tests the one that each study recommends: what it is, and the margin, are
    recorded before the first run.
    Runs are interleaved in random order, each alone on its device. Running the same command again
    resumes; when there is nothing left to do it says so.
    """
    _refuse_apart(options)
    request = _request(options)
    from tuner.cli.foreground import EXIT_CODES, Foreground
    from tuner.launch import verification
    from tuner.report.terminal.verification import progress_view
    from tuner.verdict.verified import verifications_of

    foreground = Foreground(lambda studies: progress_view(verifications_of(studies)))
    outcome = verification.run(request, progress=foreground, stop=foreground.stop)
    if outcome.printed:
        say_told(outcome.printed, json=options.json)
        return 0
    _report(outcome, request, json=options.json)
    return EXIT_CODES.get(outcome.ended, 0)


def _refuse_apart(options: VerifyOptions) -> None:
    """Raises UsageError for options that do not go together."""
    alone = {
        "--top": options.top is not None,
        "--choose": options.choose is not None,
        "--stop-early": options.stop_early,
    }
    confirming = {"--against": options.against is not None, "--margin": options.margin is not None}
    if options.ablate:
        for flag, said in (alone | confirming | {"--confirm": options.confirm}).items():
            if said:
                raise UsageError(f"{flag} and --ablate exclude each other; choose one")
    for flag, said in (alone if options.confirm else confirming).items():
        if said and options.confirm:
            raise UsageError(f"{flag} and --confirm exclude each other; choose one")
        if said:
            raise UsageError(f"{flag} goes with --confirm")
    if options.stop_early and options.choose is FrontChosen.RECOMMENDED:
        raise UsageError("--stop-early and --choose recommended exclude each other; choose one")


def _request(options: VerifyOptions) -> VerificationRequest:
    from tuner.launch.verification import VerificationRequest
    from tuner.verdict.runs_model import Choice

    return VerificationRequest(
        variants=options.variant,
        studies=options.study,
        top=options.top,
        choice=None if options.choose is None else Choice(options.choose.value),
        seeds=options.seeds,
        stop_early=options.stop_early,
        confirm=options.confirm,
        ablate=options.ablate,
        against=options.against,
        margin=margin_of(options.margin, "--margin"),
        **options.common(),
    )


def _report(outcome: VerificationOutcome, request: VerificationRequest, *, json: bool) -> None:
    from tuner.report.terminal.verification import print_verified, verification_document
    from tuner.study.open import open_study

    with opened_database(request.storage) as database:
        opened = [open_study(database, name) for name in outcome.verified]
        if request.ablate:
            _report_ablations(opened, outcome, json=json)
        elif json:
            document = {"outcome": outcome.ended.value, "missing": list(outcome.missing)}
            print_json(document | verification_document(opened))
        else:
            print_verified(opened, ended=outcome.ended.value)


def _report_ablations(
    opened: Sequence[OpenStudy], outcome: VerificationOutcome, *, json: bool
) -> None:
    from tuner.report.terminal.explanations import ablation_lines
    from tuner.study.snapshot import snapshot
    from tuner.verdict.ablation import ablation_of

    found = {each.name: ablation_of(snapshot(each).with_runs_read()) for each in opened}
    if json:
        ablations = {name: each and each.as_dict() for name, each in found.items()}
        missing = list(outcome.missing)
        print_json({"outcome": outcome.ended.value, "missing": missing, "ablations": ablations})
        return
    for each in found.values():
        for line in ablation_lines(each) if each is not None else ():
            typer.echo(line)
