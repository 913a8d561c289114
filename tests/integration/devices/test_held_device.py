"""Commands whose device another process holds, or whose device locks are not to be relied on."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.support.cli_processes import CORES, STUDY, Bench, finished, interrupt
from tests.support.small_study import definition
from tuner.devices import CpuCores, exclusive
from tuner.devices.lock import Holder
from tuner.errors import INTERRUPTED, UsageError
from tuner.storage.database import open_database
from tuner.storage.url import parse_url
from tuner.study.open import create_or_resume


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    bench = Bench(tmp_path, f"sqlite:///{tmp_path}/storage/tuner.db")
    monkeypatch.setenv("TUNER_LOCK_DIR", bench.environment["TUNER_LOCK_DIR"])
    return bench


def line_of(process: subprocess.Popen[str], words: str) -> str:
    assert process.stderr is not None
    for line in process.stderr:
        if words in line:
            return line
    raise AssertionError(f"it never said {words!r}")


def test_a_launch_in_a_pipe_says_who_holds_its_device_and_goes_on_when_it_is_free(
    bench: Bench,
) -> None:
    core = CpuCores((CORES[0],))
    arguments = [*bench.launch_arguments(1), "--json"]
    with exclusive(core.lock_names):
        process = bench.start(*arguments, cores=1)
        said = line_of(process, "waits for its device")
        assert f"the worker on {core.label} waits for its device" in said
        assert said.endswith(f": {Holder.this_process()}\n")
    done = finished(process)
    assert done.code == 0, done.err
    # A worker whose short trial has ended between two looks is gone by the second.
    ends = ("has its device now", "waits for its device no longer")
    assert any(f"the worker on {core.label} {end}" in done.err for end in ends), done.err
    assert json.loads(done.out)["outcome"] == "filled"


def test_a_worker_by_itself_says_who_holds_its_device(bench: Bench) -> None:
    database = open_database(parse_url(bench.url))
    create_or_resume(database, STUDY, definition(), trials=1)
    other = create_or_resume(database, "elsewhere", definition(), trials=1)
    other.bind_device_model("Example CPU, 9 cores")
    database.close()
    core = CpuCores((CORES[0],))
    with exclusive(core.lock_names):
        process = bench.start("worker", "--study", STUDY, "--task", "tiny.toml", "--cpu", cores=1)
        assert line_of(process, "waiting for").endswith(
            f"waiting for {core.label}: {Holder.this_process()}\n"
        )
        assert interrupt(process).code == INTERRUPTED
        # What is known beforehand is not waited for.
        words = ["worker", "--study", other.name, "--task", "tiny.toml", "--cpu"]
        refused = finished(bench.start(*words, cores=1))
        assert refused.code == UsageError.exit_code
        assert "times measured on 'Example CPU, 9 cores', this device is " in refused.error


@pytest.mark.parametrize("command", ["launch", "doctor"])
def test_a_planted_lock_folder_is_one_line_before_anything_is_written(
    command: str, bench: Bench
) -> None:
    planted = Path(bench.environment["TUNER_LOCK_DIR"])
    target = bench.folder / "target"
    target.mkdir(mode=0o700)
    planted.symlink_to(target)
    words = bench.launch_arguments(1) if command == "launch" else ["doctor"]
    done = bench.run(*words, "--json", cores=1)
    assert done.code == 1
    document = done.json()
    if command == "doctor":
        (found,) = [
            check["detail"] for check in document["checks"] if check["name"] == "device locks"
        ]
    else:
        found = document["error"]["message"]
        assert not (bench.folder / "storage").exists()
    assert found.startswith(f"no place for the device locks: {planted} is a link")
    assert oct(target.stat().st_mode & 0o7777) == "0o700"
