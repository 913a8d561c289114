"""Kernels compiled beside a launch: when, what is said of it, and that nothing depends on it. The
GPU is made up, and what compiles is a short script."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.cli_processes import PATIENCE_S
from tests.support.collected_kernels import HOPPER, search
from tuner.config import Backend
from tuner.devices import CpuCores, Gpu
from tuner.launch import Outcome, StopRequests, background, crew
from tuner.launch.background import background_jobs, compiled_in_background, order_for
from tuner.launch.request import Quiet
from tuner.storage.url import absolute, parse_url
from tuner.trial.ahead.compile_order import Order, Progress, Ready, stamp_path, write_stamp

GPU = Gpu(0, "GPU-aaaa-1", "Example GPU", 0)


@pytest.fixture(autouse=True)
def _on_hopper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "compute_capability", lambda gpu: HOPPER)
    monkeypatch.setattr(background, "SAY_S", 0.0)


def ordered(cache: Path, device: Gpu | CpuCores = GPU, **settings: Any) -> Order | None:
    return order_for(
        [search(**settings).definition],
        [device],
        task="unused",
        data_dir=None,
        environment={"TRITON_CACHE_DIR": str(cache)},
    )


def test_what_is_not_compiled_yet_is_ordered_for_the_gpu_that_is_there(tmp_path: Path) -> None:
    order = ordered(tmp_path)
    assert order == Order(
        capability=HOPPER, searches=[search()], data_dir=None, jobs=background_jobs()
    )


@pytest.mark.parametrize("backend", [Backend.GRAPH, Backend.COMPILE, Backend.EAGER])
def test_a_backend_without_kernels_orders_nothing(tmp_path: Path, backend: Backend) -> None:
    assert ordered(tmp_path, backend=backend) is None


def test_the_cpu_orders_nothing(tmp_path: Path) -> None:
    assert ordered(tmp_path, CpuCores((0,))) is None


def test_a_machine_that_is_warm_orders_nothing_and_knows_at_once(tmp_path: Path) -> None:
    kernels = tuple(f"{number:03}/kernel.json" for number in range(200))
    for name in kernels:
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    write_stamp(stamp_path(tmp_path, search(), HOPPER), Ready(kernels))
    began = time.process_time()  # whatever else this machine does meanwhile
    assert ordered(tmp_path) is None
    assert time.process_time() - began < 0.2


@pytest.mark.parametrize(("cores", "jobs"), [(1, 1), (2, 1), (4, 2), (16, 14), (128, 32)])
def test_two_cores_are_left_to_trials(
    monkeypatch: pytest.MonkeyPatch, cores: int, jobs: int
) -> None:
    monkeypatch.setattr(background, "available_cores", lambda: tuple(range(cores)))
    assert background_jobs() == jobs


def heard(tmp_path: Path, script: str, over: Callable[[list[str]], bool]) -> tuple[list[str], Path]:
    """What a launch says while `script` compiles, until that is `over`, and the log."""
    said: list[str] = []
    log = tmp_path / "logs" / "kernels.log"
    command = [sys.executable, "-c", script]
    with compiled_in_background(ordered(tmp_path), {}, log, said.append, command) as look:
        until = time.monotonic() + PATIENCE_S
        while not over(said):
            assert time.monotonic() < until, said
            look()
            time.sleep(0.01)
        look()
    return said, log


def told(*steps: Progress, then: str = "") -> str:
    """A script that says these, each once the one before was heard."""
    lines = [
        "import sys, time; sys.stdin.read()",
        *(f"print({step.to_line()!r}, flush=True); time.sleep(0.1)" for step in steps),
        then,
    ]
    return "\n".join(lines)


def test_a_launch_says_how_far_it_is_and_when_all_are_compiled(tmp_path: Path) -> None:
    script = told(
        Progress(found=84, there=4),
        Progress(found=84, there=4, compiled=36),
        Progress(found=84, there=4, compiled=80, over=True),
    )
    said, _ = heard(tmp_path, script, lambda lines: "compiled kernels" in "".join(lines[-1:]))
    assert "compiling kernels in the background: 40 of 84" in said
    assert said[-1] == "compiled kernels in the background: 84 of 84"


def test_where_everything_is_compiled_nothing_is_said(tmp_path: Path) -> None:
    seen: list[int] = []

    def for_a_while(said: list[str]) -> bool:
        seen.append(1)
        return len(seen) > 60

    script = told(Progress(found=84, there=84), Progress(found=84, there=84, over=True))
    said, _ = heard(tmp_path, script, for_a_while)
    assert said == []


def test_its_failure_is_one_line_with_the_reason(tmp_path: Path) -> None:
    said, log = heard(tmp_path, "raise SystemExit('no space left')", bool)
    (line,) = said
    assert line.startswith("compiling kernels in the background failed, so workers compile what")
    assert line.endswith(f": no space left (log: {log})")


def test_a_command_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    said: list[str] = []
    log = tmp_path / "kernels.log"
    with compiled_in_background(ordered(tmp_path), {}, log, said.append, ["/no/such"]) as look:
        look()
    (line,) = said
    assert line.startswith("kernels are not compiled in the background: ")


def test_the_process_sees_no_gpu_and_has_one_thread(tmp_path: Path) -> None:
    out = tmp_path / "environment"
    script = told(
        then=f"import os; open({str(out)!r}, 'w').write(repr([os.environ[n] for n in "
        "('CUDA_VISIBLE_DEVICES', 'OMP_NUM_THREADS')]))"
    )
    heard(tmp_path, script, lambda _: out.exists() and out.read_text().endswith("]"))
    assert out.read_text() == "['', '1']"


def test_workers_are_watched_and_kernels_compiled_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A launch's crew, with a supervisor that only looks round twice."""
    said: list[str] = []

    class Supervisor:
        def __init__(self, **_: object) -> None:
            """Whatever it would supervise."""

        def run(self, tick: Callable[[], None], *, timeout_s: float | None) -> Outcome:
            tick()
            tick()
            return Outcome.FILLED

    class Onlooker(Quiet):
        def note(self, line: str) -> None:
            said.append(line)

        @contextmanager
        def watching(self, studies: object) -> Iterator[Callable[[], None]]:
            yield lambda: said.append("looked")

    @contextmanager
    def beside(
        order: Order | None, environment: Mapping[str, str], log: Path, note: Callable[[str], None]
    ) -> Iterator[Callable[[], None]]:
        assert order == ordered(tmp_path)
        assert log.parent.name == "logs"
        yield lambda: note("compiling")

    address = absolute(parse_url(f"sqlite:///{tmp_path / 'studies.db'}"))
    study: Any = SimpleNamespace(
        name="demo",
        definition=search().definition,
        database=SimpleNamespace(address=address),
        ledger=None,
    )
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(crew, "Supervisor", Supervisor)
    monkeypatch.setattr(crew, "compiled_in_background", beside)
    mine = crew.Crew(devices=[GPU], task="unused", data_dir=None, deadline=None)
    assert mine.work([study], Onlooker(), StopRequests()) is Outcome.FILLED
    assert said == ["looked", "compiling", "looked", "compiling"]
