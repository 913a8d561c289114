"""From a file to a forecast in one call: a task, a search, fresh seeds, a model, the forecast with
its back-test and its page, all in one folder.

What is done is what the folder holds, and its record says so. So the same call goes on where the
last one ended, however that ended. Validation chooses; the test split says at the end how good that
is.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import quote

from pydantic import Field

from tuner.config import MANY, Choice, Values
from tuner.data.open_file import read_bytes
from tuner.data.prepare import PreparedData, prepare
from tuner.data.splits import split_sizes
from tuner.data.task import load_task
from tuner.devices import CpuCores, Gpu, exclusive
from tuner.errors import DataError, TunerError, UsageError
from tuner.files.durable import TEMPORARY, put, read_regular
from tuner.files.plain import UNREADABLE, Count, Digest, Label, Prose, Strict, explained, read_json
from tuner.launch import launcher, verification
from tuner.launch.request import DeviceChoice, LaunchRequest
from tuner.launch.verification import VerificationRequest
from tuner.launch.where import choose_where
from tuner.spec.policy import SearchPolicy
from tuner.storage.database import open_database
from tuner.storage.url import parse_url
from tuner.study.baselines import Figure, in_words
from tuner.study.open import list_studies, open_study
from tuner.study.snapshot import snapshot
from tuner.verdict.retune_cost import duration
from tuner.verdict.round_allowances import costs

if TYPE_CHECKING:
    import pandas as pd

    from tuner.data.windows import DeviceData, DeviceSplit
    from tuner.export.best_config import BestConfig
    from tuner.export.saved_model import SavedModel
    from tuner.export.train import Trained
    from tuner.training.baselines.plain import Timed

# The folder: its files, and the record of what is done and of what it came to.


RECORD, TASK, VARIANT, STUDY = "forecast.json", "task.toml", "variant.toml", "study.db"
MODEL, TABLE, PAGE = "model.safetensors", "forecast.csv", "index.html"
TESTED = "tested.safetensors"
"""The network that is tested; the other one was trained once more on all rows, where that paid."""


class Answer(Strict):
    """Whose the forecast is, why, and how good that is."""

    sentences: tuple[Prose, ...]
    model: Label
    baseline: Label
    """The best one, by validation."""
    network: Label | None = None
    trial: Count | None = None
    fresh_seeds: bool = False
    """Whether the configuration was chosen by medians over seeds that the search never saw."""
    mql: dict[Label, tuple[Figure | None, Figure | None]]
    """Of each model, on the test split and on validation."""
    begins: Prose = ""
    ends: Prose = ""
    back_test: dict[Prose, dict[Label, Figure]] = Field(default_factory=dict)
    """By the first time of a test window, the MQL of each model."""

    def in_words(self, name: str) -> str:
        """A model's name in a sentence."""
        return "the network" if name == self.network else in_words(name)


class Record(Strict):
    """What is kept in JSON."""

    format: Literal[1] = 1
    inputs: dict[Label, Digest]
    """The SHA-256 of each file, named from the folder; what was named is the first."""
    asked: Prose
    stages: dict[Label, Figure] = Field(default_factory=dict)
    """Those that are done, with their seconds."""
    notes: tuple[Prose, ...] = ()
    answer: Answer | None = None


@dataclass(slots=True)
class ForecastFolder:
    """A folder with its record."""

    path: Path
    record: Record

    @staticmethod
    def begun(path: Path, data: Path, asked: str) -> ForecastFolder:
        """The folder at `path`, as it is or to be made, for a file and the options that say what is
        forecast.

        Raises:
            UsageError: it was begun with something else.
            DataError: no such file, or a folder of something else.
        """
        inputs = _digests(path, [data])
        files = [each for each in path.glob("*") if each.suffix != TEMPORARY]
        if not files and not path.is_file():
            return ForecastFolder(path, Record(inputs=inputs, asked=asked))
        there = _read(path / RECORD)
        inputs |= _digests(path, [path / each for each in there.inputs])
        others = [os.path.normpath(path / n) for n in inputs if there.inputs.get(n) != inputs[n]]
        if others or there.asked != asked:
            raise UsageError(
                f"{(others or [asked or 'no option'])[0]}: is not what {path} was begun with; name "
                "another folder with --output, or delete that one"
            )
        return ForecastFolder(path, there)

    @property
    def task(self) -> Path:
        """Its task file: its own, or the one that was named."""
        named = next(iter(self.record.inputs))
        return self.path / (named if named.endswith(".toml") else TASK)

    def keep(self, **changes: Any) -> None:
        """Write the record with these fields changed."""
        self.record = self.record.model_copy(update=changes)
        text = json.dumps(self.record.model_dump(mode="json"), indent=2) + "\n"
        put(self.path / RECORD, text.encode())


def _read(path: Path) -> Record:
    try:
        content = read_json(read_regular(path, at_most=1 << 20))
        return Record.model_validate_json(json.dumps(content), strict=True)
    except (OSError, *UNREADABLE) as error:
        raise DataError(
            f"{path}: is no record of a forecast ({explained(error)}); name another folder with "
            "--output, or delete this one"
        ) from None


def _digests(folder: Path, paths: Sequence[Path]) -> dict[str, str]:
    """By the names from the folder."""
    found = {}
    for path in paths:
        content = read_bytes(path, remedy="name a CSV, a Parquet or a task file")
        name = os.path.relpath(path.absolute(), folder.absolute())
        found[name] = hashlib.sha256(content).hexdigest()
    return found


# The stages.


NETWORK = Path(__file__).with_name("forecast.toml")
"""Its study file, which each folder has a copy of."""
TRIALS = 100
"""Of the search, where its time reaches: what is small is searched well by then."""
SEARCH, CONFIRMATION = 0.4, 0.2
"""Of the budget, for what trains there; the rest is for processes to begin, and for the model."""
SEARCHED_BY, CONFIRMED_BY = 0.7, 0.9
"""Shares of the budget after which a stage is ended, wherever it is."""
TOP, SEEDS = 3, 5
"""Configurations of the front beside the default, and fresh seeds: as many as a median takes."""
TRAININGS, LONGER = 3, 2
"""Of the model, of which the lowest validation loss is kept, and how many times as long as its
trial one may take; where the time is short, one training of fewer epochs."""
OF_ALL_ROWS = 2
"""As many trainings, in time, as one on all rows takes: they are five thirds as many."""
HELD_BACK = "future covariates must be known ahead: the last rows of the file are forecast"
NO_NETWORK = "No network was trained in this time: the forecast is of {}, which needs none"


class Forecast(NamedTuple):
    """A forecast as a table, what forecast it, and the rows that it was given."""

    model: SavedModel
    rows: pd.DataFrame
    table: pd.DataFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What whoever asks has, and this layer not."""

    write_task: Callable[[], tuple[str, ...]]
    """Put the task file in its place; what is to be said of it."""
    own: Callable[[Gpu | CpuCores], object]
    """Make this process see this device only, before it imports torch."""
    page: Callable[[Record, Forecast, Sequence[Forecast]], str]
    """The page as HTML: of what comes, and from earlier origins on."""
    say: Callable[[str], None]
    """A line about a stage that begins."""


def run(folder: ForecastFolder, budget_s: float, devices: DeviceChoice, around: Around) -> None:
    """Do what is left, stage after stage; the folder's record has the answer then. Ctrl-C ends it
    cleanly.

    Raises:
        UsageError: data or devices that are not there, or cannot be used.
        DataError: data that is unfit.
        TunerError: the database fails.
        OSError: the disk does.
    """
    folder.path.mkdir(parents=True, exist_ok=True)
    began = time.monotonic() - sum(folder.record.stages.values())
    found = choose_where(devices, environment=os.environ).devices
    work = _Work(folder, budget_s, devices, found, around, began)
    try:
        for do in (work.task, work.search, work.confirmation, work.model, work.forecast):
            stages, since = folder.record.stages, time.monotonic()
            if do.__name__ not in stages:
                changes = do()
                folder.keep(stages={**stages, do.__name__: time.monotonic() - since}, **changes)
    finally:
        with suppress(OSError):  # of a file that was refused no folder is left; a full one stays
            folder.path.rmdir()


@dataclass(slots=True)
class _Work:
    """What each stage does; it returns fields of the record."""

    folder: ForecastFolder
    budget_s: float
    choice: DeviceChoice
    devices: Sequence[Gpu | CpuCores]
    around: Around
    began: float
    """By `time.monotonic()`, as if the stages that are done had been of this call."""

    def task(self) -> dict[str, Any]:
        notes = self.around.write_task()
        path, variant = self.folder.task, self.folder.path / VARIANT
        file = load_task(str(path)).file
        if file.runs is not None:
            raise UsageError(f"{file.path}: has many files; a forecast follows one: name it")
        put(variant, NETWORK.read_bytes())
        inputs = _digests(self.folder.path, [path, file.path, variant])
        return {"inputs": self.folder.record.inputs | inputs, "notes": notes}

    def search(self) -> dict[str, Any]:
        search_s = SEARCH * self.budget_s
        self.around.say(f"searches configurations of a network, for about {duration(search_s)}")
        policy = SearchPolicy(sampler="tpe", search_s=search_s * len(self.devices), reruns=0)
        more: Any = {"trials": TRIALS, "estimate": False, "policy": policy}
        asked = LaunchRequest(**self._shared(SEARCHED_BY), **more)
        return {"notes": (*self.folder.record.notes, *launcher.run(asked).notes)}

    def confirmation(self) -> dict[str, Any]:
        device_s = CONFIRMATION * self.budget_s * len(self.devices)
        if (top := self._affordable(device_s)) > 0:
            self.around.say(f"runs the best again, on {SEEDS} fresh seeds")
            more: Any = {"top": top, "seeds": SEEDS, "choice": Choice.FRONT, "budget_s": device_s}
            verification.run(VerificationRequest(**self._shared(CONFIRMED_BY), **more))
        return {}

    def _affordable(self, device_s: float) -> int:
        """How many configurations beside the default: fewer, rather than fewer seeds of each, which
        would say nothing.
        """
        address = parse_url(self._shared(1.0)["storage"])
        with closing(open_database(address, create=False)) as database:
            (name,) = list_studies(database)
            default_s, other_s = costs(snapshot(open_study(database, name)))
        return min(TOP, int((device_s / SEEDS - default_s) / other_s)) if other_s else 0

    def _shared(self, share: float) -> dict[str, Any]:
        """What workers are asked, to be ended when this share of the budget is over."""
        left_s = self.began + share * self.budget_s - time.monotonic()
        return {
            "variants": str(self.folder.path / VARIANT),
            "task": str(self.folder.task),
            "storage": f"sqlite:///{quote(str(self.folder.path.absolute() / STUDY))}",
            "devices": self.choice,
            "timeout_s": max(1.0, left_s),
        }

    def model(self) -> dict[str, Any]:
        """Train what the study chose, and hold it against what needs no training."""
        self.around.say("trains the model")
        self.around.own(device := self.devices[0])
        from tuner.export.train import as_scored, worth_of
        from tuner.training.baselines.plain import score_baselines
        from tuner.worker.trainer import on_device

        with exclusive(device.lock_names):
            prepared = prepare(load_task(str(self.folder.task)))
            data = on_device({"": prepared}, device)[""]
            timed, series = score_baselines(data), prepared.task.objective_series
            known = {name: each.scores.of_series(series) for name, each in timed.items()}
            best = self._chosen()
            if best is not None and not best.baselines:  # the search's time was over
                best = dataclasses.replace(best, baselines=as_scored(timed, series))
            found = best.against_baselines("the best network") if best else None
            better = found is not None and found.better is True
            kept, said = (None, "")
            if best is not None:
                kept, said = self._trained(best, prepared, data, timed, again=better)
        for each in best.baselines if best else ():
            if each.test_mql is not None and each.val_mql is not None:
                known[each.name] = each.test_mql, each.val_mql
        baseline = min(known, key=lambda name: known[name][1])
        told: dict[str, Any] = {"baseline": baseline, "mql": {baseline: known[baseline]}}
        if best is None or kept is None or found is None:
            none = (NO_NETWORK.format(in_words(baseline)),)
            return {"answer": Answer(sentences=none, model=baseline, **told)}
        sentence = found.sentence
        if found.better:
            sentence = worth_of(kept, timed, series, best.baselines)
        val_mql = (best.verified or {}).get("val_mql", {}).get("median", best.values["val_mql"])
        told["mql"][best.variant] = kept.scores.of_series(series)[0], val_mql
        notes = (*self.folder.record.notes, *([said] if said else ()))
        answer = Answer(
            sentences=sentence.rpartition(": ")[::2],
            model=best.variant if found.better else baseline,
            network=best.variant,
            trial=best.trial,
            fresh_seeds=best.verified is not None,
            **told,
        )
        return {"answer": answer, "notes": notes}

    def _chosen(self) -> BestConfig | None:
        """The configuration of the lowest validation MQL, by fresh seeds where they are enough."""
        from tuner.export.load import best_of
        from tuner.export.pick import Asked

        where = self._shared(1.0)
        task, storage = where["task"], where["storage"]
        for values in (Values.VERIFIED, Values.SINGLE):
            try:
                asked = Asked(pick="mql", values=values)
                return best_of(asked, where["variants"], task=task, study=None, storage=storage)
            except TunerError as error:
                if type(error) is not TunerError:  # else there is nothing to choose from
                    raise
        return None

    def _trained(
        self,
        best: BestConfig,
        prepared: PreparedData,
        data: DeviceData,
        timed: Mapping[str, Timed],
        *,
        again: bool,
    ) -> tuple[Trained | None, str]:
        """The kept seed, saved as what is tested and as what forecasts; None where no seed left a
        model. The latter is trained on all rows first where it is to be trained `again`, and a
        sentence says what came of that.
        """
        from tuner.export.train import (
            Failed,
            Recipe,
            Trained,
            best_of,
            refit,
            save_trained,
            train_seeds,
        )
        from tuner.worker.trainer import on_device

        recipe, clock = Recipe.of(best), best.values[best.definition.objectives[0]]
        times = (self.began + self.budget_s - time.monotonic()) / clock  # what its trial took
        more = OF_ALL_ROWS if again else 0
        many = max(1, min(TRAININGS, int(times / LONGER) - more))
        epochs = int((best.provenance["epochs"] or MANY) * max(1.0, times / (many + more)))
        training = recipe.training.but(max_epochs=min(recipe.training.max_epochs, epochs))
        recipe = dataclasses.replace(recipe, training=training)
        ended = list(train_seeds(recipe, data, range(many)))
        trained = [each for each in ended if isinstance(each, Trained)]
        failed = [each for each in ended if isinstance(each, Failed)]
        if not trained:
            return None, ""
        told = recipe, prepared, trained, self.devices[0].model, timed, failed
        for name in (TESTED, MODEL):
            save_trained(self.folder.path / name, *told)
        kept, said = best_of(trained), ""
        if again:
            self.around.say("trains it once more, on all rows")
            whole = prepare(prepared.task, whole=True)
            try:
                all_data = on_device({"": whole}, self.devices[0])[""]
                refitted = refit(recipe, whole, all_data, trained, kept)
                save_trained(self.folder.path / MODEL, *told, None, refitted)
                said = refitted.in_words()
            except TunerError as error:
                said = f"the network that was tested forecasts: {error}"
        return kept, said

    def forecast(self) -> dict[str, Any]:
        """What comes after the last row, and what earlier rows would have led to."""
        from tuner.data.recent_rows import rows_of, rows_of_task, time_column, write_frame
        from tuner.data.windows import to_device
        from tuner.export.saved_model import load_model

        there, path, task = self.folder.record, self.folder.path, load_task(str(self.folder.task))
        prepared, answer = prepare(task), there.answer
        assert answer is not None, "the stage before leaves one"
        data = to_device(prepared, "cpu")
        models = {answer.baseline: _without_network(answer.baseline, prepared, data)}
        if answer.network is not None:
            models[answer.network] = load_model(path / TESTED)
        chosen = models[answer.model]
        forecaster = load_model(path / MODEL) if answer.model == answer.network else chosen
        rows, back = rows_of_task(self.folder.task, held_back=True)
        ahead = Forecast(model=forecaster, rows=rows, table=forecaster.predict(rows))
        write_frame(path / TABLE, ahead.table.assign(model=answer.model))
        whole, _ = rows_of_task(self.folder.task)
        whole = rows_of(task, data.series, whole, data.series[:1])
        back_test, earlier = _back_test(models, data, whole), list[Forecast]()
        for begins in back_test:
            with suppress(UsageError):  # off the grid, where gaps are skipped
                table = chosen.predict(whole, start=begins)
                earlier.append(Forecast(model=chosen, rows=whole, table=table))
        begins, *_, ends = map(_day, ahead.table[time_column(task)].iloc[[0, 0, -1]])
        answer = answer.model_copy(update={"begins": begins, "ends": ends, "back_test": back_test})
        changes = {"answer": answer, "notes": (*there.notes, *[HELD_BACK] * bool(back))}
        page = self.around.page(there.model_copy(update=changes), ahead, earlier)
        put(path / PAGE, page.encode())
        return changes


# What needs no network as a model, and forecasts of test windows: without another training.


def _without_network(name: str, prepared: PreparedData, data: DeviceData) -> SavedModel:
    """A baseline, to be used as a model that was saved."""
    from tuner.export.saved_model import SavedModel, scaling_of
    from tuner.training.baselines.libraries import there_are
    from tuner.training.baselines.plain import baselines

    plain, scaling = baselines(data), scaling_of(prepared)
    if name in plain:
        made = plain[name]()
    else:
        made = library = next(each for each in there_are(data, None) if each.name == name)
        library.set_up()
        library.fit()
    return SavedModel(model=made, card={}, task=data.task, series=data.series, scaling=scaling)


def _back_test(
    models: Mapping[str, SavedModel], data: DeviceData, rows: pd.DataFrame
) -> dict[str, dict[str, float]]:
    """The MQL of each model from three origins on, as many as there are: the last test window, one
    in the middle and one a third in. `rows` are of the first series, whose times are told.
    """
    import numpy as np

    from tuner.data.recent_rows import time_column
    from tuner.training import evaluate

    task, series = data.task, data.test.series_index.numpy()
    mine = [np.flatnonzero(series == number) for number in np.unique(series)]
    measured = int(np.flatnonzero(rows[list(task.target_columns)].notna().any(axis=1))[-1]) + 1
    steps = rows[time_column(task)].iloc[sum(split_sizes(measured, task.split)[:2]) :]
    count, found = len(mine[0]), dict[str, dict[str, float]]()
    for place in sorted({count // 3 if count > 4 else 0, count // 2, count - 1}):  # noqa: PLR2004
        windows = [int(each[min(place, len(each) - 1)]) for each in mine]
        part = dataclasses.replace(data, test=_only(data.test, windows), val=_only(data.val, []))
        mql = {}
        for name, each in models.items():
            scores = evaluate(each.model, part.seeing(each.task.input_size))
            mql[name] = scores.of_series(task.objective_series)[0]
        found[_day(steps.iloc[place * task.horizon + task.input_size])] = mql
    return found


def _only(split: DeviceSplit, windows: list[int]) -> DeviceSplit:
    starts, series = split.starts[windows], split.series_index[windows]
    return dataclasses.replace(split, starts=starts, series_index=series)


def _day(moment: object) -> str:
    return str(moment).removesuffix(" 00:00:00")
