"""Log lines that hold names of others."""

from __future__ import annotations

import logging
import sys
from typing import Any

from tuner.display.text import shown, shown_lines


def log_to_stderr() -> None:
    """All of this process's log, from now on, a line each."""
    log = logging.StreamHandler(sys.stderr)
    log.setFormatter(OneLine("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[log], force=True)


class OneLine(logging.Formatter):
    """Log lines with names of others in them:
    the message is one line, and only a traceback has more.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the base class's name
        return shown(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802 - the base class's name
        return shown_lines(super().formatException(ei))
