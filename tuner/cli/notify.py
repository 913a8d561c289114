"""Telling a webhook or a command how work ended. What fails of that fails nothing else."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any
from urllib.request import Request, urlopen

from tuner.cli.output import note
from tuner.errors import TunerError, UsageError
from tuner.files.environment import without_secrets

TIMEOUT_S = 10.0
WEB = ("https://", "http://")


@contextmanager
def notified(where: str | None, what: str) -> Iterator[dict[str, Any]]:
    """Around work whose end `where` hears of; what it comes to goes into the document. A failure is
    told, too. The address may be a secret itself: it is in no line.

    Raises:
        UsageError: a command that is not there.
    """
    document: dict[str, Any] = {"what": what, "event": "failure"}
    tell = None if where is None else _teller(where)
    try:
        yield document
    except BaseException as error:
        document["answer"] = str(error) if isinstance(error, TunerError) else type(error).__name__
        raise
    finally:
        try:
            if tell is not None:
                tell(json.dumps(document).encode())
        except Exception as error:  # noqa: BLE001 - whatever it is: a line, without the address
            why = getattr(error, "code", None) or getattr(error, "returncode", "")
            note(f"--notify failed: {type(error).__name__} {why}".rstrip())


def _teller(where: str) -> Callable[[bytes], None]:
    if where.startswith(WEB):
        return partial(_post, where)
    with suppress(ValueError):
        words = shlex.split(where)
        if words and shutil.which(words[0]) is not None:
            return partial(_run, words)
    raise UsageError("--notify: expected https://... or a command that is there")


def _post(address: str, content: bytes) -> None:
    request = Request(address, content, {"Content-Type": "application/json"})  # noqa: S310
    urlopen(request, timeout=TIMEOUT_S).close()  # noqa: S310


def _run(words: list[str], content: bytes) -> None:
    quiet, own = subprocess.DEVNULL, without_secrets(os.environ)
    subprocess.run(words, input=content, stdout=quiet, timeout=TIMEOUT_S, env=own, check=True)
