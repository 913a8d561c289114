"""Several processes that do the same thing at the same moment."""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from typing import Any

PATIENCE_S = 120


def at_once(action: Callable[..., Any], *arguments: Any, processes: int = 8) -> list[Any]:
    """What `action(*arguments)` returned in each process; an exception becomes the text of its
    traceback."""
    context = multiprocessing.get_context(
        "fork"
    )  # they start together: nothing has to be imported first
    barrier, answers = context.Barrier(processes), context.Queue()
    started = [
        context.Process(target=_answer, args=(action, arguments, barrier, answers), daemon=True)
        for _ in range(processes)
    ]
    for process in started:
        process.start()
    found = [answers.get(timeout=PATIENCE_S) for _ in started]
    for process in started:
        process.join(PATIENCE_S)
    return found


def _answer(
    action: Callable[..., Any], arguments: tuple[Any, ...], barrier: Barrier, answers: Queue[Any]
) -> None:
    try:
        barrier.wait(PATIENCE_S)
        answers.put(action(*arguments))
    except BaseException:  # noqa: BLE001 - the test shows it
        answers.put(traceback.format_exc())
