from __future__ import annotations

import re
import shutil
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import jupytext
import nbformat
import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode
from traitlets.config import Config

from tests.support.forked_cli import python_path
from tests.support.paths import REPOSITORY
from tests.support.recorded_studies import RecordedDatabase
from tuner.data.task import load_task

pytestmark = pytest.mark.slow

NOTEBOOKS = REPOSITORY / "notebooks"
NAMES = ("pareto", "compare_variants", "use_best_config")


def execute(
    monkeypatch: pytest.MonkeyPatch,
    name: str = "pareto",
    folder: Path = NOTEBOOKS,
    **environment: str,
) -> NotebookNode:
    """Run a notebook from its own folder, as Jupyter does, or from another one."""
    for key, value in environment.items():
        monkeypatch.setenv(key, value)
    monkeypatch.setenv("PYTHONPATH", python_path())  # also works where tuner is not installed
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    # Sockets in a folder of its own: a port that is free when it is chosen may be taken when the
    # kernel has started.
    with tempfile.TemporaryDirectory(prefix="jupyter-") as sockets:
        config = Config({"KernelManager": {"transport": "ipc", "ip": f"{sockets}/kernel"}})
        resources = {"metadata": {"path": str(folder)}}
        client = NotebookClient(
            notebook, config=config, timeout=240, startup_timeout=240, resources=resources
        )
        return client.execute()


def outputs(notebook: NotebookNode, mime: str) -> list[Any]:
    """Figures as dictionaries, all else as text."""
    found = []
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if mime == "stream" and output.output_type == "stream":
                found.append(output.text)
            elif mime in output.get("data", {}):
                found.append(output.data[mime])
    return found


@pytest.fixture
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """No database and no study named in the environment: the exported studies are what there is."""
    for name in ("TUNER_STORAGE", "TUNER_STUDY"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_pareto_draws_a_database_s_fronts_and_builds_the_knee(
    recorded_database: RecordedDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    notebook = execute(monkeypatch, TUNER_STORAGE=recorded_database.url, TUNER_STUDY="demo-rmsnorm")
    figures = outputs(notebook, "application/vnd.plotly.v1+json")
    assert len(figures) == len(outputs(notebook, "image/png")) == 5
    names = [trace["name"] for trace in figures[0]["data"]]
    assert {name.partition(":")[0] for name in names} == {"demo-rmsnorm"}
    front = next(trace for trace in figures[0]["data"] if trace["name"] == "demo-rmsnorm: front")
    expected = recorded_database.results("demo-rmsnorm").front
    assert len(front["text"]) == len(expected)
    assert figures[0]["layout"]["xaxis"]["title"]["text"] == "time to convergence (s)"

    (table,) = outputs(notebook, "text/html")
    assert "<table" in table
    assert "wall_clock_s" in table

    text = "".join(outputs(notebook, "stream"))
    assert text.startswith("rmsnorm: not known: ")
    assert "step 2: quantile loss" in text  # the configuration, in one's own loop
    assert 'pick = "knee"' in text
    demo = load_task("demo")
    assert f"sizes ModelShapes(input_size={demo.input_size}, horizon={demo.horizon}" in text
    assert "Warning" not in text


def studies_of_pareto(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of what it draws: its first two cells, in this process."""
    monkeypatch.chdir(NOTEBOOKS)
    notebook = nbformat.read("pareto.ipynb", as_version=4)
    first, second, *_ = (cell.source for cell in notebook.cells if cell.cell_type == "code")
    names: dict[str, Any] = {}
    exec(f"{first}\n{second}", names)
    return [each.name for each in names["studies"]]


def test_pareto_needs_no_database(nothing_set: pytest.MonkeyPatch) -> None:
    assert studies_of_pareto(nothing_set) == ["etth-original"]


def test_compare_variants_reads_a_verdict_interval_by_interval(
    nothing_set: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of the small studies: the reference job, which is there in the repository, takes longer."""
    shutil.copytree(NOTEBOOKS / "data", tmp_path / "data")
    notebook = execute(nothing_set, "compare_variants", tmp_path)
    text = "".join(outputs(notebook, "stream"))
    assert "small-original: not known: " in text
    assert "- No claim follows from the figures of single points of a front: tuner verify" in text
    assert "Warning" not in text
    (table,) = outputs(notebook, "text/html")
    assert "total time (s)" in table
    _, fronts, *importances = outputs(notebook, "application/vnd.plotly.v1+json")
    assert "quick-small-original: front" in [trace["name"] for trace in fronts["data"]]
    assert [figure["layout"]["title"]["text"] for figure in importances] == [
        "small-original",
        "small-rmsnorm",
    ]


def test_use_best_config_trains_and_forecasts_in_three_libraries(
    nothing_set: pytest.MonkeyPatch,
) -> None:
    notebook = execute(nothing_set, "use_best_config")
    text = "".join(outputs(notebook, "stream"))
    assert "test MQL" in text
    assert "TSMixerModel" in text
    fan, figure = outputs(notebook, "application/vnd.plotly.v1+json")
    assert {"seen", "median forecast", "what came"} <= {trace["name"] for trace in fan["data"]}
    assert "80 % interval" in [trace.get("name") for trace in figure["data"]]


def test_without_a_database_the_notebook_says_what_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNER_STORAGE", f"sqlite:///{tmp_path / 'none.db'}")
    with pytest.raises(SystemExit, match=r"tuner launch.*make demo"):
        studies_of_pareto(monkeypatch)


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_its_script_with_what_it_showed(name: str) -> None:
    path = NOTEBOOKS / f"{name}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    script = jupytext.read(path.with_suffix(".py"))
    assert [(cell.cell_type, cell.source) for cell in notebook.cells] == [
        (cell.cell_type, cell.source) for cell in script.cells
    ]
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    figures = outputs(notebook, "application/vnd.plotly.v1+json")
    assert len(figures) == len(outputs(notebook, "image/png")) >= 2
    assert not [o for cell in code for o in cell.outputs if o.output_type == "error"]
    text = path.read_text(encoding="utf-8")
    assert len(text) < 1_000_000
    assert str(REPOSITORY) not in text


def test_the_notebooks_begin_with_a_confirmed_answer() -> None:
    verdict = nbformat.read(NOTEBOOKS / "compare_variants.ipynb", as_version=4)
    assert "How sure: confirmed gains: original" in outputs(verdict, "stream")[0]
    notebook = nbformat.read(NOTEBOOKS / "pareto.ipynb", as_version=4)
    assert "times as fast" in outputs(notebook, "stream")[0]
    assert "How sure: one search, confirmed on fresh seeds" in outputs(notebook, "stream")[0]


def test_every_notebook_is_among_those_that_are_tested() -> None:
    assert sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb")) == sorted(NAMES)


def test_the_extra_has_darts_which_a_notebook_trains_with() -> None:
    with (REPOSITORY / "pyproject.toml").open("rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    there = [each for name in ("notebooks", "bench") for each in extras[name]]
    assert "tuner[bench,pictures]" in extras["notebooks"]
    assert {"darts", "ipykernel"} <= {re.split(r"[\[<>=]", each)[0] for each in there}


def test_the_readme_names_both_commands() -> None:
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    assert "make demo" in readme
    assert "`make test`" in readme
