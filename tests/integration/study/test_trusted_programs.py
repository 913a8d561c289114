"""The command line of a program, on hosts that know it from a shared database alone: whoever may
write there may have written it, so it runs once somebody here has said so."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.cli_processes import Bench
from tests.support.databases import SQLITE_ALONE
from tests.support.programs import program_definition, write_program
from tuner.data.prepare import prepare
from tuner.data.task import load_task
from tuner.errors import UsageError
from tuner.spec.policy import SearchPolicy
from tuner.storage.database import Database, open_database
from tuner.storage.url import parse_url
from tuner.study.archive import archive_of, write_archive
from tuner.study.code import code_of, with_code
from tuner.study.open import OpenStudy, create_or_resume, open_study
from tuner.study.own_file import OwnProgram, keep_code

QUICK = "say(started=True); time.sleep(.02); epoch(1, .5); say(final={'test_mql': 1})"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This user's: nothing was launched or trusted here yet."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder


def of_a_stranger(database: Database, folder: Path, *words: str, files: str = "") -> OpenStudy:
    """A study that somebody else put into the database, with a command of these words."""
    made = program_definition(write_program(folder, QUICK, process=files))
    assert made.program is not None
    program = made.program.model_copy(update={"command": words or made.program.command})
    definition = dataclasses.replace(made, program=program, model_source=program.digest())
    opened = create_or_resume(database, "theirs", definition, trials=1)
    opened.set_policy(SearchPolicy(sampler="random", reruns=0))
    return opened


def hash_of(opened: OpenStudy) -> str:
    own = OwnProgram.of(opened.definition)
    assert own is not None
    return own.sha256


@SQLITE_ALONE
def test_a_command_without_files_runs_only_when_somebody_trusts_it(
    database: Database, tmp_path: Path
) -> None:
    opened = of_a_stranger(database, tmp_path, "sh", "-c", "touch pwned")
    with pytest.raises(UsageError) as refused:
        with_code(opened)
    said = str(refused.value)
    assert "\n" not in said
    assert f"sh -c 'touch pwned' in {tmp_path}" in said
    assert f"'tuner study code theirs', then say --trust-code {hash_of(opened)}" in said
    assert with_code(opened, trusted=[hash_of(opened)]) is opened
    assert with_code(opened) is opened, "from now on this user trusts it here"


@SQLITE_ALONE
def test_files_that_are_as_they_were_do_not_vouch_for_the_command(
    database: Database, tmp_path: Path
) -> None:
    """`train.py` is this host's own, and the words around it are not."""
    opened = of_a_stranger(database, tmp_path, "sh", "-c", "touch pwned", "train.py")
    assert opened.definition.model_source is not None
    with pytest.raises(UsageError, match="--trust-code"):
        with_code(opened)


@SQLITE_ALONE
def test_a_command_in_another_folder_is_another_one(database: Database, tmp_path: Path) -> None:
    """`make` does what the folder's own file says."""
    opened = of_a_stranger(database, tmp_path / "a", "make")
    with_code(opened, trust=True)
    (tmp_path / "b").mkdir()
    assert opened.definition.program is not None
    moved = opened.definition.program.model_copy(update={"folder": str(tmp_path / "b")})
    definition = dataclasses.replace(opened.definition, program=moved)
    assert definition.identity() == opened.definition.identity()
    with pytest.raises(UsageError, match="--trust-code"):
        with_code(dataclasses.replace(opened, definition=definition))


@SQLITE_ALONE
def test_who_launches_a_study_file_trusts_it_here(database: Database, tmp_path: Path) -> None:
    definition = program_definition(write_program(tmp_path, QUICK))
    opened = create_or_resume(database, "mine", definition, trials=1)
    with pytest.raises(UsageError, match="--trust-code"):
        with_code(opened)
    assert keep_code(database, definition) == ()
    assert with_code(opened) is opened


@SQLITE_ALONE
def test_what_others_could_have_written_there_is_no_word(
    database: Database, tmp_path: Path, cache: Path
) -> None:
    opened = of_a_stranger(database, tmp_path, "true")
    with_code(opened, trust=True)
    (kept,) = cache.rglob("program.json")
    kept.write_text("{}")
    with pytest.raises(UsageError, match="--trust-code"):
        with_code(opened)


@SQLITE_ALONE
def test_a_user_without_a_place_for_caches_can_still_be_told_the_hash(
    database: Database, tmp_path: Path, cache: Path
) -> None:
    opened = of_a_stranger(database, tmp_path, "true")
    cache.write_text("no folder")
    assert with_code(opened, trusted=[hash_of(opened)]) is opened
    with pytest.raises(UsageError, match="--trust-code"):
        with_code(opened)


@SQLITE_ALONE
def test_what_it_prints_is_what_the_hash_is_of(database: Database, tmp_path: Path) -> None:
    opened = of_a_stranger(database, tmp_path)
    ((own, content),) = code_of(opened)
    assert own.sha256 == hash_of(opened)
    assert json.loads(content) == {
        "command": list(opened.definition.program.command),  # type: ignore[union-attr]
        "files_sha256": opened.definition.model_source,
        "folder": str(tmp_path),
    }


def test_a_worker_of_another_user_runs_it_once_it_was_told_the_hash(
    tmp_path: Path, cache: Path
) -> None:
    bench = Bench(tmp_path, f"sqlite:///{tmp_path}/storage/tuner.db")
    mine = {"XDG_CACHE_HOME": str(cache)}
    theirs = {"XDG_CACHE_HOME": str(tmp_path / "theirs")}
    made = program_definition(write_program(tmp_path / "program", QUICK))
    made = dataclasses.replace(made, data_hash=prepare(load_task("demo")).data_hash)
    with closing(open_database(parse_url(bench.url))) as database:
        opened = create_or_resume(database, "demo-program", made, trials=1)
        opened.set_policy(SearchPolicy(sampler="random", reruns=0))
        assert keep_code(database, made) == ()
    worker = ("worker", "--study", "demo-program", "--cpu")

    refused = bench.run(*worker, cores=1, **theirs)
    assert refused.code == 2
    printed = bench.run("study", "code", "demo-program").out
    (sha,) = re.findall(r"# sha256 ([0-9a-f]{64})", printed)
    assert '"train.py"' in printed
    assert f"say --trust-code {sha} to 'tuner worker'" in refused.error
    assert bench.run(*worker, "--trust-code", sha, cores=1, **theirs).code == 0
    bench.allow(2, "demo-program")
    assert bench.run(*worker, cores=1, **mine).code == 0, "its launch said so"
    bench.allow(3, "demo-program")
    shutil.rmtree(tmp_path / "theirs")
    kept_alive = bench.run(*worker, "--keep-alive", "--trust", cores=1, **theirs)
    assert kept_alive.code == 0, kept_alive.err
    with bench.database() as database:
        trials = open_study(database, "demo-program").optuna.get_trials(deepcopy=False)
    assert [trial.state.name for trial in trials] == ["COMPLETE"] * 3


def test_a_launch_does_not_run_its_program_in_a_folder_that_the_database_names(
    tmp_path: Path,
) -> None:
    """Where the program lies is no part of what a study is: somebody made the study before, with
    the same files in a folder of theirs, and one more."""
    bench = Bench(tmp_path, f"sqlite:///{tmp_path}/storage/tuner.db")
    write_program(tmp_path / "program", QUICK)
    launch = "launch --variant program/study.toml --task demo --cpu --trials 1 --sampler random"
    launch += " --workers 1"
    database = open_database(parse_url(bench.url))
    theirs = program_definition(write_program(tmp_path / "theirs", QUICK))
    planted = dataclasses.replace(theirs, data_hash=prepare(load_task("demo")).data_hash)
    create_or_resume(database, "demo-program", planted, trials=1)
    database.close()
    (tmp_path / "theirs" / "json.py").write_text("open('pwned', 'w')\nraise SystemExit(1)\n")
    refused = bench.run(*launch.split(), cores=1, XDG_CACHE_HOME=str(tmp_path / "mine"))
    assert refused.code == 2, refused.err
    assert f"train.py in {tmp_path}/theirs; read it with" in refused.error
    assert not (tmp_path / "theirs" / "pwned").exists()


@pytest.mark.parametrize("trust", [True, False])
def test_who_imports_it_with_trust_need_not_say_it_again(trust: bool, tmp_path: Path) -> None:
    bench = Bench(tmp_path, f"sqlite:///{tmp_path}/storage/tuner.db")
    mine = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    database = open_database(parse_url(bench.url))
    write_archive(archive_of(of_a_stranger(database, tmp_path / "program")), tmp_path / "x.json")
    database.close()
    words = ["study", "import", "x.json", "--name", "again", *(["--trust"] if trust else [])]
    assert bench.run(*words, cores=1, **mine).code == 0
    done = bench.run("worker", "--study", "again", "--cpu", cores=1, **mine)
    assert done.code == (0 if trust else 2), done.err
