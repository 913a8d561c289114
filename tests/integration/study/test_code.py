"""A class of the user's own on hosts that do not have its file."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
from pathlib import Path

import pytest
from sqlalchemy import update

from tests.support.databases import SQLITE_ALONE
from tests.support.forked_cli import run
from tests.support.present import present
from tests.support.small_study import STUDY_TOML, TASK, write_files, write_paced
from tuner.config import LossTerm, TrainingSettings
from tuner.data.prepare import prepare
from tuner.data.task import load_task
from tuner.errors import UsageError
from tuner.files.environment import PrivateFolderError
from tuner.files.toml_file import read_toml, validate
from tuner.spec.definition import StudyDefinition
from tuner.spec.program import NamedFiles
from tuner.spec.study_file import StudyFile, load_study_file
from tuner.storage.database import Database, open_database
from tuner.storage.schema import sources
from tuner.storage.url import parse_url
from tuner.study.archive import archive_of, read_archive, write_archive
from tuner.study.code import code_of, with_code
from tuner.study.create import BESIDE
from tuner.study.open import OpenStudy, create_or_resume
from tuner.study.own_file import keep_code
from tuner.study.transfer import restore

CODE = "import math\r\n# ümlaut\nclass Net:\n\tpass\n"
SHA = hashlib.sha256(CODE.encode()).hexdigest()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This host's: nothing has run here yet."""
    return new_host(tmp_path, monkeypatch)


def new_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "another-cache"
    shutil.rmtree(folder, ignore_errors=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder


@pytest.fixture
def net(tmp_path: Path) -> Path:
    path = tmp_path / "net.py"
    path.write_bytes(CODE.encode())
    return path


def definition_of(net: Path) -> StudyDefinition:
    described = net.with_name("small.toml")
    described.write_text(STUDY_TOML.replace('"rmsnorm"', f'"{net}:Net"'))
    file = validate(read_toml(described), StudyFile)
    return StudyDefinition.of(file, task=TASK, data_hash="0" * 64, training=TrainingSettings())


@pytest.fixture
def study(database: Database, net: Path) -> OpenStudy:
    """Made here, where the file is."""
    definition = definition_of(net)
    opened = create_or_resume(database, "own", definition, trials=1)
    assert keep_code(database, definition) == ()
    return opened


@SQLITE_ALONE
def test_where_the_file_is_the_file_is_used(study: OpenStudy) -> None:
    assert with_code(study) is study


@SQLITE_ALONE
def test_another_file_at_its_path_is_refused_with_both_hashes(study: OpenStudy, net: Path) -> None:
    net.write_text("class Net: ...")
    here = hashlib.sha256(net.read_bytes()).hexdigest()
    with pytest.raises(UsageError) as met:
        with_code(study, trust=True, trusted=[SHA])
    assert str(net) in str(met.value)
    assert f"sha256 {here[:12]} here, {SHA[:12]} there" in str(met.value)


@SQLITE_ALONE
def test_a_file_of_which_nothing_is_said_is_not_run_unasked(study: OpenStudy) -> None:
    """As somebody may store it who wants another file of this host to run."""
    blind = dataclasses.replace(study.definition, model_source=None)
    strange = dataclasses.replace(study, definition=blind)
    with pytest.raises(UsageError, match="does not say what that file held when it was made; read"):
        with_code(strange)
    assert with_code(strange, trust=True) is strange


@SQLITE_ALONE
def test_code_that_only_the_database_has_runs_by_its_hash_alone(
    study: OpenStudy, net: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net.unlink()
    cache = new_host(tmp_path, monkeypatch)
    for trusted in ([], ["0" * 64]):
        with pytest.raises(
            UsageError, match=rf"'tuner study code own', then say --trust-code {SHA}"
        ):
            with_code(study, trusted=trusted)
    assert not list(cache.rglob("net.py"))
    found = with_code(study, trusted=[SHA])
    copy = Path(found.definition.architecture.model.rpartition(":")[0])
    assert copy == cache / "tuner" / "code" / SHA / "net.py"
    assert copy.read_bytes() == CODE.encode()
    assert copy.parent.stat().st_mode & 0o777 == 0o700
    assert found.definition.identity() == study.definition.identity()
    # From now on this user has it here.
    assert with_code(study).definition == found.definition
    copy.write_text("damaged")
    with pytest.raises(UsageError, match="only the database has"):
        with_code(study)


@SQLITE_ALONE
def test_who_launched_it_needs_nobodys_word_when_the_file_has_moved(
    study: OpenStudy, net: Path
) -> None:
    net.unlink()
    assert SHA in with_code(study).definition.architecture.model


def test_a_text_that_was_changed_in_the_database_is_none(
    study: OpenStudy, net: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net.unlink()
    new_host(tmp_path, monkeypatch)
    with study.database.engine.begin() as connection:
        connection.execute(update(sources).values(content="import os"))
    with pytest.raises(UsageError, match="neither on this host nor in the database"):
        with_code(study, trust=True)


@SQLITE_ALONE
def test_a_copy_that_others_could_change_is_not_run(
    study: OpenStudy, net: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net.unlink()
    code = new_host(tmp_path, monkeypatch) / "tuner" / "code"
    code.mkdir(parents=True)
    code.chmod(0o777)
    with pytest.raises(PrivateFolderError, match="rm -r"):
        with_code(study, trust=True)


@SQLITE_ALONE
def test_a_name_that_leads_elsewhere_is_refused(study: OpenStudy) -> None:
    architecture = study.definition.architecture.but(model="/nowhere/-rf\n.py:Net")
    definition = dataclasses.replace(study.definition, architecture=architecture)
    with pytest.raises(UsageError, match="a name that is not carried"):
        with_code(dataclasses.replace(study, definition=definition), trust=True)


@SQLITE_ALONE
def test_what_it_imports_from_beside_it_is_said_once(database: Database, net: Path) -> None:
    net.write_text("import helper\nfrom helper.x import y\nimport torch\nclass Net: ...\n")
    (net.parent / "helper.py").touch()
    (line,) = keep_code(database, definition_of(net))
    assert line is not None
    assert line.startswith("net.py imports helper beside it, which other hosts do not get")


@SQLITE_ALONE
def test_a_file_of_something_else_than_text_is_not_carried(database: Database, net: Path) -> None:
    net.write_bytes("# -*- coding: latin-1 -*-\n# ü\nclass Net: ...".encode("latin-1"))
    assert "other hosts need it at its path" in keep_code(database, definition_of(net))[0]


@SQLITE_ALONE
def test_an_exported_study_takes_it_along(
    study: OpenStudy, net: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "own.json.gz"
    write_archive(archive_of(study), path)
    with study.database.engine.begin() as connection:
        connection.execute(sources.delete())
    made = restore(study.database, read_archive(path), "again", origin=str(path))
    net.unlink()
    assert code_of(made)[0][1] == CODE.encode()
    new_host(tmp_path, monkeypatch)
    with pytest.raises(UsageError, match="--trust-code"):
        with_code(made)
    forged = dataclasses.replace(read_archive(path), code="import os")
    write_archive(forged, path)
    with pytest.raises(UsageError, match="the code in it is not what its definition names"):
        read_archive(path)


def test_a_worker_on_a_host_without_the_file_trains_once_it_was_told_the_hash(
    tmp_path: Path,
) -> None:
    study, file = write_files(tmp_path)
    write_paced(tmp_path)
    task = load_task(str(file))
    definition = StudyDefinition.of(
        load_study_file(str(study)),
        task=task.definition(),
        data_hash=prepare(task).data_hash,
        training=TrainingSettings(max_epochs=1),
    )
    database = open_database(parse_url(f"sqlite:///{tmp_path}/storage/tuner.db"))
    opened = create_or_resume(database, "own", definition, trials=1)
    assert keep_code(database, definition) == ()
    code = (tmp_path / "paced.py").read_bytes()
    sha = hashlib.sha256(code).hexdigest()
    (tmp_path / "paced.py").unlink()
    worker = ("worker", "--study", "own", "--task", "tiny.toml", "--cpu")
    elsewhere = {"XDG_CACHE_HOME": str(tmp_path / "a-third"), "TMPDIR": str(tmp_path)}
    refused = run(*worker, folder=tmp_path, environment=elsewhere)
    assert refused.code == 2
    assert f"then say --trust-code {sha} to 'tuner worker'" in refused.error
    assert opened.ledger.counts().finished == 0
    printed = run("study", "code", "own", folder=tmp_path).out
    assert printed.startswith(f"# sha256 {sha}\n# {tmp_path}/paced.py\n")
    assert "class Paced(TSMixer):" in printed
    document = run("study", "code", "own", "--json", folder=tmp_path).json()
    assert document["source"] == code.decode()
    assert run(*worker, "--trust-code", "abc", folder=tmp_path).code == 2
    done = run(*worker, "--trust-code", sha, folder=tmp_path, environment=elsewhere)
    assert done.code == 0, done.err
    assert opened.ledger.counts().finished == 1
    database.close()


@SQLITE_ALONE
def test_a_term_travels_as_a_class_does_and_by_its_own_hash(
    database: Database, net: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    term = tmp_path / "physics.py"
    term.write_text("def mass(*given): ...\n")
    sha = hashlib.sha256(term.read_bytes()).hexdigest()
    definition = definition_of(net)
    loss = LossTerm(term=f"{term}:mass", weight=0.5)
    definition = dataclasses.replace(
        definition,
        training=definition.training.but(loss=loss),
        loss_source=sha,
    )
    made = create_or_resume(database, "term", definition, trials=1)
    assert keep_code(database, definition) == ()
    assert [content for _, content in code_of(made)] == [CODE.encode(), term.read_bytes()]
    archive = tmp_path / "study.json"
    write_archive(archive_of(made), archive)
    term.unlink()
    new_host(tmp_path, monkeypatch)
    with pytest.raises(UsageError, match=f"physics.py, sha256 {sha}"):
        with_code(made, trusted=[SHA])
    found = with_code(made, trusted=[SHA, sha])
    assert found.definition.architecture == definition.architecture, "its file is still here"
    kept = present(found.definition.training.loss).term
    assert Path(kept.rpartition(":")[0]).read_text() == "def mass(*given): ...\n"
    assert kept.endswith(":mass")
    assert found.definition.identity() == definition.identity()
    term.write_text("def mass(*given): return 0\n")
    with pytest.raises(UsageError, match=r"physics\.py on this host is not the file"):
        with_code(made, trust=True)
    assert read_archive(archive).loss_code == "def mass(*given): ...\n"
    damaged = json.loads(archive.read_text())
    damaged["loss_code"] = "import os"
    archive.write_text(json.dumps(damaged))
    with pytest.raises(UsageError, match="not what its definition names by hash"):
        read_archive(archive)


@SQLITE_ALONE
def test_whatever_is_stored_of_what_it_imports_is_no_traceback(
    study: OpenStudy, net: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net.unlink()
    new_host(tmp_path, monkeypatch)
    for stored in (5, {"net.py": 5}, {"net.py": {"__main__.py": "", "a b/c.py": "", "../x": ""}}):
        study.optuna.set_user_attr(BESIDE, stored)
        assert with_code(study, trust=True) is not study


@SQLITE_ALONE
def test_a_file_that_the_class_reads_is_refused_where_it_is_another_or_missing(
    study: OpenStudy, net: Path
) -> None:
    weights = net.with_name("weights.bin")
    weights.write_bytes(b"weights")
    files = NamedFiles.of([weights.name], net.parent)
    reads = dataclasses.replace(
        study, definition=dataclasses.replace(study.definition, files=files)
    )
    assert with_code(reads) is reads
    weights.write_bytes(b"other weights")
    with pytest.raises(UsageError, match=r"weights.bin is not the file that the study was made wi"):
        with_code(reads, trust=True)
    weights.unlink()
    with pytest.raises(UsageError, match=r"weights.bin is not on this host"):
        with_code(reads, trust=True)
