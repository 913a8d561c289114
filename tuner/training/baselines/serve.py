"""The process that scores forecasts without a network: `python -m tuner.training.baselines.serve`.

The one line on its standard input says what is forecast, and how many seconds libraries have. It
answers with the names of what it will run, the plain ones first; of each of a library, with how
long that would take; and of each, with what it came to. Whoever asks ends it when the time is over.
"""

from __future__ import annotations

import dataclasses
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import nn

from tuner.data.prepare import TestWindows, prepare
from tuner.data.task import Task
from tuner.data.windows import DeviceData, to_device
from tuner.errors import first_line
from tuner.files.child import Orders
from tuner.files.plain import in_json
from tuner.training.baselines.libraries import ByLibrary, there_are
from tuner.training.baselines.plain import Timed, baselines, scored
from tuner.training.evaluate import evaluate


def main() -> None:
    began = time.perf_counter()
    orders = Orders(int(sys.argv[1]))
    asked = next(iter(orders))
    task = Task.model_validate_json(json.dumps(asked["task"]))
    folder, model = (None if asked[n] is None else Path(asked[n]) for n in ("data_dir", "model"))
    data = to_device(prepare(task, data_dir=folder), "cpu")
    windows, error = TestWindows(asked["windows"]), asked["error"]
    found = {name: _plain(make, data, windows) for name, make in baselines(data).items()}
    for each in there_are(data, model) if asked["libraries"] else ():
        found[each.name] = _library(each, data, windows, error, began + asked["within_s"])
    found = {name: answers for name, answers in found.items() if name not in asked["had"]}
    orders.answer({"names": list(found)})
    for name, answers in found.items():
        try:
            for answer in answers:
                orders.answer({"name": name, **answer})
        except Exception as failure:  # noqa: BLE001 - whatever a library raises: the others go on
            orders.answer({"name": name, "not_run": first_line(failure) or "failed"})
    orders.answer({"done": True})


def _plain(
    make: Callable[[], nn.Module], data: DeviceData, windows: TestWindows
) -> Iterator[Mapping[str, Any]]:
    yield _told(scored(make, data, windows), data)


def _library(
    model: ByLibrary, data: DeviceData, windows: TestWindows, error: str, until: float
) -> Iterator[Mapping[str, Any]]:
    """How long it would take; and, where there is the time, what it came to."""
    if error == "test_mql":  # nobody asks how it does on the validation split
        none = data.val.starts[:0]
        val = dataclasses.replace(data.val, starts=none, series_index=data.val.series_index[:0])
        data = dataclasses.replace(data, val=val)
    began = time.perf_counter()
    model.set_up()
    setup_s = time.perf_counter() - began
    would_take_s = model.would_take_s(len(data.test) + len(data.val))
    yield {"would_take_s": would_take_s}
    if would_take_s > until - time.perf_counter():
        yield {"ended": True}
        return
    began = time.perf_counter()
    model.fit()
    fitted = time.perf_counter()
    scores = evaluate(model, data, windows=windows)
    timed = Timed(scores=scores, fit_s=fitted - began, forecast_s=time.perf_counter() - fitted)
    yield {**_told(timed, data), "lacks": list(model.lacks), "setup_s": setup_s}


def _told(timed: Timed, data: DeviceData) -> Mapping[str, Any]:
    """As a study keeps it, but for its name, of what are numbers: nothing else is JSON."""
    scores = timed.scores
    test_mql, val_mql = scores.of_series(data.task.objective_series)
    figures = {"test_mql": test_mql, "val_mql": val_mql, **in_json(timed, "fit_s", "forecast_s")}
    found: dict[str, Any] = {name: each for name, each in figures.items() if math.isfinite(each)}
    for name, runs in in_json(scores, "test_runs", "val_runs").items():
        found[name] = list(runs) if all(map(math.isfinite, runs)) else []
    return found


if __name__ == "__main__":
    main()
