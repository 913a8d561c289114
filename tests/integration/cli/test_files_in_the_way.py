"""What a command writes where it was told to: over its own earlier files, and over nobody else's
without `--force`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.support.forked_cli import run_here as run
from tests.support.paths import REPOSITORY
from tests.support.recorded_studies import record_study
from tests.support.refusals import contents
from tuner.cli.replace import check_placeable
from tuner.errors import UsageError
from tuner.files.durable import MARK

ARCHIVES = REPOSITORY / "notebooks" / "data"
BOTH = (str(ARCHIVES / "original.json.gz"), str(ARCHIVES / "rmsnorm.json.gz"))
FIGURE = ("plot", "front", "--study", BOTH[0])
NOT_OURS = "is there already, and was not written by this command"

OUTPUTS = {
    "figure": (*FIGURE, "--output", "mine.html"),
    "table": ("compare", *BOTH, "--csv", "mine.csv"),
    "study": ("study", "export", "demo-rmsnorm", "--output", "mine.json.gz"),
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a database of one study."""
    path = tmp_path_factory.mktemp("recorded")
    record_study(f"sqlite:///{path}/storage/tuner.db", variant="rmsnorm", trials=1, max_epochs=1)
    return path


@pytest.fixture
def folder(recorded: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    shutil.copytree(recorded, tmp_path, dirs_exist_ok=True)
    return tmp_path


@pytest.mark.parametrize("what", OUTPUTS)
def test_a_command_writes_over_its_own_file_and_over_no_other(what: str, folder: Path) -> None:
    command = OUTPUTS[what]
    file = folder / command[-1]
    file.write_text('{"mine": 1}\n', encoding="utf-8")
    before = contents(folder)
    refused = run(*command, folder=folder)
    assert (refused.code, refused.out) == (2, "")
    assert f"{file.name}: {NOT_OURS}" in refused.error
    assert {k: v for k, v in contents(folder).items() if "storage" not in k} == {
        k: v for k, v in before.items() if "storage" not in k
    }
    forced = run(*command, "--force", folder=folder)
    assert forced.code == 0, forced.err
    again = run(*command, folder=folder)
    assert again.code == 0, again.err


def test_a_dash_makes_no_file_of_that_name(folder: Path) -> None:
    done = run(*OUTPUTS["table"][:-1], "-", folder=folder)
    assert (done.code, done.out) == (2, "")
    assert done.error == "-: is the standard output elsewhere, and no name here; name a file"
    assert not (folder / "-").exists()


def test_an_export_takes_the_place_of_no_other_study(folder: Path) -> None:
    url = f"sqlite:///{folder}/storage/tuner.db"
    record_study(url, variant="simple", trials=1, max_epochs=1)
    command = ("study", "export", "demo-simple", "--output", "mine.json")
    assert run("study", "export", "demo-rmsnorm", "--output", "mine.json", folder=folder).code == 0
    before = (folder / "mine.json").read_bytes()
    done = run(*command, folder=folder)
    assert done.code == 2
    assert "mine.json: holds another study, 'demo-rmsnorm'" in done.error
    assert (folder / "mine.json").read_bytes() == before
    assert run(*command, "--force", folder=folder).code == 0
    assert run(*command, folder=folder).code == 0


def test_a_comparison_is_shown_also_where_its_file_cannot_be_written(tmp_path: Path) -> None:
    done = run("compare", *BOTH, "--csv", "/proc/one.csv", folder=tmp_path)
    assert done.code == 1
    assert "cannot write /proc/one.csv" in done.error
    assert "rmsnorm" in done.out


def test_where_its_file_cannot_be_written_a_comparison_is_one_document_all_the_same(
    tmp_path: Path,
) -> None:
    done = run("compare", *BOTH, "--json", "--csv", "/proc/one.csv", folder=tmp_path)
    assert (done.code, set(json.loads(done.out))) == (1, {"error"})
    made = run("compare", *BOTH, "--json", "--csv", "new/one.csv", folder=tmp_path)
    assert (made.code, len(json.loads(made.out)["rows"]) > 0) == (0, True)
    assert (tmp_path / "new" / "one.csv").is_file()


def test_an_export_that_cannot_be_written_names_its_file(folder: Path) -> None:
    done = run("study", "export", "demo-rmsnorm", "--output", "/proc/mine.json", folder=folder)
    assert (done.code, done.error.count("\n")) == (1, 0)
    assert "/proc/mine.json: cannot be written" in done.error


@pytest.mark.parametrize(
    ("name", "mine"),
    [("own.json", '{"mine": 1}'), ("own.safetensors", '{"mine": 1}'), ("own.json", "[" * 100_000)],
    ids=["card", "model", "deep"],
)
def test_a_training_refuses_before_it_begins_what_it_did_not_write(
    name: str, mine: str, folder: Path
) -> None:
    (folder / name).write_text(mine, encoding="utf-8")
    done = run(
        *(
            "train",
            "--variant",
            "rmsnorm",
            "--task",
            "demo",
            "--trial",
            "0",
            "--cpu",
            "--output",
            "own.safetensors",
        ),
        folder=folder,
    )
    assert done.code == 2
    assert f"{name}: {NOT_OURS}; name another file, or say --force" in done.error
    assert (folder / name).read_text(encoding="utf-8") == mine


def test_a_bench_refuses_a_folder_whose_results_are_not_its_own(tmp_path: Path) -> None:
    (tmp_path / "results.csv").write_text("study,mine\n", encoding="utf-8")
    done = run("bench", "--cpu", "--output", ".", folder=tmp_path)
    assert done.code == 2
    assert f"results.csv: {NOT_OURS}" in done.error


def test_a_retune_refuses_before_it_begins_a_page_that_it_could_not_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").write_text("notes", encoding="utf-8")
    refused = run(
        *("retune", "--variant", "rmsnorm", "--task", "demo", "--cpu"),
        *("--html", "mine/a/page.html"),
        folder=tmp_path,
    )
    assert (refused.code, refused.out) == (2, "")
    assert f"mine/a/page.html: {tmp_path / 'mine'} is a file, no folder" in refused.error
    assert [each.name for each in tmp_path.iterdir()] == ["mine"]
    check_placeable(tmp_path / "new" / "page.html")
    # Nothing is closed to root, who runs the tests in a container.
    monkeypatch.setattr("os.access", lambda folder, _mode: folder != tmp_path)
    with pytest.raises(UsageError, match=f"the folder {tmp_path} cannot be written to"):
        check_placeable(tmp_path / "new" / "page.html")


def test_a_report_that_nobody_asked_for_keeps_no_retune_from_its_verdict(tmp_path: Path) -> None:
    """With a database elsewhere it goes into the folder `storage`, which is a file here."""
    (tmp_path / "storage").write_text("notes", encoding="utf-8")
    nobody = "postgresql://tuner@127.0.0.1:1/tuner"
    done = run(
        *("retune", "--variant", "rmsnorm", "--task", "demo", "--cpu", "--storage", nobody),
        folder=tmp_path,
    )
    told, ended = done.err.splitlines()
    place = f"{tmp_path}/storage/retune-demo-rmsnorm.html: {tmp_path}/storage is a file, no folder"
    assert told == f"tuner: no report will be written: {place}; name another place, with --html"
    assert "127.0.0.1" in ended, "it went on"


def test_a_figure_is_written_over_a_figure_and_over_no_figure_of_others(tmp_path: Path) -> None:
    """Whoever draws with Plotly, too, has pages that look alike."""
    name = "mine.html"
    draw = (*FIGURE, "--output", name)
    assert run(*draw, folder=tmp_path).code == 0
    first = (tmp_path / name).read_bytes()
    assert run(*draw, folder=tmp_path).code == 0
    assert MARK in first
    others = first.replace(MARK, b"what is of others")
    (tmp_path / name).write_bytes(others)
    done = run(*draw, folder=tmp_path)
    assert (done.code, NOT_OURS in done.error) == (2, True)
    assert (tmp_path / name).read_bytes() == others


def test_a_figure_is_not_written_over_a_report_that_holds_figures(tmp_path: Path) -> None:
    assert run("compare", *BOTH, "--html", "mine.html", folder=tmp_path).code == 0
    report = (tmp_path / "mine.html").read_bytes()
    done = run(*FIGURE, "--output", "mine.html", folder=tmp_path)
    assert (done.code, NOT_OURS in done.error) == (2, True)
    assert (tmp_path / "mine.html").read_bytes() == report
