"""Whether a network of the user's can be trained, before anything is written."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

from tuner.display.signals import signal_name
from tuner.errors import TunerError, UsageError
from tuner.files.environment import without_secrets

SAID_AFTER_S = 60.0
"""From then on somebody may wonder what a launch waits for."""

_log = logging.getLogger(__name__)


def check_network(variant: str, task: str, data_dir: Path | None) -> tuple[str, ...]:
    """Train the network of the user's own study file for a step, in a child that ends with this
    process: the supervisor never imports torch.

    Without this, a class that cannot work or a setting that nobody takes would fail every trial of
    the study.

    Returns:
        What is to be said of one that works.

    Raises:
        UsageError, TunerError: as `tuner variants --check` says it; a class that ends its process.
    """
    words = ["variants", "--check", variant, "--task", task, "--json"]
    words += [f"--supervised-by={os.getpid()}"]
    if data_dir is not None:
        words += ["--data-dir", str(data_dir)]
    code, printed, said = _ran(variant, [sys.executable, "-m", "tuner", *words])
    if code < 0:
        raise TunerError(f"{variant}: the check of its network was ended by {signal_name(-code)}")
    if code:
        lines = said.strip().splitlines() or [f"the check of its network ended with code {code}"]
        message = lines[-1].removeprefix("tuner: error: ")
        kind = UsageError if code == UsageError.exit_code else TunerError
        named = message.startswith(str(Path(variant)))  # as the one that names a line does
        raise kind(message if named else f"{variant}: {message}")
    try:
        return tuple(str(notice) for notice in json.loads(printed)["notices"])
    except ValueError:
        raise TunerError(
            f"{variant}: the check of its network ended without an answer: a class must not end "
            "its process"
        ) from None


def _ran(variant: str, command: list[str]) -> tuple[int, str, str]:
    pipe = subprocess.PIPE
    environment = without_secrets(os.environ)
    with subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True) as child:
        try:
            printed, said = _answered(variant, child)
        except BaseException:
            child.kill()  # Ctrl-C, say: nobody wants its answer any more
            raise
    return child.returncode, printed, said


def _answered(variant: str, child: subprocess.Popen[str]) -> tuple[str, str]:
    try:
        return child.communicate(timeout=SAID_AFTER_S)
    except subprocess.TimeoutExpired:
        _log.warning(
            "the check of the network of %s is still at work after %.0f s; Ctrl-C ends it",
            variant,
            SAID_AFTER_S,
        )
        return child.communicate()
