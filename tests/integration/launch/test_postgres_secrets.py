"""The same launch on PostgreSQL, as a role that makes no tables: its password reaches the workers
and shows nowhere."""

from __future__ import annotations

import contextlib
import subprocess
import threading
from pathlib import Path
from urllib.parse import quote, quote_plus

import psutil
import pytest

from tests.support.cli_processes import Bench, finished
from tests.support.forked_cli import Done
from tests.support.postgres_cluster import PASSWORD, Cluster
from tests.support.postgres_roles import three_roles

USER = "tuner_worker"
FORMS = {
    PASSWORD,
    quote(PASSWORD, safe=""),
    quote_plus(PASSWORD),
    quote(PASSWORD),
    quote(PASSWORD, safe=" +"),
}
"""As it is, and as URLs write it."""


def assert_hidden(text: str, where: str) -> None:
    for form in FORMS:
        assert form not in text, f"the password stands in {where}"


EPOCHS = 20
WORKERS = 1


class Launched:
    """A study launched with the password in TUNER_STORAGE, watched while it ran."""

    def __init__(self, bench: Bench, cluster: Cluster, database: str) -> None:
        self.bench = bench
        self.cluster = cluster
        self.database = database
        self.command_lines: set[str] = set()
        self._slow = bench.slowed()
        process = bench.start_afresh(*bench.launch_arguments(1, workers=WORKERS, epochs=EPOCHS))
        over = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(process, over))
        watcher.start()
        self.first: Done = finished(process)
        over.set()
        watcher.join()

    def _watch(self, process: subprocess.Popen[str], over: threading.Event) -> None:
        """The launch and everything it started, and nobody else's: other tests run beside this
        one."""
        while not over.wait(0.1):
            with contextlib.suppress(psutil.Error):  # the launch has ended
                supervisor = psutil.Process(process.pid)
                for one in (supervisor, *supervisor.children(recursive=True)):
                    with contextlib.suppress(psutil.Error):  # a zombie has none
                        self.command_lines.add(" ".join(one.cmdline()))
            if len(self.of_workers()) >= WORKERS:  # trials were slow until they were seen
                self._slow.unlink(missing_ok=True)

    def of_workers(self) -> list[str]:
        return [line for line in self.command_lines if "--supervised-by" in line]


@pytest.fixture(scope="module")
def launched(postgres: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Launched:
    name = three_roles(
        postgres, tmp_path_factory.mktemp("secrets"), worker_password=PASSWORD
    ).database
    bench = Bench(tmp_path_factory.mktemp("postgres"), postgres.url(name, user=USER))
    empty = bench.run("status", "--json")
    assert (empty.code, empty.json()["studies"]) == (0, [])
    assert_hidden(empty.out + empty.err, "the status of a database without studies")
    return Launched(bench, postgres, name)


def test_the_launch_fills_the_study(launched: Launched) -> None:
    assert launched.first.code == 0, launched.first.err
    assert launched.bench.trials() == [(0, "COMPLETE")]


def test_a_password_in_the_environment_is_not_warned_about(launched: Launched) -> None:
    assert "password" not in launched.first.err


def test_the_password_is_in_nothing_that_was_printed_or_logged(launched: Launched) -> None:
    assert_hidden(launched.first.out + launched.first.err, "the output")
    logs = list(launched.bench.folder.rglob("*.log"))
    assert len(logs) == WORKERS
    assert "trial" in launched.bench.log_text()
    for path in launched.bench.folder.rglob("*"):
        if path.is_file():
            assert_hidden(path.read_text(errors="replace"), str(path))


def test_the_password_is_on_no_command_line(launched: Launched) -> None:
    assert len(launched.of_workers()) >= WORKERS  # they were seen
    for line in launched.command_lines:
        assert_hidden(line, f"the command line {line[:40]}…")


def test_the_password_is_in_no_table(launched: Launched) -> None:
    columns = """
        SELECT table_name, column_name FROM information_schema.columns
        WHERE table_schema = 'public'
        AND data_type IN ('text', 'character varying', 'character', 'json', 'jsonb')
    """
    with launched.cluster.connect(launched.database) as connection:
        found = connection.execute(columns).fetchall()
        assert ("tuner_studies", "definition") in found
        assert ("trial_user_attributes", "value_json") in found
        for table, column in found:
            for (text,) in connection.execute(f'SELECT "{column}" FROM "{table}"').fetchall():
                assert_hidden(text or "", f"{table}.{column}")


def test_the_status_hides_the_password(launched: Launched) -> None:
    for more in ((), ("--json",)):
        status = launched.bench.run("status", *more)
        assert status.code == 0
        assert_hidden(status.out + status.err, "the status")
    assert status.json()["storage"].startswith(f"postgresql+psycopg://{USER}@127.0.0.1")


def test_an_inline_password_works_and_warns_once(launched: Launched) -> None:
    cluster, name = launched.cluster, launched.database
    url = cluster.url(name, user=USER, password=quote(PASSWORD, safe=""))
    bench = launched.bench
    again = bench.run(
        *bench.launch_arguments(1, workers=WORKERS, epochs=EPOCHS),
        "--storage",
        url,
        TUNER_STORAGE=None,
    )
    assert again.code == 0, again.err
    assert "nothing to do" in again.err
    (warning,) = [line for line in again.lines if "password" in line]
    assert "TUNER_STORAGE" in warning
    assert "PGPASSFILE" in warning
    assert_hidden(again.out + again.err, "the output")


def test_a_passfile_serves_supervisor_and_workers(launched: Launched) -> None:
    """The last test of this file: it fills the shared study further."""
    cluster, name, bench = launched.cluster, launched.database, launched.bench
    passfile = bench.folder.parent / "passfile"
    escaped = PASSWORD.replace("\\", "\\\\").replace(":", "\\:")
    passfile.write_text(f"127.0.0.1:{cluster.port}:{name}:{USER}:{escaped}\n")
    passfile.chmod(0o600)
    url = cluster.url(name, user=USER, password=None)
    arguments = [*bench.launch_arguments(2, workers=WORKERS, epochs=EPOCHS), "--storage", url]
    more = bench.run(*arguments, TUNER_STORAGE=None, PGPASSFILE=str(passfile))
    assert more.code == 0, more.err
    assert "password" not in more.err
    assert [state for _, state in bench.trials()] == ["COMPLETE"] * 2


@pytest.mark.parametrize("command", ["launch", "status"])
def test_what_cannot_be_opened_is_one_line_and_nothing_written(
    postgres: Cluster, tmp_path: Path, command: str
) -> None:
    bench = Bench(tmp_path, postgres.url("postgres", password="Zq7@{wrong}/"))
    before = sorted(tmp_path.rglob("*"))
    refused = bench.launch(3, "--json") if command == "launch" else bench.run("status", "--json")
    assert refused.code == 1
    (line,) = refused.lines
    assert line.startswith("tuner: error: cannot open the database postgresql")
    assert "password authentication failed" in line
    assert refused.json()["error"] == {
        "message": line.removeprefix("tuner: error: "),
        "exit_code": 1,
    }
    assert "Zq7" not in refused.out + refused.err
    # The folder of device locks is looked at first: a launch that cannot have one says that.
    assert set(tmp_path.rglob("*")) - {tmp_path / "tmp" / "tuner-device-locks"} == set(before)
