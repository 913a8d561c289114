"""`load_best` on recorded studies, and the records it is written as; the scripts have tests of
their own."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.paths import REPOSITORY
from tests.support.recorded_studies import RecordedDatabase, record_study
from tuner.data.task import load_task
from tuner.data.task import shapes as demo_shapes
from tuner.errors import TunerError, UsageError
from tuner.export import FORMATS, BestConfig, load_best, render
from tuner.storage.database import open_database
from tuner.storage.url import parse_url
from tuner.study.archive import archive_of, write_archive
from tuner.study.open import open_study


@pytest.fixture(scope="module")
def best(recorded_database: RecordedDatabase) -> BestConfig:
    return load_best("rmsnorm", pick="knee", task="demo", storage=recorded_database.url)


def test_each_pick_is_its_end_of_the_front(recorded_database: RecordedDatabase) -> None:
    front = recorded_database.results("demo-rmsnorm").front
    assert len(front) > 2, "the recorded front is too short for this test"
    picked = {
        pick: load_best("rmsnorm", pick=pick, task="demo", storage=recorded_database.url)
        for pick in ("time", "mql", "knee")
    }
    assert picked["time"].trial == front[0].number
    assert picked["mql"].trial == front[-1].number
    assert picked["knee"].trial in {record.number for record in front}
    for pick, config in picked.items():
        record = next(record for record in front if record.number == config.trial)
        assert config.pick == pick
        assert config.params == record.params
        assert tuple(config.values.values()) == record.values
        assert list(config.values) == ["wall_clock_s", "test_mql"]


def test_a_point_that_forecasts_worse_than_the_default_is_said_to(
    recorded_database: RecordedDatabase,
) -> None:
    found = {
        pick: load_best("rmsnorm", pick=pick, task="demo", storage=recorded_database.url)
        for pick in ("time", "mql")
    }
    default = recorded_database.results("demo-rmsnorm").default
    assert default is not None
    assert default.values is not None
    assert found["time"].values["test_mql"] > 1.1 * default.values[1]
    assert f"worse than the default's, {default.values[1]:.4f}" in found["time"].notes[-1]
    assert not [line for line in found["mql"].notes if "worse" in line]


def test_a_bound_moves_the_pick_along_the_front(recorded_database: RecordedDatabase) -> None:
    front = recorded_database.results("demo-rmsnorm").front
    assert front[0].values is not None
    assert front[-1].values is not None
    limit = front[-1].values[0] - 1e-6
    config = load_best(
        "rmsnorm", pick="mql", task="demo", storage=recorded_database.url, max_time=limit
    )
    assert config.trial == front[-2].number
    limit = front[0].values[1] - 1e-6
    config = load_best(
        "rmsnorm", pick="time", task="demo", storage=recorded_database.url, max_mql=limit
    )
    assert config.trial == front[1].number


def test_bounds_nobody_meets_name_the_nearest(recorded_database: RecordedDatabase) -> None:
    nearest = recorded_database.results("demo-rmsnorm").front[0]
    with pytest.raises(
        TunerError, match=rf"wall_clock_s <= 0\.001; the nearest is trial {nearest.number} with"
    ):
        load_best(
            "rmsnorm", pick="knee", task="demo", storage=recorded_database.url, max_time=0.001
        )


def test_a_trial_is_taken_by_its_number_on_the_front_or_not(
    recorded_database: RecordedDatabase,
) -> None:
    results = recorded_database.results("demo-rmsnorm")
    beside = next(record for record in results.complete if record not in results.front)
    config = load_best("rmsnorm", task="demo", storage=recorded_database.url, trial=beside.number)
    assert (config.trial, config.pick) == (beside.number, "trial")
    assert tuple(config.values.values()) == beside.values


def test_a_trial_without_a_result_or_that_is_not_there_names_the_nearest(
    recorded_database: RecordedDatabase,
) -> None:
    failed = recorded_database.results("demo-rmsnorm").records[-1].number
    says = (
        rf"trial {failed} .* is FAIL, not COMPLETE \(the loss became nan .*\); "
        rf"the nearest .* is trial {failed - 1}$"
    )
    with pytest.raises(TunerError, match=says):
        load_best("rmsnorm", task="demo", storage=recorded_database.url, trial=failed)
    with pytest.raises(
        UsageError, match=rf"has no trial 99; it has 12, and the nearest .* is trial {failed - 1}$"
    ):
        load_best("rmsnorm", task="demo", storage=recorded_database.url, trial=99)


def test_every_form_says_where_it_comes_from_and_that_it_is_not_verified(best: BestConfig) -> None:
    for form in FORMATS:
        text = render(best, form)
        for words in (
            best.definition.data_hash[:12],
            best.study,
            str(best.provenance["seed"]),
            "Example CPU, 2 cores",
        ):
            assert words in text, f"{form} does not say {words}"
        if form != "json":
            assert "NOT VERIFIED" in text
    assert json.loads(render(best, "json"))["verified"] is None


def test_a_disturbed_timing_is_said_where_its_seconds_are(best: BestConfig) -> None:
    disturbed = dataclasses.replace(best, provenance=best.provenance | {"contaminated": True})
    assert "timing disturbed" in render(disturbed, "toml")
    assert "timing disturbed" not in render(best, "toml")


def test_verified_figures_are_said_in_every_form(best: BestConfig) -> None:
    spread = {"median": 1.25, "low": 1.0, "high": 1.5}
    verified = dataclasses.replace(
        best, verified={"seeds": 5, "wall_clock_s": spread, "test_mql": spread}
    )
    for form in FORMATS:
        text = render(verified, form)
        assert "NOT VERIFIED" not in text
        assert "1.25" in text


def test_an_exported_file_gives_the_same_answer_as_the_database(
    recorded_database: RecordedDatabase, best: BestConfig, tmp_path: Path
) -> None:
    file = tmp_path / "study.json.gz"
    database = open_database(parse_url(recorded_database.url), create=False)
    write_archive(archive_of(open_study(database, "demo-rmsnorm")), file)
    database.close()
    for variant in ("rmsnorm", None):
        assert load_best(variant, pick="knee", task="demo", storage=str(file)) == best
    with pytest.raises(UsageError, match="holds the variant 'rmsnorm', not 'original'"):
        load_best("original", storage=str(file))
    with pytest.raises(UsageError, match="holds the task 'demo', not 'quick'"):
        load_best(
            task=str(REPOSITORY / "notebooks" / "data" / "quick.toml"),
            storage=str(file),
        )
    with pytest.raises(UsageError, match="there is no file"):
        load_best("rmsnorm", storage=str(tmp_path / "other.json.gz"))


def test_a_study_is_read_alike_from_every_kind_of_database(
    database_url: str, best: BestConfig
) -> None:
    record_study(database_url, variant="rmsnorm")
    found = load_best(study="demo-rmsnorm", pick="knee", storage=database_url)
    assert found.as_dict() | {"provenance": None} == best.as_dict() | {"provenance": None}
    assert found.provenance | {"ended": ""} == best.provenance | {"ended": ""}


def test_a_variant_of_ones_own_is_known_by_its_name_as_its_studies_have_it(tmp_path: Path) -> None:
    text = (REPOSITORY / "studies" / "rmsnorm.toml").read_text(encoding="utf-8")
    file, url = tmp_path / "file.toml", f"sqlite:///{tmp_path}/mine.db"
    file.write_text(text.replace('name = "rmsnorm"', 'name = "mine"', 1), encoding="utf-8")
    record_study(url, variant=str(file), name="demo-mine")
    by_file = load_best(file, pick="knee", task="demo", storage=url)
    assert load_best("mine", pick="knee", task="demo", storage=url).as_dict() == by_file.as_dict()
    load_best("mine", study="demo-mine", pick="knee", storage=url)
    with pytest.raises(UsageError, match="unknown variant 'mime'"):
        load_best("mime", task="demo", storage=url)


def test_neither_variant_nor_study_is_one_line() -> None:
    with pytest.raises(UsageError, match=r"name the variant, .* or the study"):
        load_best(task="demo")


def test_unknown_names_are_refused(recorded_database: RecordedDatabase, best: BestConfig) -> None:
    with pytest.raises(UsageError, match="did you mean 'knee'"):
        load_best("rmsnorm", pick="kne", task="demo", storage=recorded_database.url)
    with pytest.raises(UsageError, match=r"unknown variant 'rmsnrm' .did you mean 'rmsnorm'"):
        load_best("rmsnrm", task="demo", storage=recorded_database.url)
    with pytest.raises(UsageError, match="unknown study 'demo-simple'"):
        load_best("simple", task="demo", storage=recorded_database.url)
    with pytest.raises(UsageError, match="; the task is 'etth' where none is named"):
        load_best("rmsnorm", storage=recorded_database.url)
    with pytest.raises(UsageError, match="is of the variant 'rmsnorm', not 'simple'"):
        load_best("simple", study="demo-rmsnorm", pick="knee", storage=recorded_database.url)
    with pytest.raises(UsageError, match="unknown format 'yaml'"):
        render(best, "yaml")


def test_json_is_the_record_itself(best: BestConfig) -> None:
    document = json.loads(render(best, "json"))
    assert document == best.as_dict()
    assert document["provenance"]["data_hash"] == best.definition.data_hash
    assert document["provenance"]["definition_hash"] == best.definition.identity()


def without_nones(value: object) -> object:
    """TOML has no null: such keys are left out."""
    if isinstance(value, dict):
        return {key: without_nones(inner) for key, inner in value.items() if inner is not None}
    return value


def test_toml_carries_the_same_values(best: BestConfig) -> None:
    assert tomllib.loads(render(best, "toml")) == without_nones(best.as_dict())


names = st.text(st.characters(exclude_categories=["Cs"]))


@given(study=names, device=names, key=names, rate=st.floats(1e-12, 1e12))
def test_toml_carries_any_text_and_number(
    best: BestConfig, study: str, device: str, key: str, rate: float
) -> None:
    provenance = best.provenance | {
        "device": device,
        "versions": {key: "1.0", "torch": "2.0+cu126"},
    }
    params = best.params | {"learning_rate": rate}
    bent = dataclasses.replace(best, study=study, provenance=provenance, params=params)
    assert tomllib.loads(render(bent, "toml")) == without_nones(bent.as_dict())


def test_the_network_of_a_configuration_has_its_sizes(best: BestConfig) -> None:
    model = best.build_model()
    shapes = best.shapes
    assert shapes == demo_shapes(load_task("demo"))
    import torch

    past = torch.rand(2, shapes.input_size, shapes.n_targets + shapes.n_past + shapes.n_future)
    future = torch.rand(2, shapes.horizon, shapes.n_future)
    static = torch.zeros(2, shapes.n_static)
    assert model(past, future, static).shape == (
        2,
        shapes.horizon,
        shapes.n_targets,
        shapes.n_quantiles,
    )


def test_files_may_be_paths() -> None:
    campaign = REPOSITORY / "benchmarks" / "campaign"
    file, other = campaign / "etth-original.json.gz", campaign / "etth-rmsnorm.json.gz"
    assert load_best(storage=file, against=other) == load_best(
        storage=str(file), against=str(other)
    )
