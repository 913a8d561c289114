from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.support import forked_cli
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
    printed,
    without_decimals,
)
from tests.support.forked_cli import run
from tests.support.paths import REPOSITORY
from tests.support.recorded_studies import record_study
from tuner.cli.run import run as run_here
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


def test_each_documented_command_exists_with_its_flags() -> None:
    known = set(commands())
    for command in DOCUMENTED:
        assert parse(command.arguments) in known, command


def test_each_command_is_documented() -> None:
    written = (path for path in documents() if path not in (DOCSTRINGS, HELP))
    text = "\n".join(path.read_text(encoding="utf-8") for path in written)
    assert [name for name in commands() if not re.search(rf"`?tuner {name}\b", text)] == []


def test_each_documented_make_target_and_script_exists() -> None:
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    there = set(re.findall(r"^([a-z][\w-]*):", makefile, flags=re.MULTILINE))
    assert documented_targets() <= there
    assert [each for each in documented_scripts() if not (REPOSITORY / each).exists()] == []


def test_each_cheap_documented_command_works(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(workplace)
    for command in {c.arguments: c for c in DOCUMENTED if runnable(c)}.values():
        code = run_here(list(command.arguments))
        said = capsys.readouterr()
        assert code == 0, (command, said.err)
        assert said.out or command.arguments[0] == "plot"  # which writes a file
        if "json" in command.arguments or "--json" in command.arguments:
            assert isinstance(json.loads(said.out), dict)


@pytest.mark.parametrize("block", blocks("python"), ids=lambda block: block.document)
def test_each_python_block_runs(
    block: Block, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workplace)
    monkeypatch.setenv("TMPDIR", str(workplace))  # device locks are there
    monkeypatch.setattr(subprocess, "Popen", forked_cli.popen())
    exec(compile(block.text, block.document, "exec"), {"__name__": "__main__"})


def files_shown(document: str) -> dict[str, str]:
    """The blocks of a document that begin with a comment naming a file."""
    shown = {}
    for block in blocks("python", "py", "toml"):
        first = block.text.partition("\n")[0]
        if block.document == document and re.fullmatch(r"# [\w.]+\.(py|toml)", first):
            shown[first.removeprefix("# ")] = block.text
    return shown


def test_the_documented_architecture_works_as_shown(tmp_path: Path) -> None:
    files = files_shown("docs/own-model.md")
    assert set(files) == {"last_value_mlp.py", "last_value_mlp.toml", "physics.py"}
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")

    checked = run("variants", "--check", "last_value_mlp.toml", "--task", "demo", folder=tmp_path)
    assert checked.code == 0, checked.err
    assert checked.out.startswith("last-value-two-layers: ")
    assert "last_value_mlp.py:LastValueMLP works" in checked.out
    shown = printed("docs/own-model.md", "last-value-mlp: ")
    # The page's file is the proposed one; this one has two layers, and so another size.
    assert (
        without_decimals(shown).splitlines()[1:] == without_decimals(checked.out).splitlines()[1:]
    )
    _check_the_documented_term(tmp_path)


def _check_the_documented_term(folder: Path) -> None:
    """The page's tables of a loss term, put into the page's study file."""
    (tables,) = (block for block in blocks("toml") if "physics.py:continuity" in block.text)
    defaults, rest = tables.text.removeprefix("[defaults]\n").split("\n\n", 1)
    file = (folder / "last_value_mlp.toml").read_text(encoding="utf-8")
    file = file.replace("[defaults]", f"[defaults]\n{defaults}")
    (folder / "mine.toml").write_text(f"{file}\n{rest}", encoding="utf-8")
    done = run("variants", "--check", "mine.toml", "--task", "demo", folder=folder)
    assert done.code == 0, done.err
    assert "physics.py:continuity" in done.out


def test_the_documented_program_works_as_shown(tmp_path: Path) -> None:
    files = files_shown("docs/own-loop.md")
    assert set(files) == {
        "train.py",
        "train.toml",
        "lightning_train.py",  # tests/unit/callbacks runs it
        "lightning_train.toml",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert load_study_file(str(tmp_path / "lightning_train.toml")).program is not None
    shown = next(block for block in blocks("console") if block.document == "docs/own-loop.md")
    checked, launched = (line.split()[2:] for line in shown.text.splitlines())
    done = run(*checked, folder=tmp_path)
    assert done.code == 0, done.err
    told = printed("docs/own-loop.md", "my-program: ").replace("/home/you/project", str(tmp_path))
    assert without_decimals(done.out) == without_decimals(told)
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
    assert done.out.startswith(printed("docs/own-data.md", "bakery: "))


def test_the_documented_study_is_shown_as_the_page_shows_it(tmp_path: Path) -> None:
    export = REPOSITORY / "benchmarks" / "campaign" / "etth-rmsnorm.json.gz"
    done = run("study", "import", str(export), folder=tmp_path)
    assert done.code == 0, done.err
    done = run("status", folder=tmp_path, environment={"COLUMNS": "110"})
    lines = [line.rstrip() for line in done.out.splitlines()]
    assert lines == printed("docs/watch.md", "Studies").splitlines()
    done = run("trial", "0", "--study", "etth-rmsnorm", folder=tmp_path)
    shown = printed("docs/watch.md", "etth-rmsnorm, trial 0").splitlines()
    assert [line.rstrip() for line in done.out.splitlines()][: len(shown)] == shown


def anchors(document: Path) -> set[str]:
    """What a link may name in a document after `#`, as its host makes it of the headings."""
    text = re.sub(
        r"^```.*?^```$", "", document.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_between_documents_lead_somewhere() -> None:
    for document in (*every_document(), REPOSITORY / "CHANGELOG.md"):
        text = document.read_text(encoding="utf-8")
        text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if target.startswith(("http", "mailto:")):
                continue
            name, _, anchor = target.partition("#")
            there = document.parent / name if name else document
            assert there.exists(), f"{document}: {target} is not there"
            assert not anchor or anchor in anchors(there), f"{document}: {target}"
