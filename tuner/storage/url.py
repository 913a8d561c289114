"""Where the database is. The password is split off at once, so that no URL we pass on, store or print holds it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, unquote

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from tuner.errors import UsageError

DEFAULT_URL = "sqlite:///storage/tuner.db"

_AUTHORITY = re.compile(
    r"^(?P<scheme>[\w.+-]+)://(?P<user>[^:@/]*):(?P<password>.*)@(?P<rest>[^@/]*(?:/.*)?)$", re.DOTALL
)
_DRIVERS = {
    "sqlite": "sqlite",
    "postgresql": "postgresql+psycopg",
    "postgres": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mariadb": "mysql+pymysql",
}
_EXPECTED = "expected sqlite:///FILE or postgresql://USER@HOST:PORT/DATABASE"


@dataclass(frozen=True, slots=True)
class DatabaseUrl:
    """A database URL without its password, and the password apart."""

    url: URL
    password: str | None = field(repr=False)

    @property
    def dialect(self) -> str:
        return self.url.get_backend_name()

    @property
    def is_sqlite(self) -> bool:
        return self.dialect == "sqlite"

    @property
    def sqlite_path(self) -> Path:
        assert self.is_sqlite, "only SQLite databases are files"
        return Path(self.url.database or "")

    def __str__(self) -> str:
        return self.url.render_as_string(hide_password=True)

    def full(self) -> str:
        """The URL with its password, for a child's environment only: never for a command line, a log or a table."""
        return self.url.set(password=self.password).render_as_string(hide_password=False)


def parse_url(text: str) -> DatabaseUrl:
    """Split `text` into address and password.

    The password may hold any character, also ones a URL would have to escape (`@`, `{`, `/`, `%`): what stands between
    the first `:` after the user and the last `@` is taken as it is when it is no valid escape sequence.

    Raises:
        UsageError: not a database URL, a dialect we do not serve, or an SQLite URL without a file.
    """
    if not text.isprintable():  # also bytes that are no UTF-8, which no database's name can hold
        raise UsageError(f"--storage: {_shown(text)} holds characters that are no text; {_EXPECTED}")
    password: str | None = None
    match = _AUTHORITY.match(text)
    if match:
        password = _unescaped(match["password"])
        text = f"{match['scheme']}://{match['user']}@{match['rest']}"
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise UsageError(f"--storage: {_shown(text)} is not a database URL; {_EXPECTED}") from None
    dialect, _, driver = url.drivername.partition("+")
    if dialect not in _DRIVERS:
        raise UsageError(f"--storage: no support for {dialect!r} databases; {_EXPECTED}")
    if not driver:
        url = url.set(drivername=_DRIVERS[dialect])
    if dialect == "sqlite" and (not url.database or url.database == ":memory:"):
        raise UsageError("--storage: workers are processes and need an SQLite file, e.g. sqlite:///storage/tuner.db")
    if dialect == "sqlite" and url.query:
        raise UsageError(f"--storage: an SQLite file takes no options, but there are: {', '.join(sorted(url.query))}")
    if url.password is not None:
        # `make_url` found one that the pattern above did not: keep it apart all the same.
        password, url = str(url.password), url.set(password=None)
    if "password" in url.query:
        password = str(url.query["password"])
        url = url.difference_update_query(["password"])
    return DatabaseUrl(url, password)


def absolute(address: DatabaseUrl) -> DatabaseUrl:
    """The same database, independent of the working folder (children may run in another one)."""
    if not address.is_sqlite:
        return address
    return DatabaseUrl(address.url.set(database=str(address.sqlite_path.absolute())), None)


def _unescaped(password: str) -> str:
    try:
        return unquote(password, errors="strict")
    except UnicodeDecodeError:  # a bare % that looks like an escape: no URL would have written this
        return password


def _shown(text: str) -> str:
    """The text without anything that might be a password."""
    scheme, found, _ = text.partition("://")
    if found:
        return repr(f"{quote(scheme)}://…")
    return "what was given" if {"@", ":"} & set(text) else repr(text)
