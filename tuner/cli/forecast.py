"""`tuner forecast`: from a file to a forecast and its page, as one command that goes on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.cli.command import argument, option, takes
from tuner.cli.options import Cpu, Json
from tuner.cli.output import note, print_json, printed_to_stderr, say
from tuner.config import MANY
from tuner.display.text import command_line
from tuner.errors import UsageError
from tuner.settings import duration_s

if TYPE_CHECKING:
    from tuner.devices import CpuCores, Gpu
    from tuner.launch.forecast import ForecastFolder


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastOptions:
    """The options of `tuner forecast`."""

    data: Path = argument("DATA", "A CSV or Parquet file, or a task file (.toml).")
    budget: str = option("5m", "About how long all of it may take.", default="5m")
    horizon: int | None = option("N", "Rows to forecast.", min=1, max=MANY)
    targets: str | None = option("A,B", "Columns to forecast (default: all of numbers).")
    output: Path | None = option("FOLDER", "Where all of it goes (DATA's name, .forecast).")
    gpus: str | None = option("0,1|all", "GPUs, one worker each.")
    cpu: Cpu = False
    json: Json = False


@takes(ForecastOptions)
def forecast(options: ForecastOptions) -> int:
    """Forecast what comes after the last row of a file: a task, a search, the model, a back-test
    and a page, in one folder.

    Where no network beats what needs none, that forecasts. Running the same command again goes on
    where it was; once all is done it says the answer again.
    """
    from tuner.launch.forecast import Around, ForecastFolder, run
    from tuner.launch.request import DeviceChoice
    from tuner.report.forecast_page import forecast_page

    data, budget_s = options.data.expanduser(), duration_s(options.budget, "--budget") or 0.0
    if data.suffix == ".toml" and (options.horizon or options.targets):
        raise UsageError(f"{data} says what is forecast; leave out --horizon and --targets")
    path = options.output or data.with_name(f"{data.name.split('.')[0]}.forecast")
    asked = f"--horizon {options.horizon} --targets {options.targets}"
    folder = ForecastFolder.begun(path, data, asked)
    around = Around(
        write_task=lambda: _task(options, data, folder.task),
        own=_own,
        page=lambda *found: forecast_page(f"Forecast of {data.name}", *found),
        say=note,
    )
    if "forecast" not in folder.record.stages:
        with printed_to_stderr(wanted=options.json):
            run(folder, budget_s, DeviceChoice(gpus=options.gpus, cpu=options.cpu), around)
    _tell(folder, options)
    return 0


def _task(options: ForecastOptions, data: Path, path: Path) -> tuple[str, ...]:
    """Propose one as `tuner init data` does, unless one was named."""
    from tuner.cli.init import DataOptions, in_words, write_task

    if data.suffix == ".toml":
        return ()
    asked = DataOptions(file=data, horizon=options.horizon, targets=options.targets)
    proposal, prepared = write_task(asked, path, named=str(data))
    note(f"{data.name}: {in_words(proposal, prepared)}")
    guesses = (f"a guess: {each.key} = {each.value}: {each.why}" for each in proposal.guesses)
    return (*guesses, *proposal.notes)


def _own(device: Gpu | CpuCores) -> None:
    from tuner.cli.device import own_device, own_gpu
    from tuner.devices import CpuCores

    if isinstance(device, CpuCores):
        own_device(gpu=None, cpu=True, cores=",".join(map(str, device.cores)))
    else:
        own_gpu(device)


def _tell(folder: ForecastFolder, options: ForecastOptions) -> None:
    """The answer: a sentence, where everything is, and what comes next."""
    from tuner.launch.forecast import MODEL, PAGE, STUDY, TABLE
    from tuner.report.terminal.tables import print_next

    answer, path = folder.record.answer, folder.path
    assert answer is not None, "all is done"
    if options.json:
        print_json({"folder": str(path), **folder.record.model_dump(mode="json")})
        return
    say(" ".join(f"{each}." for each in answer.sentences))
    whose = answer.in_words(answer.model)
    say(f"Forecast: {path / TABLE}, {answer.begins} to {answer.ends}, by {whose}.")
    say(f"Page: {path / PAGE}")
    if answer.network is not None and not answer.fresh_seeds:
        say(f"Not confirmed on fresh seeds, which did not fit into {options.budget}.")
    found = ["tuner", "launch", "--variant", "nf-nhits", "--task", str(folder.task)]
    found += ["--storage", f"sqlite:///{path / STUDY}"]
    if answer.network is None:
        more = ["--budget", "20m", "--output", f"{path}-2"]
        found = ["tuner", "forecast", str(options.data), *more]
    elif answer.model == answer.network:
        found = ["tuner", "predict", str(path / MODEL), "recent.csv"]
    print_next([command_line(found)])
