"""The process beside the workers that looks whether searches may stop: started where one is asked
for, and again where it fails, but not for ever."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cli_processes import wait_for
from tests.support.forked_cli import python_path
from tests.support.in_process_worker import DEVICE, opened
from tuner.spec.policy import SearchPolicy
from tuner.study.open import OpenStudy
from tuner.worker import judging
from tuner.worker.judging import judged_meanwhile

__all__ = ["opened"]
HEARD = "import sys; print(*sys.argv[1:], flush=True); sys.stdin.read()"


def test_no_process_where_nobody_asked(opened: OpenStudy) -> None:
    with judged_meanwhile([opened], DEVICE, pytest.fail, ["/nowhere"]):
        pass


def test_it_lasts_as_long_as_the_work(opened: OpenStudy, tmp_path: Path) -> None:
    opened.set_policy(SearchPolicy(until=0.1))
    log = tmp_path / "logs" / "until.log"
    with judged_meanwhile([opened], DEVICE, pytest.fail, [sys.executable, "-c", HEARD]):
        wait_for(lambda: log.exists() and log.read_text(), "the process")
    assert log.read_text() == f"{judging.BESIDE_CPU} small\n"


def test_one_that_fails_is_started_again_a_few_times_and_a_line_says_so(
    opened: OpenStudy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judging, "PAUSE_S", 0.0)
    opened.set_policy(SearchPolicy(until=0.1))
    said: list[str] = []
    with judged_meanwhile(
        [opened], DEVICE, said.append, [sys.executable, "-c", "print('begun'); raise SystemExit(3)"]
    ):
        wait_for(lambda: said, "the line")
    (line,) = said
    assert line.startswith("nothing looks any more whether searches may stop (--until)")
    log = tmp_path / "logs" / "until.log"
    assert str(log) in line
    assert log.read_text().split() == ["begun"] * judging.STARTS


def test_it_imports_no_torch() -> None:
    look = "import sys, tuner.worker.judge; raise SystemExit('torch' in sys.modules)"
    subprocess.run(
        [sys.executable, "-c", look], check=True, env={"PYTHONPATH": python_path()}, timeout=120
    )
