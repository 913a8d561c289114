from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from tests.support.paths import REPOSITORY
from tests.support.small_csv import TASK, csv_lines
from tuner.config import ModelShapes
from tuner.data.prepare import prepare
from tuner.data.source_kinds import CsvSource, FileSource, listed
from tuner.data.task import Task, load_task, shapes
from tuner.errors import UsageError

DOCS = REPOSITORY / "docs" / "own-data.md"


def problem(folder: Path, text: str) -> str:
    path = folder / "my.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        load_task(str(path))
    message = str(caught.value)
    assert caught.value.exit_code == 2
    assert "\n" not in message
    return message.replace(f"{folder}/", "")


def test_the_reference_job_has_the_protocols_shapes() -> None:
    task = load_task("etth")
    assert shapes(task) == ModelShapes(
        input_size=168, horizon=24, n_targets=7, n_past=0, n_future=6, n_static=1, n_quantiles=17
    )
    assert [task.quantiles[i] for i in task.eval_index] == [0.05, 0.1, 0.2, 0.5, 0.8, 0.9, 0.95]
    assert task.objective_series == "ETTh1"


def test_an_unknown_task_names_the_nearest() -> None:
    with pytest.raises(
        UsageError,
        match=r"unknown task 'eth' \(did you mean 'etth'\?\); there are: demo, etth; or the",
    ):
        load_task("eth")


def test_a_task_file_that_is_not_there_is_named() -> None:
    with pytest.raises(UsageError, match=r"nowhere/my\.toml: no such file"):
        load_task("nowhere/my.toml")


def test_the_path_of_the_csv_is_relative_to_the_task_file(
    task_file: Callable[..., Task], tmp_path: Path
) -> None:
    source = task_file(csv_lines(60)).source
    assert isinstance(source, CsvSource)
    assert source.path == tmp_path / "small.csv"


@pytest.mark.parametrize("name", ["demo", "etth"])
def test_a_built_in_task_comes_back_from_its_definition(name: str) -> None:
    task = load_task(name)
    again = Task.model_validate(json.loads(json.dumps(task.definition())))
    assert again.definition() == task.definition()
    assert again.eval_index == task.eval_index


def test_the_definition_is_plain_json_without_paths(
    task_file: Callable[..., Task], tmp_path: Path
) -> None:
    text = json.dumps(task_file(csv_lines(60)).definition())
    assert str(tmp_path) not in text
    assert "small.csv" not in text


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "horizon = 2",
            "horizn = 2",
            "my.toml, line 5: unknown key 'horizn' (did you mean 'horizon'?); expected one of",
        ),
        ("horizon = 2\n", "", "my.toml: missing key 'horizon'; add it"),
        (
            "horizon = 2",
            "horizon = 0",
            "my.toml, line 5: key 'horizon' should be greater than or equal to 1, got 0",
        ),
        (
            "horizon = 2",
            'horizon = "2"',
            "my.toml, line 5: key 'horizon' should be a valid integer, got \"2\"",
        ),
        (
            '"csv"',
            '"cvs"',
            "my.toml, line 8: key 'source.kind' is 'cvs'; expected one of: 'etth', 'demo', 'csv'",
        ),
        (
            "path =",
            "paht =",
            (
                "my.toml, line 9: unknown key 'source.paht' (did you mean 'path'?); "
                "expected one of: dates_across, dec"
            ),
        ),
        (
            '"h"',
            '"H"',
            "my.toml, line 3: key 'frequency': 'H' is an old name of a frequency; write h",
        ),
        ('"h"', '"-1h"', "my.toml, line 3: key 'frequency': '-1h' is no pandas frequency"),
        ('["a", "b"]', '["a", "a"]', "my.toml, line 2: key 'target_columns': 'a' is named twice"),
        ('["a", "b"]', '["a", "ds"]', "my.toml, line 2: key 'target_columns': 'ds' is named twice"),
        ('["a", "b"]', "[]", "my.toml, line 2: key 'target_columns' should have at least 1 item"),
        (
            '"small"',
            '"etth"',
            "my.toml, line 1: key 'name': 'etth' is a built-in task; choose another name",
        ),
        ('"small"', '"a b"', "my.toml, line 1: key 'name' should match pattern"),
        (
            "horizon = 2",
            "horizon = 2\nsplit = [0.6, 0.2, 0.3]",
            "line 6: key 'split': three fractions above 0 that add",
        ),
        (
            "horizon = 2",
            "horizon = 2\nsplit = [0.6, 0.4]",
            "line 6: key 'split' has too few elements, got [0.6, 0.4]",
        ),
        (
            "horizon = 2",
            'horizon = 2\ncalendar = ["hours"]',
            "line 6: key 'calendar.0' should be 'minute', 'hour'",
        ),
        (
            "horizon = 2",
            "horizon = 2\nquantiles = [0.5, 0.1]",
            "line 6: key 'quantiles': ascending levels between 0 and",
        ),
        (
            "horizon = 2",
            "horizon = 2\neval_quantiles = [0.33]",
            "key 'eval_quantiles': ascending levels from quantiles",
        ),
        (
            '"small.csv"',
            '"small.csv"\ndecimal = ","',
            "line 10: key 'source.decimal': ',' is the separator as well",
        ),
        (
            '"small.csv"',
            '"small.csv"\nencoding = "utf8x"',
            "line 10: key 'source.encoding': unknown encoding 'utf8x'",
        ),
        (
            '"small.csv"',
            '"small.csv"\nseparator = ";;"',
            "line 10: key 'source.separator' should have at most 1",
        ),
    ],
)
def test_what_is_wrong_in_a_task_file_is_one_line_with_its_place(
    tmp_path: Path, old: str, new: str, expected: str
) -> None:
    assert old in TASK
    assert expected in problem(tmp_path, TASK.replace(old, new, 1))


def test_covariates_of_generated_data_are_refused(tmp_path: Path) -> None:
    text = TASK.replace('kind = "csv"\npath = "small.csv"', 'kind = "demo"').replace(
        "horizon = 2", 'horizon = 2\npast_covariates = ["c"]'
    )
    assert "line 6: key 'past_covariates': the source 'demo' has no covariate columns" in problem(
        tmp_path, text
    )


def test_hourly_sources_have_hourly_frequency(tmp_path: Path) -> None:
    text = TASK.replace('kind = "csv"\npath = "small.csv"', 'kind = "demo"').replace('"h"', '"D"')
    assert "line 3: key 'frequency': this source is hourly" in problem(tmp_path, text)


def test_evaluated_levels_default_to_the_trained_ones_where_the_protocols_are_not_all_trained(
    task_file: Callable[..., Task],
) -> None:
    toml = TASK.replace("horizon = 2", "horizon = 2\nquantiles = [0.1, 0.5, 0.9]")
    assert task_file(csv_lines(60), toml).eval_quantiles == (0.1, 0.5, 0.9)


def documented_tasks() -> list[str]:
    return re.findall(r"```toml\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)


def test_the_page_on_own_data_shows_task_files() -> None:
    assert len(documented_tasks()) == 5


@pytest.mark.parametrize("text", documented_tasks())
def test_every_task_file_in_the_documentation_works(tmp_path: Path, text: str) -> None:
    (positions,) = re.findall(r"```csv\n(series,x,y\n.*?)```", DOCS.read_text("utf-8"), re.DOTALL)
    (tmp_path / "positions.csv").write_text(positions, encoding="utf-8")
    (tmp_path / "shown.toml").write_text(text, encoding="utf-8")
    task = load_task(str(tmp_path / "shown.toml"))
    source = task.source
    assert isinstance(source, FileSource)
    table = table_for(task, source, rows=4000)
    if source.runs is not None:
        for number in range(5):
            folder = Path(str(source.path).replace("*", str(number))).parent
            folder.mkdir()
            table[task.target_columns[0]] += 1.0  # no two runs are the same
            table.to_csv(folder / source.path.name, index=False)
    elif isinstance(source, CsvSource):
        table.to_csv(
            source.path, sep=source.separator, decimal=source.decimal, header=source.header,
            index=False, encoding=source.encoding,
        )  # fmt: skip
    else:
        table.to_parquet(source.path)
    prepared = prepare(task, cache_dir=tmp_path / "cache")
    assert len(prepared.test.starts) > 0
    assert prepared.series == (("north", "south") if source.id_column else (task.name,))


def table_for(task: Task, source: FileSource, rows: int) -> pd.DataFrame:
    """Rows as the task has them; where gaps are treated, with one."""
    times = pd.date_range("2020-01-01", periods=rows, freq=task.frequency, tz="UTC")
    if source.timezone is not None:
        times = times.tz_convert(source.timezone)
    written: object = times.tz_localize(None)
    if isinstance(source, CsvSource) and source.time_format is not None:
        written = times.strftime(source.time_format)
    columns: dict[str, object] = dict.fromkeys(listed(source.time_column), written)
    for j, name in enumerate(
        (*task.target_columns, *task.past_covariates, *task.future_covariates)
    ):
        columns[name] = [i % 13 + 0.25 * j for i in range(rows)]
    table = pd.DataFrame(columns)
    if source.gaps != "refuse":
        table = table.drop(index=range(100, 110))
    if source.id_column is None:
        return table
    (column,) = listed(source.id_column)
    return pd.concat([table.assign(**{column: name}) for name in ("north", "south")])
