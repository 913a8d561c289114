from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cli_parsing import commands, parse
from tests.support.documentation import (
    DOCSTRINGS,
    HELP,
    Block,
    DocumentedCommand,
    blocks,
    documented_commands,
    documented_scripts,
    documented_targets,
    documents,
    every_document,
)
from tests.support.forked_cli import python_path, run
from tests.support.paths import REPOSITORY
from tests.support.recorded_studies import record_study
from tuner.data.prepare import prepare
from tuner.data.source_kinds import OF_FILES
from tuner.data.sources import demo_series
from tuner.data.task import load_task
from tuner.export.saved_model import describe, save_model
from tuner.models.registry import build_model
from tuner.spec.study_file import load_study_file

DOCUMENTED = documented_commands()
CHEAP = ("best", "status", "trial", "plot", "predict", "variants", "doctor")


def runnable(command: DocumentedCommand) -> bool:
    """Cheap ones that need no file of the reader's and that end by themselves."""
    ends = not {"--watch"} & set(command.arguments)
    # Pictures need a Chromium.
    files = any(
        word.endswith((".toml", ".svg", ".png")) or ".py:" in word for word in command.arguments
    )
    # All models of that library take minutes, and each its import; tests/unit/cli tries some.
    library = command.arguments[0] == "variants" and any(
        word.partition(":")[0] == "neuralforecast" for word in command.arguments
    )
    cheap = command.arguments[0] in CHEAP or command.arguments[:2] == ("db", "check")
    return cheap and ends and not files and not library


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the documents speak of: storage/tuner.db and storage/demo.db, and the
    campaign's exports."""
    folder = tmp_path_factory.mktemp("reader")
    (folder / "benchmarks").symlink_to(REPOSITORY / "benchmarks")
    for database, names in (
        ("tuner", ("etth-rmsnorm",)),
        ("demo", ("demo-rmsnorm", "demo-original")),
    ):
        for name in names:
            url = f"sqlite:///{folder}/storage/{database}.db"
            # Of 6 trials as in the demo, nothing can be expected; of 24, one can be recommended.
            trials = 24 if database == "tuner" else 6
            record_study(url, variant=name.partition("-")[2], name=name, trials=trials)
    _write_model(folder)
    return folder


def _write_model(folder: Path) -> None:
    """model.safetensors, as `tuner train` leaves it but untrained, and recent.csv, rows it can
    forecast from."""
    prepared = prepare(load_task("demo"))
    file = load_study_file("rmsnorm")
    hyperparameters = file.default_hyperparameters()
    model = build_model(file.architecture(), prepared.shapes, hyperparameters)
    save_model(
        folder / "model.safetensors",
        model,
        describe(prepared, file.architecture(), hyperparameters),
    )
    rows = ["ds,series,load,heat,flow"]
    for series in demo_series(rows=48, seed=0, n_targets=3):
        pairs = zip(series.timestamps, series.values, strict=True)
        rows += [f"{time},{series.name},{','.join(map(str, values))}" for time, values in pairs]
    (folder / "recent.csv").write_text("\n".join(rows), encoding="utf-8")


def test_the_documents_show_commands() -> None:
    assert len(DOCUMENTED) > 15
    assert sum(runnable(command) for command in DOCUMENTED) >= 6


@pytest.mark.parametrize("command", DOCUMENTED, ids=str)
def test_each_documented_command_exists_with_its_flags(command: DocumentedCommand) -> None:
    assert parse(command.arguments) in set(commands())


@pytest.mark.parametrize("name", list(commands()))
def test_each_command_is_documented(name: str) -> None:
    written = (path for path in documents() if path not in (DOCSTRINGS, HELP))
    text = "\n".join(path.read_text(encoding="utf-8") for path in written)
    assert re.search(rf"`?tuner {name}\b", text), f"no document mentions 'tuner {name}'"


@pytest.mark.parametrize("target", sorted(documented_targets()))
def test_each_documented_make_target_exists(target: str) -> None:
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE)


@pytest.mark.parametrize("script", sorted(documented_scripts()))
def test_each_documented_script_exists(script: str) -> None:
    assert (REPOSITORY / script).exists()


@pytest.mark.parametrize(
    "command", {c.arguments: c for c in DOCUMENTED if runnable(c)}.values(), ids=str
)
def test_each_cheap_documented_command_works(command: DocumentedCommand, workplace: Path) -> None:
    done = run(*command.arguments, folder=workplace)
    assert done.code == 0, done.err
    assert done.out or command.arguments[0] == "plot"  # which writes a file
    if "json" in command.arguments or "--json" in command.arguments:
        assert isinstance(json.loads(done.out), dict)


@pytest.mark.parametrize("block", blocks("python"), ids=lambda block: block.document)
def test_each_python_block_runs(block: Block, workplace: Path) -> None:
    # A TMPDIR of its own: device locks are there.
    done = subprocess.run(
        [sys.executable, "-c", block.text],
        cwd=workplace,
        env=os.environ | {"PYTHONPATH": python_path(), "TMPDIR": str(workplace)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def files_shown(document: str) -> dict[str, str]:
    """The blocks of a document that begin with a comment naming a file."""
    shown = {}
    for block in blocks("python", "py", "toml"):
        first = block.text.partition("\n")[0]
        if block.document == document and re.fullmatch(r"# [\w.]+\.(py|toml)", first):
            shown[first.removeprefix("# ")] = block.text
    return shown


def test_the_documented_architecture_works_as_shown(tmp_path: Path) -> None:
    files = files_shown("docs/own-architecture.md")
    assert set(files) == {"last_value_mlp.py", "last_value_mlp.toml"}
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")

    checked = run("variants", "--check", "last_value_mlp.toml", "--task", "demo", folder=tmp_path)
    assert checked.code == 0, checked.err
    assert checked.out.startswith("last-value-two-layers: ")
    assert "last_value_mlp.py:LastValueMLP works" in checked.out

    arguments = (
        "launch",
        "--variant",
        "last_value_mlp.toml",
        "--task",
        "demo",
        "--cpu",
        "--trials",
        "1",
    )
    # A TMPDIR of its own: device locks are there, and another launch on this machine must not make
    # us wait.
    launched = run(
        *arguments,
        "--max-epochs",
        "1",
        "--json",
        folder=tmp_path,
        environment={"TMPDIR": str(tmp_path)},
    )
    assert launched.code == 0, launched.err
    (study,) = json.loads(launched.out)["studies"]
    assert study["name"] == "demo-last-value-two-layers"
    assert study["trials"]["complete"] == 1


def test_the_documented_program_works_as_shown(tmp_path: Path) -> None:
    files = files_shown("docs/own-loops.md")
    assert set(files) == {
        "train.py",
        "train.toml",
        "lightning_train.py",  # tests/unit/callbacks runs it
        "lightning_train.toml",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert load_study_file(str(tmp_path / "lightning_train.toml")).program is not None
    shown = next(block for block in blocks("console") if block.document == "docs/own-loops.md")
    checked, launched = (line.split()[2:] for line in shown.text.splitlines())
    done = run(*checked, folder=tmp_path)
    assert done.code == 0, done.err
    assert done.out.startswith("my-program: python train.py in ")
    assert done.err == ""
    done = run(*launched, "--json", folder=tmp_path, environment={"TMPDIR": str(tmp_path)})
    assert done.code == 0, done.err
    (study,) = json.loads(done.out)["studies"]
    assert (study["name"], study["clock"]) == ("demo-my-program", "process")
    assert study["trials"]["complete"] == 4


def test_the_documented_task_files_are_valid(tmp_path: Path) -> None:
    tasks = [block for block in blocks("toml") if block.document == "docs/own-data.md"]
    assert len(tasks) >= 3
    for block in blocks("csv"):
        if block.text.startswith("series,x,y"):
            (tmp_path / "positions.csv").write_text(block.text, encoding="utf-8")
    for number, block in enumerate(tasks):
        file = tmp_path / f"task{number}.toml"
        file.write_text(block.text, encoding="utf-8")
        assert load_task(str(file)).source.kind in OF_FILES


def test_the_documented_way_from_a_file_to_a_task_works(tmp_path: Path) -> None:
    first, *_ = (block for block in blocks("sh") if block.document == "docs/own-data.md")
    rows = "".join(
        f"2024-01-{1 + i // 24:02d} {i % 24:02d}:00:00,{i % 24},{i % 7}.5\n" for i in range(700)
    )
    (tmp_path / "bakery.csv").write_text(f"ds,bread,cake\n{rows}", encoding="utf-8")
    commands = [line.split()[1:] for line in first.text.splitlines()]
    assert [words[:2] for words in commands] == [["init", "data"], ["data", "check"]]
    for words in commands:
        done = run(*words, folder=tmp_path)
        assert done.code == 0, done.err
    assert (tmp_path / "bakery.html").exists()


def anchors(document: Path) -> set[str]:
    """What a link may name in a document after `#`, as its host makes it of the headings."""
    text = re.sub(
        r"^```.*?^```$", "", document.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(
    "document", [*every_document(), REPOSITORY / "CHANGELOG.md"], ids=lambda path: path.name
)
def test_links_between_documents_lead_somewhere(document: Path) -> None:
    text = re.sub(
        r"^```.*?^```$", "", document.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http", "mailto:")):
            continue
        name, _, anchor = target.partition("#")
        there = document.parent / name if name else document
        assert there.exists(), f"{target} is not there"
        assert not anchor or anchor in anchors(there), (
            f"{target}: {there.name} has {sorted(anchors(there))}"
        )
