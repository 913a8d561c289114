"""A network in several files: found wherever one stands, and not mixed with what it was before."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest

from tests.support.cli_processes import STUDY, Bench
from tests.support.small_study import STUDY_TOML, definition, write_files
from tuner.launch.plan import called_as_built_in

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
    worker = ("worker", "--study", STUDY, "--task", "tiny.toml", "--cpu")
    bench.allow(2)
    for words in (("launch", *SMALL, "--trials=2"), worker, (*worker, "--keep-alive")):
        other = bench.run(*words, cores=1)
        assert other.code == 2
        assert other.error == (
            f"study '{STUDY}' was made when halves.py, which net.py imports, was another file, and "
            "its trials would not compare. Restore that, or start a new study with --study NAME"
        )
    half.write_text("def halve(x): return 0.5 * x\n", encoding="utf-8")
    again = bench.run("launch", *SMALL, "--trials=2", cores=1)
    assert again.code == 0, again.err
    assert [state for _, state in bench.trials()] == ["COMPLETE", "COMPLETE"]

    # Of a class that is kept for this user, one file is: nothing is trained without the other.
    shutil.move(bench.folder / "pk", bench.folder / "moved")
    bench.allow(3)
    lacking = bench.run(*worker, cores=1)
    assert lacking.code == 2
    assert lacking.error == (
        f"study '{STUDY}' runs net.py, which imports halves from beside it, and "
        f"{bench.folder}/pk/net.py is not on this host: put all of it there, or halves on Python's "
        "path"
    )
    assert [state for _, state in bench.trials()][2:] == []


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
    bench.allow(2)
    worker = ("worker", "--study", STUDY, "--task", "tiny.toml", "--cpu")
    assert bench.run(*worker, cores=1).code == 0
    assert "edited" in net.read_text(encoding="utf-8").splitlines()[-1]
    assert [state for _, state in bench.trials()] == ["COMPLETE"] * 2

    bench.allow(3)
    other = bench.run(*worker, cores=1)
    assert other.code == 2
    assert f"net.py on this host is not the file that study '{STUDY}' was made with" in other.error
    assert [state for _, state in bench.trials()] == ["COMPLETE"] * 2


def test_a_network_of_ones_own_under_a_built_in_name_is_told() -> None:
    own = definition().architecture.but(model="net.py:Net")
    told = called_as_built_in(dataclasses.replace(definition(), architecture=own))
    assert told.startswith("net.py:Net is called as the built-in variant rmsnorm: '--variant rms")
