"""Where the database is. What is secret is split off at once, so that no URL we pass on, store or
print holds it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, unquote

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from tuner.errors import UsageError
from tuner.storage.dialects import Dialect, named

DEFAULT_URL = "sqlite:///storage/tuner.db"
SHORT = 6
"""Letters: shorter secrets are found within words of other people."""

_AUTHORITY = re.compile(
    r"^(?P<scheme>[\w.+-]+)://(?P<user>[^:@/]*):(?P<password>.*)@(?P<rest>[^@/]*(?:/.*)?)$",
    re.DOTALL,
)
_SECRET = re.compile(
    r"pass(?!file)|pwd|secret|token|credential|private|scram_\w+_key|api_?key", re.IGNORECASE
)
"""In the name of a driver's parameter that holds a secret itself: `sslpassword`, `passwd`,
`ssl_key_password`, `oauth_client_secret`. A file with one (`passfile`, `sslkey`) has a name that
everybody may read."""
_EXPECTED = "expected sqlite:///FILE or postgresql://USER@HOST:PORT/DATABASE"


@dataclass(frozen=True, slots=True)
class DatabaseUrl:
    """A database URL without its secrets, and these apart:
    the password, and parameters by the driver's names.
    """

    url: URL
    password: str | None = field(repr=False)
    parameters: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)

    @property
    def dialect(self) -> str:
        return self.url.get_backend_name()

    @property
    def served(self) -> Dialect:
        """What is special about databases of this kind."""
        served = named(self.dialect)
        assert served is not None, "parse_url refuses others"
        return served

    @property
    def is_sqlite(self) -> bool:
        return self.dialect == "sqlite"

    @property
    def sqlite_path(self) -> Path:
        assert self.is_sqlite, "only SQLite databases are files"
        return Path(self.url.database or "")

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not be seen, the longest first: a shorter one may be a part of it."""
        found = {*self.parameters.values(), self.password or ""} - {""}
        return tuple(sorted(found, key=len, reverse=True))

    def masked(self, text: str) -> str:
        """What a driver said, with its secrets hidden. A short word is hidden as a word alone:
        within another one it would be spelt out by what is left of that.
        """
        for secret in self.secrets:
            pattern = re.escape(secret)
            if secret.isalnum() and len(secret) < SHORT:
                pattern = rf"(?<!\w){pattern}(?!\w)"
            text = re.sub(pattern, "***", text)
        return text

    @property
    def holds_secrets(self) -> bool:
        return bool(self.secrets)

    def __str__(self) -> str:
        return self.url.render_as_string(hide_password=True)

    def full(self) -> str:
        """The URL with its secrets, for a child's environment only: never for a command line, a log
        or a table.
        """
        url = self.url.set(password=self.password).update_query_dict(self.parameters)
        return url.render_as_string(hide_password=False)


def parse_url(text: str) -> DatabaseUrl:
    """Split `text` into address and password.

    The password may hold any character, also ones a URL would have to escape (`@`, `{`, `/`, `%`):
    what stands between the first `:` after the user and the last `@` is taken as it is when it is
    no valid escape sequence.

    Raises:
        UsageError: not a database URL, a dialect we do not serve, or an SQLite URL without a file.
    """
    if not text.isprintable():  # also bytes that are no UTF-8, which no database's name can hold
        raise UsageError(
            f"--storage: {_shown(text)} holds characters that are no text; {_EXPECTED}"
        )
    password: str | None = None
    match = _AUTHORITY.match(text)
    if match:
        password = _unescaped(match["password"])
        text = f"{match['scheme']}://{match['user']}@{match['rest']}"
    try:
        unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise UsageError(
            f"--storage: {_shown(text)} holds a % that escapes no text; a % in a name is written "
            "%25"
        ) from None
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise UsageError(f"--storage: {_shown(text)} is not a database URL; {_EXPECTED}") from None
    dialect, _, driver = url.drivername.partition("+")
    if (served := named(dialect)) is None:
        raise UsageError(f"--storage: no support for {dialect!r} databases; {_EXPECTED}")
    if not driver:
        url = url.set(drivername=served.driver)
    if dialect == "sqlite" and (not url.database or url.database == ":memory:"):
        raise UsageError(
            "--storage: workers are processes and need an SQLite file, e.g. "
            "sqlite:///storage/tuner.db"
        )
    if dialect == "sqlite" and "?" in text:
        raise UsageError(
            "--storage: an SQLite file takes no options, but there are: "
            f"{', '.join(sorted(url.query)) or '?'}; a ? in a file's name is written %3F"
        )
    url = _with_user_in_front(url)
    if url.password is not None:
        # `make_url` found one that the pattern above did not: keep it apart all the same.
        password, url = str(url.password), url.set(password=None)
    given = url.normalized_query.items()  # of one that is named more than once the last
    parameters = {name: values[-1] for name, values in given if _SECRET.search(name)}
    url = url.difference_update_query(parameters)
    password = parameters.pop("password", password)
    return DatabaseUrl(url, password, parameters)


def require_name(address: DatabaseUrl, environment: Mapping[str, str]) -> None:
    """Refuse a server without the name of a database on it: some have none to fall back on, others
    a wrong one.

    Raises:
        UsageError: neither the URL nor, for PostgreSQL, `environment` names one.
    """
    elsewhere = ("dbname", "service") if address.dialect == "postgresql" else ()
    set_to = ("PGDATABASE", "PGSERVICE") if address.dialect == "postgresql" else ()
    if (
        address.url.database
        or set(elsewhere) & set(address.url.query)
        or any(environment.get(n) for n in set_to)
    ):
        return
    named = address.url.set(database="DATABASE").difference_update_query(address.url.query)
    shown = named.set(drivername=address.dialect).render_as_string(hide_password=True)
    raise UsageError(f"--storage: {address} names no database; expected {shown}")


def absolute(address: DatabaseUrl) -> DatabaseUrl:
    """The same database, independent of the working folder (children may run in another one)."""
    if not address.is_sqlite:
        return address
    return DatabaseUrl(address.url.set(database=str(address.sqlite_path.absolute())), None)


def _with_user_in_front(url: URL) -> URL:
    """`?user=ann`, which not every driver takes, is the user of the address.

    Raises:
        UsageError: there are two.
    """
    if "user" not in url.query:
        return url
    users = {str(user) for user in url.normalized_query["user"]} | (
        {url.username} if url.username else set()
    )
    if len(users) > 1:
        raise UsageError(
            f"--storage: the URL names {len(users)} users: {', '.join(sorted(users))}; name one: "
            "USER@HOST"
        )
    return url.difference_update_query(["user"]).set(username=users.pop())


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
