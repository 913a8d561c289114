"""`tuner retune`: from a variant's name to a verdict, as one command that goes on where it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tuner.cli import output
from tuner.cli.command import But, option, switch, takes
from tuner.cli.notify import notified
from tuner.cli.options import SearchOptions
from tuner.cli.output import note, print_json
from tuner.cli.replace import Force, check_free, check_placeable, is_page
from tuner.config import MANY
from tuner.errors import UsageError
from tuner.spec.policy import Registered, SearchPolicy, StudySettings

if TYPE_CHECKING:
    from tuner.launch.request import StopRequests
    from tuner.launch.retune import RetuneOutcome, RetuneRequest
    from tuner.launch.retune_request import Standing
    from tuner.report.terminal.retuning import StageLines
    from tuner.study.open import OpenStudy


# The options of `tuner retune`.


@dataclass(frozen=True, slots=True, kw_only=True)
class RetuneOptions(SearchOptions):
    """The options of `tuner retune`."""

    variant: str = option("NAME", "The variant, or study file (.toml), to retune.", default=...)
    plan: Registered = field(default_factory=Registered)
    top: int | None = option(
        "N", "Configurations of each round of re-evaluation (6).", min=1, max=MANY
    )
    html: Path | None = option(
        "FILE", "The report (retune-<study>.html beside the SQLite file, else in storage)."
    )
    policy: Annotated[
        SearchPolicy, But(("max_time_s", "max_mql", "max_memory_bytes", "search_s", "margin"))
    ] = field(default_factory=SearchPolicy)
    """The margin is registered, and the time of a search a share of the budget."""
    warm_start: str | None = option(
        "STUDY[,STUDY]", "Other studies, or exported ones, whose fronts all searches try first."
    )
    settings: Annotated[StudySettings, But(("seeds",))] = field(default_factory=StudySettings)
    details: bool = switch("The statistics behind the answer, and what it cost.")
    force: Force = False


@takes(RetuneOptions)
def retune(options: RetuneOptions) -> int:
    """Retune a variant to a verdict: searches, re-evaluation on fresh seeds, confirmation,
    comparison.

    Running the same command again goes on where it was. What is asked for is registered when it
    begins; nothing changes once the confirmation has begun.
    """
    from tuner.cli.foreground import EXIT_CODES
    from tuner.launch.request import StopRequests
    from tuner.launch.retune import RetuneRequest, run
    from tuner.report.terminal.retuning import StageLines
    from tuner.report.tracking import check_tracker, tracked

    check_tracker(options.track)
    request = options.request(RetuneRequest, **options.plan.said())
    page = _page(options, request)
    foreground = _Foreground(StageLines(), StopRequests())
    with notified(options.notify, f"retune {options.variant}") as told:
        outcome = run(request, progress=foreground, stop=foreground.stop)
        _report(outcome, page, request, details=options.details, json=options.json)
        tracked(options.track, request.storage, outcome.groups, note)
        told |= {"event": "end", "ended": outcome.ended.value}
        if outcome.verdict is not None:
            told["answer"] = next(iter(outcome.verdict.answer), "")
        if any(each.confirmation and each.confirmation.holds for each in outcome.costs):
            told["event"] = "recommendation"
    return EXIT_CODES.get(outcome.ended, 0)


def _page(options: RetuneOptions, request: RetuneRequest) -> Path | None:
    """Where the report goes. Nobody asked for the one that is written by itself, so no verdict is
    held back for it: it is left out where its folder takes no files.

    Raises:
        UsageError: the page that was asked for cannot be written, or a file is in its place.
    """
    page = options.html or _default_page(request)
    try:
        check_placeable(page)
    except UsageError as error:
        if options.html is not None:
            raise
        note(f"no report will be written: {error}, with --html")
        return None
    check_free(page, is_page, force=options.force)
    return page


def _default_page(request: RetuneRequest) -> Path:
    """Where the logs are, too: the report is about this database, not about where one stands."""
    import re

    from tuner.storage.url import absolute, parse_url
    from tuner.verdict.verification_plan import study_names
    from tuner.worker.paths import working_folder

    *_, group = study_names(request.variant, task=request.task)
    readable = re.sub(r"[^A-Za-z0-9_-]+", "_", group)[:60]
    return working_folder(absolute(parse_url(request.storage))) / f"retune-{readable}.html"


@dataclass(slots=True)
class _Foreground:
    """Notes and stages go to stderr, and signals end the work cleanly."""

    lines: StageLines
    stop: StopRequests
    _begun: set[str] = field(default_factory=set)

    def note(self, line: str) -> None:
        output.note(line)

    def stage(self, standing: Standing) -> None:
        first = standing.stage.value not in self._begun
        self._begun.add(standing.stage.value)
        self.lines.show(standing.line, stays=standing.over or first)

    @contextmanager
    def watching(self, studies: Sequence[OpenStudy]) -> Iterator[Callable[[], None]]:
        from tuner.cli.foreground import stopped_by_signals

        with self.lines.live(), stopped_by_signals(self.stop):
            yield lambda: self.lines.trains(studies)


def _report(
    outcome: RetuneOutcome, page: Path | None, request: RetuneRequest, *, details: bool, json: bool
) -> None:
    from tuner.display.terminal import make_console
    from tuner.launch import Outcome
    from tuner.report.comparison_files import write_html
    from tuner.report.terminal.comparison import print_answer, print_sections
    from tuner.report.terminal.retuning import COST, verdict_sections
    from tuner.report.terminal.tables import next_steps, print_next, stopped_in_words
    from tuner.storage.url import absolute, parse_url

    written = None
    if outcome.ended is not Outcome.FILLED:
        note(stopped_in_words(outcome.ended.value))
    if outcome.verdict is not None:
        if not json:  # first: a page that cannot be written takes no words with it
            if details:
                print_sections(verdict_sections(outcome.verdict, outcome.lines), make_console())
            else:
                print_answer(outcome.verdict)
        if page is not None:
            page.parent.mkdir(parents=True, exist_ok=True)
            more = [(COST, [f"{each}." for each in outcome.lines])]
            write_html(outcome.verdict, page, more=more)
            written = str(page)
            (note if json else output.say)(f"Page: {page}")
        if not json:
            address = absolute(parse_url(request.storage))
            print_next(next_steps(outcome.verdict.studies, address, (), ended="filled"))
    if json:
        sections = verdict_sections(outcome.verdict, outcome.lines) if outcome.verdict else []
        words = [{"title": title, "sentences": told} for title, told in sections]
        print_json({**outcome.as_dict(), "words": words, "html": written})
