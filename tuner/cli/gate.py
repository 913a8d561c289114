"""`tuner gate`: whether a changed model is still as good, for pull requests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tuner.cli import options as common
from tuner.cli.command import option, switch, takes
from tuner.cli.device import OneDeviceOptions, chosen_gpu
from tuner.cli.options import Json, Storage, TaskName, Timeout, Trust
from tuner.cli.output import note, print_json, say
from tuner.cli.replace import Force, check_free, check_placeable
from tuner.errors import UsageError
from tuner.settings import duration_s

if TYPE_CHECKING:
    from tuner.launch.gate import GateOutcome
    from tuner.launch.request import DeviceChoice

WORSE, UNDECIDED = 3, 4
"""Exit codes of these answers."""
REPORT_STARTS = "<!-- tuner gate -->"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateOptions(OneDeviceOptions):
    """The options of `tuner gate`."""

    variant: str = option("NAME|FILE", "The changed model.", default=...)
    against: str = option("NAME|FILE", "What it is held against.", default=...)
    only: Literal["mql"] | None = option("mql", "Compare no times: on shared runners they lie.")
    retune: bool = switch("Search for the changed model first, for --budget.")
    budget: str | None = option("10m", "With --retune: device time of that search.")
    seeds: int | None = option("N", "Pairs of trainings, at most (90).", min=10, max=90)
    output: Path | None = option("FILE", "A report in Markdown.")
    force: Force = False
    task: TaskName = "etth"
    timeout: Timeout = None
    trust: Trust = False
    storage: Storage = None
    json: Json = False


@takes(GateOptions)
def gate(options: GateOptions) -> int:
    """Say whether a changed model is as good as another: MQL at most 1 % higher, time to
    convergence at most 10 % longer.

    Both train in turn, alone on one device, on the same fresh seeds, until the answer is clear.
    Exit code 0: as good or better; 3: worse; 4: undecided. Running the same command again goes on.
    """
    from tuner.cli.foreground import EXIT_CODES, Foreground
    from tuner.launch.gate import GateRequest, run
    from tuner.report.terminal.live import live_view
    from tuner.report.terminal.verification import progress_view
    from tuner.verdict.gate import MOST_PAIRS, Answer
    from tuner.verdict.verified import verifications_of

    if options.retune != (options.budget is not None):
        raise UsageError("--retune and --budget belong together; give both or none")
    if options.output is not None:
        check_placeable(options.output)
        check_free(options.output, _is_report, force=options.force)
    own = {
        "only_mql": options.only is not None,
        "seeds": options.seeds or MOST_PAIRS,
        "budget_s": duration_s(options.budget, "--budget"),
        "timeout_s": duration_s(options.timeout, "--timeout"),
        "data_dir": common.data_folder(options.data_dir),
        "devices": _one_device(options),
        "storage": common.storage_url(options.storage),
    }
    foreground = Foreground(  # a search is of one study, pairs are of two
        lambda both: progress_view(verifications_of(both)) if len(both) > 1 else live_view(both)
    )
    request = GateRequest(**common.named_as(options, GateRequest) | own)
    outcome = run(request, foreground, foreground.stop)
    _report(outcome, options)
    if outcome.judged is not None and outcome.judged.decided:
        return 0 if outcome.judged.answer is Answer.GOOD else WORSE
    return EXIT_CODES.get(outcome.ended, UNDECIDED)


def _one_device(options: GateOptions) -> DeviceChoice:
    """Of this host: the first GPU, or else all cores of the CPU together, where nobody said."""
    from tuner.launch.request import DeviceChoice

    gpu = chosen_gpu(gpu=options.gpu, cpu=options.cpu)
    return DeviceChoice(cpu=True, workers=1) if gpu is None else DeviceChoice(gpus=str(gpu))


def _is_report(path: Path) -> bool:
    with path.open("rb") as file:
        return file.readline().rstrip() == REPORT_STARTS.encode()


def _report(outcome: GateOutcome, options: GateOptions) -> None:
    """The sentence and the table, here and as a file; or one document."""
    from tuner.display.text import in_code
    from tuner.files.durable import put
    from tuner.files.plain import in_json
    from tuner.launch import Outcome
    from tuner.report.terminal.tables import stopped_in_words

    judged, names = outcome.judged, [in_code(options.variant), in_code(options.against)]
    if outcome.ended is not Outcome.FILLED:
        note(stopped_in_words(outcome.ended.value))
    lines = [outcome.why or "Undecided: it ended before the first look."]
    if judged is not None:
        lines = [judged.sentence(*names), "", *judged.table(*names)]
    if options.json:
        told = in_json(judged, "answer", "pairs", "figures", "medians", "ratios", "misses")
        asked = in_json(options, "variant", "against")
        print_json({"outcome": outcome.ended.value, **asked, **told, "sentence": lines[0]})
    else:
        for line in lines:
            say(line)
    if options.output is not None:
        put(options.output, "\n".join([REPORT_STARTS, *lines, ""]).encode())
