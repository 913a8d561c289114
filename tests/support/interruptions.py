"""Something that happens at a given instruction of some Python code, as a signal may."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Container
from types import CodeType, FrameType
from typing import Any


def interrupted(
    run: Callable[[], object],
    at: int,
    by: Callable[[], object],
    within: Container[CodeType] | None = None,
) -> bool:
    """Run `run`, and `by` in the middle of it, before its instruction number `at`, from 0.

    Only what is `within` counts; None: all that `run` calls. False where it was over before.
    """
    counted, came = itertools.count(), False

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal came
        del argument
        if within is not None and frame.f_code not in within:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and not came and next(counted) == at:
            came = True
            by()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(before)
    return came
