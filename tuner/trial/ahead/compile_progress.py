"""How far compiling is: a line of JSON from the process that does it to whoever started it."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Counts of kernels so far.

    Attributes:
        found: how many are needed, as far as that is known.
        there: of them, compiled before.
        compiled: of them, compiled now, here or by another process.
        failed: of them, not compiled: the process's log says why.
        reasons: why searches need none, one for each such search.
        over: nothing more follows.
    """

    found: int = 0
    there: int = 0
    compiled: int = 0
    failed: int = 0
    reasons: tuple[str, ...] = ()
    over: bool = False

    @property
    def ready(self) -> int:
        """How many are compiled."""
        return self.there + self.compiled

    def to_line(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @staticmethod
    def from_line(line: str | bytes) -> Progress:
        """Raises ValueError: it is none."""
        data = json.loads(line)
        if not isinstance(data, dict):
            raise ValueError("it is no progress")  # noqa: TRY004 - as for other text that is none
        try:
            return Progress(**(data | {"reasons": tuple(data["reasons"])}))
        except (TypeError, KeyError) as error:
            raise ValueError(str(error)) from None
