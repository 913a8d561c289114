from __future__ import annotations

import io

from tuner.display.terminal import Console
from tuner.report.terminal.tables import fitting

ROWS = [
    {
        "study": "etth-rmsnorm",
        "finished": "12/200",
        "waiting": "1",
        "device": "NVIDIA H200 of a long name",
    }
]


def shown(width: int) -> str:
    file = io.StringIO()
    console = Console(file=file, width=width)
    console.print(fitting("Studies", ROWS, width, leave_out=("device", "waiting")))
    return file.getvalue()


def test_a_wide_terminal_gets_every_column() -> None:
    assert "device" in shown(100)
    assert "NVIDIA H200 of a long name" in shown(100)


def test_a_narrow_one_gets_fewer_columns_and_none_cut_short() -> None:
    text = shown(45)
    assert "device" not in text
    assert "waiting" in text
    text = shown(30)
    assert "waiting" not in text
    assert "12/200" in text
    assert "…" not in text
