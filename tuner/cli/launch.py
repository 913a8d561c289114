"""`tuner launch`: from a variant's name to a study with its front."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tuner.cli.command import option, switch, takes
from tuner.cli.notify import notified
from tuner.cli.options import SearchOptions, as_typed, opened_database
from tuner.cli.output import note, print_json, say_told
from tuner.config import MANY, MOST_SEARCHES
from tuner.spec.policy import SearchPolicy, StudySettings

if TYPE_CHECKING:
    from tuner.launch import LaunchOutcome


# The options of `tuner launch`.


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOptions(SearchOptions):
    """The options of `tuner launch`."""

    variant: str = option("NAME[,NAME]", "Variants, or study files (.toml).", default=...)
    print_only: bool = switch(
        "Print what the engine would be told; the studies are made, nobody works.", named="--print"
    )
    trials: int | None = option(
        "N", "Finished trials of each study (a new one: 50).", min=1, max=MANY
    )
    searches: int | None = option(
        "S", "Independent searches of each variant (1).", min=1, max=MOST_SEARCHES
    )
    study: str | None = option("NAME", "The study's name (default: <task>-<variant>).")
    policy: SearchPolicy = field(default_factory=SearchPolicy)
    warm_start: str | None = option(
        "STUDY[,STUDY]", "Studies, or exported ones, whose fronts go first."
    )
    settings: StudySettings = field(default_factory=StudySettings)


@takes(LaunchOptions)
def launch(options: LaunchOptions) -> int:
    """Retune variants: one study each, or one for each search, workers on every device,
    until every study holds --trials finished trials.

    Running the same command again resumes. Later launches keep earlier settings unless you change
    them. Brackets show the default of a new study. 'none' lifts a limit.
    """
    from tuner.cli.foreground import EXIT_CODES, Foreground
    from tuner.launch import LaunchRequest, run
    from tuner.report.terminal.live import live_view
    from tuner.report.terminal.tables import held_in_words
    from tuner.report.tracking import check_tracker

    check_tracker(options.track)
    request = options.request(LaunchRequest, variants=options.variant)
    foreground = Foreground(live_view)
    with notified(options.notify, f"launch {options.variant}") as told:
        outcome = run(request, progress=foreground, stop=foreground.stop)
        if outcome.printed:
            say_told(outcome.printed, json=options.json)
        else:
            _report(outcome, options, request.storage)
        held = [f"{each.name}: {held_in_words(each.counts)}" for each in outcome.studies]
        told |= {"event": "end", "ended": outcome.ended.value, "answer": "; ".join(held)}
    return EXIT_CODES.get(outcome.ended, 0)


def _report(outcome: LaunchOutcome, options: LaunchOptions, storage: str) -> None:
    from tuner.launch import Outcome
    from tuner.launch.request import refuse_nothing_but_failures
    from tuner.report.study_status import groups_of, status_of
    from tuner.report.terminal.tables import print_summary
    from tuner.report.tracking import tracked
    from tuner.study.open import open_study

    with opened_database(storage) as database:
        opened = [open_study(database, each.name) for each in outcome.studies]
        if not options.json:
            print_summary(opened, as_typed(options.storage), ended=outcome.ended.value)
        tracked(options.track, storage, outcome.groups, note)
        if outcome.ended is Outcome.FILLED:
            refuse_nothing_but_failures(outcome)
        if options.json:
            studies = [
                status_of(study) | {"changed": each.changed}
                for study, each in zip(opened, outcome.studies, strict=True)
            ]
            found = {"studies": studies, "groups": groups_of(opened)}
            print_json({"outcome": outcome.ended.value, **found})
