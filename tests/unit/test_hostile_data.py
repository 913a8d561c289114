"""Whatever a stranger writes into an exported study: no form of it executes anything, no reader
breaks."""

from __future__ import annotations

import ast
import contextlib
import functools
import gzip
import json
import random
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.hostile_data import (
    SOME,
    beside_code_that_must_not_run,
    changed,
    check_refusal,
)
from tests.support.paths import REPOSITORY
from tuner.api import to_frame
from tuner.config import TrainingSettings
from tuner.errors import TunerError
from tuner.export import FORMATS, BestConfig, forms, load_best, render
from tuner.export.bundle import Bundle, Name, bundle
from tuner.export.forms import RENAMED, TAKEN
from tuner.export.load import config_of
from tuner.export.pick import Picked
from tuner.export.train import read_recipe
from tuner.report.figures.draw import draw
from tuner.study.archive import Archive, read_archive
from tuner.study.create import describe
from tuner.study.snapshot import snapshot
from tuner.verdict.compare.findings import compare

SCRIPTS = ("python", "neuralforecast", "darts", "network")
CHANGED = {
    "max_epochs": 3,
    "patience": 3,
    "min_delta": 0.5,
    "gradient_clip": 2.0,
    "learning_rate_decay": 0.5,
    "accumulate": 3,
    "checkpoint_activations": True,
    "validate_every": 3,
    "loss": {"term": "x.py:X", "weight": 1.0},
}
"""Settings of training that are not the usual ones."""
CSV = {
    "source": {"kind": "csv", "time_column": "ds", "id_column": "shop"},
    "name": "shops",
    "past_covariates": ["visitors"],
}


def _bundled(
    roots: Iterable[Name], *, instead: Mapping[str, str], first: str | None = None
) -> Bundle:
    return _made(tuple(roots), first, tuple(instead.items()))


@functools.cache
def _made(
    roots: tuple[Name, ...], first: str | None, instead: tuple[tuple[str, str], ...]
) -> Bundle:
    return bundle(roots, first=first, instead=dict(instead))


def text_of(config: BestConfig, form: str) -> str:
    return forms.network_of(config) if form == "network" else render(config, form)


@pytest.fixture(autouse=True)
def _beside_code_that_must_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    monkeypatch.setattr(forms, "bundle", _bundled)  # the same parts of this package again and again
    with beside_code_that_must_not_run(tmp_path):
        yield


@functools.cache
def benign(kind: str) -> str:
    """A small exported study as JSON: of a built-in network on generated data, or of a class on
    somebody's CSV."""
    packed = (REPOSITORY / "notebooks" / "data" / "original.json.gz").read_bytes()
    study = json.loads(gzip.decompress(packed))
    verified = {run["trial_number"] for run in study["verifications"]}
    assert verified < set(range(len(study["trials"])))
    study["curves"] = {
        key: {name: column[:4] for name, column in curve.items()}
        for key, curve in study["curves"].items()
    }
    if kind == "csv":
        study["definition"]["task"] |= CSV
        study["definition"]["architecture"] = {"model": "boom.py:Boom", "settings": {"depth": 2}}
    elif kind == "etth":
        study["definition"]["task"] |= {"source": {"kind": "etth"}, "name": "etth"}
        study["definition"]["architecture"] = {"model": "rmsnorm", "settings": {"n_blocks": 1}}
    return json.dumps(study)


KINDS = ("demo", "csv", "etth")


class _Mask(ast.NodeTransformer):
    """Replaces every literal, the largest first."""

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.expr):
            with contextlib.suppress(ValueError, TypeError):
                ast.literal_eval(node)
                return ast.Constant("literal")
        return self.generic_visit(node)


@functools.lru_cache(maxsize=4096)
def masked(statement: str) -> str:
    """The code of a statement: its syntax tree with each literal replaced by the same one."""
    return ast.dump(_Mask().visit(ast.parse(statement)))


def statements(script: str) -> list[str]:
    """The statements of a script's top level, as they stand."""
    lines = script.split("\n")
    return ["\n".join(lines[node.lineno - 1 : node.end_lineno]) for node in ast.parse(script).body]


def same_code(script: str, known: list[str]) -> bool:
    """Whether a script differs from the `known` statements in literals and comments alone."""
    found = statements(script)
    return len(found) == len(known) and all(
        ours == theirs or masked(ours) == masked(theirs)
        for ours, theirs in zip(found, known, strict=True)
    )


def shape(config: BestConfig) -> tuple[Any, ...]:
    """All that decides which code a script has: the kinds of its data and its network, and which
    settings there are."""
    model, settings = config.architecture.model, config.architecture.settings
    network = (
        model
        if ":" not in model
        else "file"
        if model.rpartition(":")[0].endswith(".py")
        else "module"
    )
    taken = tuple(key for key in settings if RENAMED.get(key, key) in TAKEN)
    windows = bool(config.provenance["training_windows"])
    usual = TrainingSettings()
    training = tuple(
        name for name in CHANGED if getattr(config.training, name) != getattr(usual, name)
    )
    source = config.definition.task["source"]["kind"]
    precision, built_in = str(config.training.precision), config.task in ("etth", "demo")
    how = (training, precision, built_in)
    return source, network, bool(settings), taken, windows, how


@functools.cache
def code_of(of: tuple[Any, ...], form: str) -> list[str]:
    """The statements of a benign study's script of that shape."""
    kind, network, settings, taken, windows, (training, precision, built_in) = of
    study = json.loads(benign("demo"))
    if kind != "demo":
        study["definition"]["task"] |= json.loads(benign(kind))["definition"]["task"]
    model = {"file": "x.py:X", "module": "x:X"}.get(network, network)
    given = dict.fromkeys(taken, 1) or ({"depth": 1} if settings else {})
    study["definition"]["architecture"] = {"model": model, "settings": given}
    study["definition"]["training"] |= {name: CHANGED[name] for name in training}
    study["definition"]["training"]["precision"] = precision
    study["definition"]["task"]["name"] = "demo" if built_in else "shops"
    if not windows:
        for trial in study["trials"]:
            trial["attributes"].pop("samples_per_s", None)
    Path("benign.json").write_text(json.dumps(study), encoding="utf-8")
    return statements(text_of(configs(read_archive(Path("benign.json")))[0], form))


def configs(archive: Archive) -> list[BestConfig]:
    study = snapshot(archive)
    return [
        config_of(study, Picked(record=record, pick="knee", chosen_on=None, why=""))
        for record in study.results.front[:1]
    ]


def check_exports(archive: Archive) -> int:
    """Every form of a study's configurations holds none but our code; how many were written."""
    written = 0
    for config in configs(archive):
        for form in (*FORMATS, "network"):
            try:
                text = text_of(config, form)
            except TunerError:
                continue
            written += 1
            assert all(
                c == "\n" or c.isprintable() or c in "\t\xa0" or ord(c) > 0x9F for c in text
            ), repr(text)
            text.encode()
            if form in SCRIPTS:
                assert same_code(text, code_of(shape(config), form))
            elif form == "json":
                json.loads(text)
            else:
                again = tomllib.loads(text)
                assert again["params"] == config.params
                Path("again.toml").write_text(text, encoding="utf-8")
                assert read_recipe(Path("again.toml")).hyperparameters == config.hyperparameters
    return written


def check_readers(archive: Archive, path: Path, *, figures: bool) -> None:
    """What reads studies either reads this one or says why not."""
    to_frame(archive.results)
    assert archive.results.hypervolume is None or archive.results.hypervolume >= 0
    describe(archive.definition)
    if figures:
        with contextlib.suppress(TunerError):
            json.dumps(compare([snapshot(archive)]).as_dict(), allow_nan=False)
        for figure in ("front", "hypervolume", "curves", "trade"):
            with contextlib.suppress(TunerError):
                draw(figure, [snapshot(archive)]).to_json()
        with contextlib.suppress(TunerError):
            load_best(None, storage=str(path))


@pytest.mark.parametrize("kind", KINDS)
def test_no_field_of_an_exported_study_becomes_code_or_breaks_a_reader(
    kind: str, tmp_path: Path
) -> None:
    path, seen = tmp_path / "x.json", Counter[str]()
    for seed in range(SOME // len(KINDS)):
        chance = random.Random(f"{kind} {seed}")
        document = changed(json.loads(benign(kind)), chance)
        text = json.dumps(document).encode()
        path.write_bytes(gzip.compress(text, 1) if seed % 2 else text)
        try:
            archive = read_archive(path)
        except TunerError as error:
            seen["refused"] += 1
            check_refusal(error)
            continue
        seen["read"] += 1
        try:
            check_readers(archive, path, figures=seed % 10 == 0)
            seen["written"] += check_exports(archive)
        except Exception as error:
            raise AssertionError(f"seed {seed} of {kind}") from error
    print(kind, dict(seen))
    assert seen["read"] > SOME // len(KINDS) / 100
    assert seen["refused"] > SOME // len(KINDS) / 100


def test_the_benign_studies_are_read_and_written(tmp_path: Path) -> None:
    for kind in KINDS:
        (tmp_path / "x.json").write_text(benign(kind), encoding="utf-8")
        archive = read_archive(tmp_path / "x.json")
        assert check_exports(archive) == len(FORMATS) + 1
        check_readers(archive, tmp_path / "x.json", figures=kind == "demo")


def test_random_bytes_are_no_study(tmp_path: Path) -> None:
    path = tmp_path / "x.json.gz"
    whole = gzip.compress(benign("demo").encode())
    for seed in range(min(SOME, 500)):
        chance = random.Random(seed)
        raw = bytearray(whole)
        for _ in range(chance.choice((1, 3, 20))):
            raw[chance.randrange(len(raw))] = chance.randrange(256)
        path.write_bytes(raw if seed % 3 else raw[: chance.randrange(len(raw))])
        with contextlib.suppress(TunerError):
            read_archive(path)
