"""Why a database cannot be opened, in one line for a person."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError, NoSuchModuleError, SQLAlchemyError

from tuner.errors import StorageError
from tuner.storage.remedies import remedy_where_refused
from tuner.storage.url import DatabaseUrl


@contextmanager
def in_one_line(address: DatabaseUrl) -> Iterator[None]:
    """Raises StorageError where the database at `address` cannot be opened meanwhile."""
    try:
        yield
    except DBAPIError as error:
        raise StorageError(_sentence(address, error)) from None
    except ModuleNotFoundError as error:
        raise StorageError(
            f"cannot open the database {address}: its driver is not installed; run: pip install "
            f"{error.name}"
        ) from None
    except UnicodeDecodeError:  # what SQLite says of a damaged file quotes it
        raise StorageError(
            f"cannot open the database {address}: it is damaged; check that the file is an SQLite "
            "database, or restore a backup"
        ) from None
    except (TypeError, ValueError) as error:
        if not address.url.query:
            raise
        # Drivers take the URL's options as arguments of a function.
        raise StorageError(
            f"cannot open the database {address}: {_first_line(error)}; check the options after "
            "the '?'"
        ) from None
    except NoSuchModuleError:
        raise StorageError(
            f"cannot open the database {address}: there is no such driver; name none, as in "
            "postgresql://USER@HOST/DATABASE"
        ) from None
    except (SQLAlchemyError, ImportError, RuntimeError) as error:
        raise StorageError(
            f"cannot open the database {address}: {_cause(address, error)}"
        ) from None


def _sentence(address: DatabaseUrl, error: DBAPIError) -> str:
    """One line for a person: what failed, where, and what to check. Never the password."""
    cause = _cause(address, error.orig or error)
    if "invalid connection option" in cause or "invalid port number" in cause:
        remedy = "correct the URL"
    elif (refused := remedy_where_refused(cause)) is not None:
        remedy = refused
    elif "too many c" in cause or "connection slots" in cause:
        remedy = (
            "let it serve more (max_connections: one for each worker, two for each launch; "
            "docs/databases.md), or stop some workers"
        )
    elif "password" in cause or "authentication" in cause.lower():
        remedy = "check the user and the password (TUNER_STORAGE, or a PGPASSFILE)"
    elif "does not exist" in cause:
        remedy = "create the database first (createdb), or correct the name"
    elif address.is_sqlite:
        remedy = "check that the file is an SQLite database in a writable folder with free space"
    else:
        remedy = "check that the server runs and that host and port are right"
    return f"cannot open the database {address}: {cause}; {remedy}"


def _cause(address: DatabaseUrl, error: BaseException) -> str:
    return address.masked(_first_line(error))


def _first_line(error: BaseException) -> str:
    said = getattr(getattr(error, "diag", None), "message_primary", None)
    if said:  # PostgreSQL's own sentence, without the statement and a pointer into it
        return str(said)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # libpq prefixes each attempt with the address; the last such line names the cause.
    causes = [line for line in lines if "FATAL" in line or "refused" in line or "translate" in line]
    return (causes or lines or [type(error).__name__])[-1].rstrip(".")
