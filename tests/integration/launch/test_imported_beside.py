"""A network in several files: found wherever one stands, and not mixed with what it was before."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.cli_processes import STUDY, Bench
from tests.support.small_study import STUDY_TOML, write_files

NET = """
from halves import halve
from tuner.models.tsmixer import DESIGNS, TSMixer

class Net(TSMixer):
    def __init__(self, shapes, **sizes):
        super().__init__(shapes, DESIGNS["rmsnorm"], **sizes)

    def forward(self, *given):
        return halve(super().forward(*given))
"""
SMALL = (
    "--variant",
    "pk/small.toml",
    "--task",
    "tiny.toml",
    "--cpu",
    "--workers=1",
    "--max-epochs=2",
)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    write_files(tmp_path)
    (tmp_path / "pk").mkdir()
    (tmp_path / "pk" / "net.py").write_text(NET, encoding="utf-8")
    (tmp_path / "pk" / "halves.py").write_text("def halve(x): return 0.5 * x\n", encoding="utf-8")
    mine = STUDY_TOML.replace('"rmsnorm"', '"net.py:Net"')
    (tmp_path / "pk" / "small.toml").write_text(mine, encoding="utf-8")
    return Bench(tmp_path, f"sqlite:///{tmp_path}/storage/tuner.db")


def test_it_is_found_from_any_folder_and_a_changed_half_is_another_network(bench: Bench) -> None:
    checked = bench.run("variants", "--check", "pk/small.toml", "--task", "tiny.toml")
    assert checked.code == 0, checked.err
    first = bench.run("launch", *SMALL, "--trials=1", cores=1)
    assert first.code == 0, first.err
    assert "1 of 1 trials finished" in first.out

    half = bench.folder / "pk" / "halves.py"
    half.write_text("def halve(x): return x / 2\n", encoding="utf-8")
    other = bench.run("launch", *SMALL, "--trials=2", cores=1)
    assert other.code == 2
    assert other.error == (
        f"study '{STUDY}' was made when halves.py, which net.py imports, was another file, and its "
        "trials would not compare. Restore that, or start a new study with --study NAME"
    )
    half.write_text("def halve(x): return 0.5 * x\n", encoding="utf-8")
    again = bench.run("launch", *SMALL, "--trials=2", cores=1)
    assert again.code == 0, again.err
    assert [state for _, state in bench.trials()] == ["COMPLETE", "COMPLETE"]

    # Of a class that is kept for this user, one file is: nothing is trained without the other.
    shutil.move(bench.folder / "pk", bench.folder / "moved")
    bench.allow(3)
    worker = bench.run("worker", "--study", STUDY, "--task", "tiny.toml", "--cpu", cores=1)
    assert worker.code == 2
    assert worker.error == (
        f"study '{STUDY}' runs net.py, which imports halves from beside it, and "
        f"{bench.folder}/pk/net.py is not on this host: put all of it there, or halves on Python's "
        "path"
    )
    assert [state for _, state in bench.trials()][2:] == []


def test_a_worker_does_not_begin_with_a_changed_half(bench: Bench) -> None:
    first = bench.run("launch", *SMALL, "--trials=1", cores=1)
    assert first.code == 0, first.err
    half = bench.folder / "pk" / "halves.py"
    half.write_text("def halve(x): return x / 2\n", encoding="utf-8")
    bench.allow(2)
    for more in ((), ("--keep-alive",)):
        worker = bench.run(
            "worker", "--study", STUDY, "--task", "tiny.toml", "--cpu", *more, cores=1
        )
        assert worker.code == 2
        assert worker.error == (
            f"study '{STUDY}' was made when halves.py, which net.py imports, was another file, and "
            "its trials would not compare. Restore that, or start a new study with --study NAME"
        )
    assert [state for _, state in bench.trials()] == ["COMPLETE"]


EDITS_ITSELF = """
from pathlib import Path

if Path(__file__).with_name("edit").exists():
    with Path(__file__).open("a") as file:
        file.write("raise RuntimeError('edited')\\n")
"""


def test_a_worker_keeps_to_the_class_that_it_began_with_and_the_next_one_is_refused(
    bench: Bench,
) -> None:
    net = bench.folder / "pk" / "net.py"
    net.write_text(NET + EDITS_ITSELF, encoding="utf-8")
    first = bench.run("launch", *SMALL, "--trials=1", cores=1)
    assert first.code == 0, first.err
    net.with_name("edit").touch()
    bench.allow(4)
    worker = ("worker", "--study", STUDY, "--task", "tiny.toml", "--cpu")
    assert bench.run(*worker, cores=1).code == 0
    assert "edited" in net.read_text(encoding="utf-8").splitlines()[-1]
    assert [state for _, state in bench.trials()] == ["COMPLETE"] * 4

    bench.allow(5)
    other = bench.run(*worker, cores=1)
    assert other.code == 2
    assert f"net.py on this host is not the file that study '{STUDY}' was made with" in other.error
    assert [state for _, state in bench.trials()] == ["COMPLETE"] * 4


def test_a_network_of_ones_own_under_a_built_in_name_is_told(bench: Bench) -> None:
    file = bench.folder / "pk" / "small.toml"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace('name = "small"', 'name = "simple"', 1), encoding="utf-8")
    done = bench.run("launch", *SMALL, "--trials=1", cores=1)
    assert done.code == 0, done.err
    assert (
        "net.py:Net is called as the built-in variant simple: '--variant simple' mean" in done.err
    )
