"""Log lines that hold names of others."""

from __future__ import annotations

import logging
from typing import Any

from tuner.display.text import shown, shown_lines


class OneLine(logging.Formatter):
    """Log lines with names of others in them:
    the message is one line, and only a traceback has more.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the base class's name
        return shown(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802 - the base class's name
        return shown_lines(super().formatException(ei))
