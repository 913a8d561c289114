"""`tuner verify`: what may be recommended, and the default, again on fresh seeds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuner.cli.command import option, switch, takes
from tuner.cli.options import WorkOptions, opened_database, studies
from tuner.cli.output import print_json, say_told
from tuner.config import MANY, Choice
from tuner.errors import UsageError
from tuner.spec.margin import CONFIRMATION_SEEDS, margin_of

if TYPE_CHECKING:
    from tuner.launch.verification import VerificationOutcome, VerificationRequest


# The options of `tuner verify`.


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions(WorkOptions):
    """The options of `tuner verify`."""

    variant: str = option("NAME[,NAME]", "Variants whose studies to verify, together.", default=...)
    confirm: bool = switch(
        "Test what each study recommends against its default, on untouched seeds."
    )
    top: int | None = option(
        "N",
        "Configurations along each front, its knee included (5); of each round (6).",
        min=1,
        max=MANY,
    )
    choose: Choice | None = option(
        None,
        "What may be recommended, in rounds (where 12 configurations converged); from the "
        "front as the search saw it; or from what all trials together expect of each.",
    )
    seeds: int | None = option(
        "N",
        "Fresh seeds for each configuration (10; of each round 6; with --confirm "
        f"{CONFIRMATION_SEEDS}).",
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
    study: str | None = studies("default: <task>-<variant>")


@takes(VerifyOptions)
def verify(options: VerifyOptions) -> int:
    """Run what may be recommended, and the default, again on seeds that the search never used.

    With --confirm it tests the one that each study recommends: what it is, and the margin, are
    recorded before the first run.
    Runs are interleaved in random order, each alone on its device. Running the same command again
    resumes; when there is nothing left to do it says so.
    """
    _refuse_apart(options)
    margin = margin_of(options.margin, "--margin")
    from tuner.cli.foreground import EXIT_CODES, Foreground
    from tuner.launch import verification
    from tuner.report.terminal.verification import progress_view
    from tuner.verdict.verified import verifications_of

    request = options.request(
        verification.VerificationRequest,
        variants=options.variant,
        studies=options.study,
        choice=options.choose,
        margin=margin,
    )
    foreground = Foreground(lambda studies: progress_view(verifications_of(studies)))
    outcome = verification.run(request, progress=foreground, stop=foreground.stop)
    if outcome.printed:
        say_told(outcome.printed, json=options.json)
        return 0
    _report(outcome, request, json=options.json)
    return EXIT_CODES.get(outcome.ended, 0)


def _refuse_apart(options: VerifyOptions) -> None:
    """Raises UsageError for options that do not go together."""
    alone = {"--top": options.top, "--choose": options.choose}
    confirming = {"--against": options.against, "--margin": options.margin}
    why = "and --confirm exclude each other; choose one"
    for flag, said in (alone if options.confirm else confirming).items():
        if said is not None:
            raise UsageError(f"{flag} {why if options.confirm else 'goes with --confirm'}")


def _report(outcome: VerificationOutcome, request: VerificationRequest, *, json: bool) -> None:
    from tuner.report.terminal.verification import print_verified, verification_document
    from tuner.study.open import open_study

    with opened_database(request.storage) as database:
        opened = [open_study(database, name) for name in outcome.verified]
        if json:
            document = {"outcome": outcome.ended.value, "missing": list(outcome.missing)}
            print_json(document | verification_document(opened))
        else:
            print_verified(opened, ended=outcome.ended.value)
