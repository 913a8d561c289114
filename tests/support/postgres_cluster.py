"""A PostgreSQL cluster that the tests stand up themselves: passwords by scram-sha-256, nobody is
trusted."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg

from tests.support.postgres_binaries import find_binaries, server_owner
from tests.support.servers import ends_with_the_tests, free_port

USER = "tuner"
PASSWORD = "pa{ss}@wo/rd:100%!q7"
"""Every character that a URL, a format string or a shell could trip over."""

_PATIENCE_S = 120.0


class Cluster:
    """A running cluster on a free port of 127.0.0.1, in a time zone that is not the tests'."""

    def __init__(self, binaries: Path, folder: Path, owner: dict[str, Any]) -> None:
        self.port = 0
        self._binaries = binaries
        self._data = folder / "data"
        self._folder = folder
        self._owner = owner
        self._databases = 0
        self._empty: list[str] = []
        self._server: subprocess.Popen[bytes] | None = None
        self._initialise()
        self._start_somewhere()
        with self.connect() as connection:
            connection.execute(f"ALTER ROLE {USER} PASSWORD '{_kept_of(PASSWORD)}'")

    @property
    def binaries(self) -> Path:
        """The folder with PostgreSQL's programs."""
        return self._binaries

    def url(self, database: str, *, password: str | None = PASSWORD, user: str = USER) -> str:
        """The URL as people type it: the password as it is, nothing escaped."""
        secret = f":{password}" if password is not None else ""
        return f"postgresql://{user}{secret}@127.0.0.1:{self.port}/{database}"

    def escaped_url(self, database: str) -> str:
        return self.url(database, password=quote(PASSWORD, safe=""))

    def connect(self, database: str = "postgres") -> psycopg.Connection[Any]:
        return psycopg.connect(
            host="127.0.0.1",
            port=self.port,
            user=USER,
            password=PASSWORD,
            dbname=database,
            autocommit=True,
        )

    def psql(self, database: str, file: Path, **environment: str) -> None:
        """Run a file as the administrator does."""
        connection = {
            "PGHOST": "127.0.0.1",
            "PGPORT": str(self.port),
            "PGUSER": USER,
            "PGPASSWORD": PASSWORD,
        }
        done = subprocess.run(
            [
                self._binaries / "psql",
                "--no-psqlrc",
                "--set=ON_ERROR_STOP=1",
                "--dbname",
                database,
                "--file",
                file,
            ],
            env=self._environment() | connection | environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def create_database(self) -> str:
        """A fresh, empty database; its name."""
        if self._empty:
            return self._empty.pop()
        self._databases += 1
        name = f"test_{self._databases}"
        with self.connect() as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE template0")
        return name

    def copy_database(self, template: str) -> str:
        """A fresh database with all that is in `template`, to which nobody is connected; its
        name."""
        self._databases += 1
        name = f"test_{self._databases}"
        with self.connect() as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return name

    def empty_database(self, name: str) -> None:
        """Take a database back: emptied, and so as good as a fresh one (which costs far more time
        and disk)."""
        with self.connect(name) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            connection.execute("DROP SCHEMA public CASCADE")
            connection.execute("CREATE SCHEMA public")
        self._empty.append(name)

    def start(self) -> None:
        log = (self._folder / "log").open("ab")
        self._server = subprocess.Popen(
            [self._binaries / "postgres", "-D", self._data, "-p", str(self.port)],
            stdout=log,
            stderr=log,
            cwd=self._folder,
            env=self._environment(),
            preexec_fn=ends_with_the_tests(signal.SIGQUIT),  # noqa: PLW1509 - one system call, no locks
            **self._owner,
        )
        log.close()
        deadline = time.monotonic() + _PATIENCE_S
        while not self._answers():
            if self._server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL did not start:\n{self._log()}")
            time.sleep(0.05)

    def _start_somewhere(self) -> None:
        """On a port that is free now, unless somebody else takes it in the same moment: then on
        another."""
        while True:
            self.port = free_port()
            try:
                self.start()
            except RuntimeError:
                if "Address already in use" not in self._log():
                    raise
                (self._folder / "log").unlink()
            else:
                return

    def _answers(self) -> bool:
        """Whether this server does, and no other one at the same port."""
        try:
            with self.connect() as connection:
                return connection.execute("SHOW data_directory").fetchone() == (str(self._data),)
        except psycopg.OperationalError:
            return False

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop the server: SIGINT is PostgreSQL's fast shutdown, SIGQUIT its immediate one."""
        assert self._server is not None
        self._server.send_signal(how)
        self._server.wait(_PATIENCE_S)

    def listen(self, addresses: str, network: str) -> None:
        """Restart, listening on `addresses` and letting in who comes from `network` with the
        password."""
        with self.connect() as connection:
            connection.execute(f"ALTER SYSTEM SET listen_addresses = '{addresses}'")
        with (self._data / "pg_hba.conf").open("a", encoding="utf-8") as file:
            file.write(f"host all all {network} scram-sha-256\n")
        self.stop()
        self.start()

    def _initialise(self) -> None:
        password_file = self._folder / "password"
        password_file.write_text(PASSWORD + "\n", encoding="utf-8")
        password_file.chmod(0o644)  # the folder itself is its owner's alone
        command: list[str | Path] = [
            self._binaries / "initdb",
            "-D",
            self._data,
            "-U",
            USER,
            "-E",
            "UTF8",
            "--no-locale",
            "--no-sync",
        ]
        command += ["--auth=scram-sha-256", f"--pwfile={password_file}"]
        made = subprocess.run(
            command,
            check=False,
            cwd=self._folder,
            env=self._environment(),
            capture_output=True,
            text=True,
            **self._owner,
        )
        if made.returncode != 0:
            raise RuntimeError(f"initdb failed: {made.stdout}{made.stderr}")
        settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "fsync": "off",
            # It lies in memory, maybe, and nothing tears a page there.
            "full_page_writes": "off",
            "max_wal_size": "128MB",
            "shared_buffers": "32MB",
            "max_connections": 100,
            "timezone": "Asia/Kathmandu",
        }
        lines = "".join(f"{key} = '{value}'\n" for key, value in settings.items())
        (self._data / "postgresql.auto.conf").write_text(lines, encoding="utf-8")

    def _environment(self) -> dict[str, str]:
        return {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "HOME": str(self._folder)}

    def _log(self) -> str:
        return (self._folder / "log").read_text(errors="replace")[-3000:]


@contextmanager
def running_cluster() -> Iterator[Cluster]:
    """A cluster for as long as the context lasts. Fails, and says what was tried, where there is no
    PostgreSQL."""
    folder = Path(tempfile.mkdtemp(prefix="tuner-test-postgres-"))
    try:
        owner = server_owner()
        if owner:
            os.chown(folder, owner["user"], owner["group"])
        cluster = Cluster(find_binaries(folder, owner), folder, owner)
        try:
            yield cluster
        finally:
            cluster.stop(signal.SIGQUIT)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _kept_of(password: str) -> str:
    """What a server keeps of a password, hashed once: hashed 4,096 times, it is half of what
    connecting costs."""
    salt = secrets.token_bytes(16)
    hashed = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, 1)
    clients, servers = (
        hmac.digest(hashed, word, "sha256") for word in (b"Client Key", b"Server Key")
    )
    parts = salt, hashlib.sha256(clients).digest(), servers
    return "SCRAM-SHA-256$1:{}${}:{}".format(*(base64.b64encode(part).decode() for part in parts))
