"""The process that a function of somebody's is called in: it loads the function once, seeds what
draws at random before each call, and keeps the clock around it.

It knows no database. What the function asks its trial for goes through a pipe to the process that
started this one. Whatever the function starts ends with this process, and with the one that
started it.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import inspect
import json
import math
import os
import pickle
import random
import select
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, distribution_to_json
from optuna.exceptions import TrialPruned
from optuna.trial import FixedTrial

from tuner.errors import UsageError
from tuner.files.child import Orders
from tuner.models.fault import FAULTS, on_one_line
from tuner.models.own_modules import module_from_file
from tuner.trial.program.program_guard import PR_SET_CHILD_SUBREAPER, kill_all, prctl, woken_by

Function = Callable[..., Any]
COMPLETE, PRUNED, FAIL = "COMPLETE", "PRUNED", "FAIL"
"""How a call ends, in Optuna's words."""


# What goes through the pipe, a line of JSON each.


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a process gets the function from: as a pickle, or by name from a file."""

    sha256: str
    """Of the file, or of what the function does."""
    pickle: str = ""
    file: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is to be called."""

    params: Mapping[str, Any]
    number: int
    seed: int
    directions: Sequence[str]
    """As Optuna has them, one for each value that the function returns."""
    study: Mapping[str, Any]
    """What may be read of it."""
    asks: bool
    """Whether somebody answers what the trial asks for; not in a confirmation, in which nothing is
    chosen, and nothing pruned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What a call came to."""

    state: str
    why: str = ""
    trace: str = ""
    values: Sequence[float] = ()
    seconds: float | None = None
    """Without those that its trial waited for an answer; None where the process ended."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    curve: Sequence[tuple[int, float, float]] = ()
    """Steps, what was reported there, and seconds by then."""


_now = SimpleNamespace(seed=None, loading=False)
"""What this process is at."""


def current_seed() -> int:
    """The seed of the trial that is being called.

    Raises:
        UsageError: none is.

    >>> def objective(trial):
    ...     return trial.suggest_float("x", 0, 1) + current_seed() % 10 / 100
    """
    if _now.seed is None:
        raise UsageError(
            "tuner.current_seed() is the seed of the trial at work, and none is: call it within a "
            "function that tuner.optimize or 'tuner confirm' calls"
        )
    return int(_now.seed)


# How the function gets here.


class SearchBeginsError(BaseException):
    """A file that is loaded for a function of it begins its own search: so far it is loaded."""


def stop_loading(*_: Any) -> None:
    """Raises SearchBeginsError where a function is being loaded out of its file."""
    if _now.loading:
        raise SearchBeginsError


def _loaded(source: Source) -> Function:
    """Raises UsageError where the file is another by now, fails, or has no such function."""
    path = Path(source.file)
    content = base64.b64decode(source.pickle) or path.read_bytes()
    if b"torch" in content:  # it may be imported within a call, after the seed was set
        with contextlib.suppress(ImportError):
            import torch  # noqa: F401
    if source.pickle:
        return cast("Function", pickle.loads(content))  # noqa: S301 - of whoever started this
    if hashlib.sha256(content).hexdigest() != source.sha256:
        raise UsageError(f"{path} was changed meanwhile; give the same command again")
    sys.path.insert(0, str(path.parent))  # to stay: a function may import when it is called
    # A script without a main guard must not search again, nor write to its database.
    _now.loading = True
    with (
        patch.object(optuna.storages, "get_storage", stop_loading),
        contextlib.suppress(SearchBeginsError),
    ):
        module_from_file(str(path))
    _now.loading = False
    files = {getattr(each, "__file__", None): each for each in list(sys.modules.values())}
    found: Any = getattr(files.get(str(path.resolve())), source.name, None)
    if not callable(found):
        raise UsageError(f"{path} has no function {source.name!r}; expected FILE.py:FUNCTION")
    return cast("Function", found)


# What draws at random, and the clock.


def _synchronised() -> float:
    """The clock, once all that a GPU was told is done."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return time.perf_counter()


# What the function is given.


class CalledTrial(FixedTrial):
    """A trial whose values are known, or are asked for one by one.

    `study` is what may be read of its study; nothing of it can be changed.
    """

    def __init__(self, order: Order, asks: Callable[..., Any]) -> None:
        super().__init__(dict(order.params), order.number)
        directions = [optuna.study.StudyDirection[each] for each in order.directions]
        said = {"directions": directions, "direction": directions[0], "stop": lambda: None}
        self.study = SimpleNamespace(**order.study, **said)
        self.curve: list[tuple[int, float, float]] = []
        self.waited_s = 0.0
        self._asks, self._is_asked, self._began = asks, order.asks, time.perf_counter()

    def _ask(self, *question: Any) -> Any:
        began = _synchronised()
        answer = self._asks(*question)
        self.waited_s += time.perf_counter() - began
        return answer

    def _suggest(self, name: str, distribution: BaseDistribution) -> Any:
        if name not in self._params and self._is_asked:
            told = self._ask("suggest", name, distribution_to_json(distribution))
            self._params[name] = distribution.to_external_repr(told)
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "The value .* is out of", UserWarning)
            return super()._suggest(name, distribution)

    def set_user_attr(self, key: str, value: Any) -> None:
        super().set_user_attr(key, json.loads(json.dumps(value)))  # as databases have it, or refuse

    def report(self, value: float, step: int) -> None:
        elapsed_s = time.perf_counter() - self._began - self.waited_s
        self.curve.append((int(step), float(value), elapsed_s))

    def should_prune(self) -> bool:
        return bool(self._is_asked and self.curve and self._ask("prune", *self.curve[-1]))


def _call(function: Function, trial: CalledTrial, order: Order) -> Any:
    """With the trial; or, where it takes a seed, with parameters, and `report` if it has that."""
    try:
        takes: Mapping[str, Any] = inspect.signature(function).parameters
    except (TypeError, ValueError):
        takes = {}
    if "seed" not in takes:
        return function(trial)

    def report(value: float, step: int) -> None:
        trial.report(value, step)
        if trial.should_prune():
            raise TrialPruned

    more = {"report": report} if "report" in takes else {}
    return function(dict(order.params), seed=order.seed, **more)


def called(function: Function, order: Order, asks: Callable[..., Any]) -> Done:
    """What one call comes to."""
    trial = CalledTrial(order, asks)
    state, why, trace, values = COMPLETE, "", "", list[float]()
    _now.seed = order.seed
    random.seed(order.seed)
    np.random.seed(order.seed)  # noqa: NPY002 - what other people's functions draw from
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(order.seed)
    began = _synchronised()
    try:
        values = _values(_call(function, trial, order), len(order.directions))
    except TrialPruned as error:
        state, why = PRUNED, str(error)
    except FAULTS as error:
        state, why, trace = FAIL, on_one_line(error), traceback.format_exc()
    seconds = _synchronised() - began - trial.waited_s
    _now.seed = None
    more: dict[str, Any] = {"attributes": trial.user_attrs, "curve": trial.curve}
    return Done(state=state, why=why, trace=trace, values=values, seconds=seconds, **more)


def _values(came: Any, expected: int) -> list[float]:
    given = came if isinstance(came, Sequence) and not isinstance(came, str) else [came]
    values = [float(each) for each in given]
    if len(values) != expected or not all(map(math.isfinite, values)):
        what = "a finite number" if expected == 1 else f"{expected} finite numbers"
        raise ValueError(f"the function returned {came!r}; expected {what}")
    return values


def main() -> None:
    """Of the process."""
    _go_on_guarded()
    orders = Orders(os.getppid())
    lines = iter(orders)

    def asks(question: str, *said: Any) -> Any:
        orders.answer({"asks": question, "said": said})
        return next(lines)

    try:
        function, refused = _loaded(Source(**next(lines))), ""
    except FAULTS as error:
        refused = str(error) if isinstance(error, UsageError) else on_one_line(error)
    orders.answer({"refused": refused})
    for order in () if refused else lines:
        orders.answer({"done": asdict(called(function, Order(**order), asks))})


def _go_on_guarded() -> None:
    """Go on in a child of this process, which leaves nothing behind: once the child has ended, or
    nobody gives orders any more, all that is left of it is killed.
    """
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    child = os.fork()
    if not child:
        return
    woken = woken_by(signal.SIGCHLD, signal.SIGTERM)
    os.close(1)
    poll = select.poll()
    poll.register(0, 0)  # its end alone: what comes there is the child's
    poll.register(woken, select.POLLIN)
    ended = status = 0
    while not ended and 0 not in dict(poll.poll()):
        signals = os.read(woken, 64)
        ended, status = os.waitpid(child, os.WNOHANG)
        if signal.SIGTERM in signals:
            break
    kill_all(child)
    code = os.waitstatus_to_exitcode(status) if ended else -signal.SIGTERM
    if code < 0:  # so that whoever started this hears how it ended
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)
