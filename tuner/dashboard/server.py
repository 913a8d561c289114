"""optuna-dashboard as a server: read-only, on loopback, with the password nowhere on a command line."""

from __future__ import annotations

import contextlib
import errno
import io
import logging
import socket
import socketserver
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import optuna
from optuna.storages import BaseStorage

from tuner.dashboard.additions import Additions, read_ahead
from tuner.dashboard.files import StudyFiles
from tuner.dashboard.shown import ShownStorage
from tuner.errors import StorageError, TunerError
from tuner.storage import DatabaseUrl, open_database
from tuner.storage.retry import DATABASE_FAILURES

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

READING = frozenset({"GET", "HEAD"})


def read_only(application: WSGIApplication) -> WSGIApplication:
    """Refuse everything but reading.

    optuna-dashboard has no authentication: who reaches a writable one can finish a running trial with forged values.
    """

    def guarded(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] in READING:
            return _without_tracebacks(application, environ, start_response)
        start_response(
            "405 Method Not Allowed", [("Content-Type", "text/plain; charset=utf-8"), ("Allow", "GET, HEAD")]
        )
        return [b"this dashboard is read-only\n"]

    return guarded


def _without_tracebacks(
    application: WSGIApplication, environ: WSGIEnvironment, start_response: StartResponse
) -> Iterable[bytes]:
    """The application's answer; when it fails (the database went away), the last line of what it has to say."""
    said = io.StringIO()
    answer = application(environ | {"wsgi.errors": said}, start_response)
    if lines := said.getvalue().strip().splitlines():
        _complain(f"{environ.get('PATH_INFO', '')}: {lines[-1].strip()}")
    return answer


def _complain(message: str) -> None:
    print(f"tuner: dashboard: {message}", file=sys.stderr)  # noqa: T201 - the terminal of who started it


class _OneLine(logging.Handler):
    """What optuna-dashboard logs of a request that failed, without its stack."""

    def emit(self, record: logging.LogRecord) -> None:
        first = record.getMessage().partition("\n")[0].removeprefix("Exception: ")
        # Optuna says this of every SQL error, of reading too.
        sql_error = first.startswith("An exception is raised during the commit")
        _complain("the database cannot be read right now" if sql_error else first)


class _Server(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that hung up is no error; anything else is one line."""
        del request, client_address
        error = sys.exception()
        if error is not None and not isinstance(error, ConnectionError):
            _complain(f"{type(error).__name__}: {error}")


class _ServerOnIPv6(_Server):
    address_family = socket.AF_INET6


class _QuietHandler(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the base class's
        """A page that refreshes itself would fill the terminal."""


def make_dashboard(address: DatabaseUrl, *, host: str, port: int) -> WSGIServer:
    """A server that shows the database at `address`; port 0 takes a free one.

    Raises:
        StorageError: the database cannot be opened, or holds no studies; or the port is taken.
    """
    database = open_database(address, create=False)
    storage = optuna.storages.get_storage(database.optuna)  # which reads a finished trial only once
    files = StudyFiles()
    additions = Additions(database, storage, files)
    with _without_scikit_learn():
        from optuna_dashboard import wsgi
    logger = logging.getLogger("optuna_dashboard")
    logger.handlers, logger.propagate = [_OneLine()], False
    application = read_only(wsgi(ShownStorage(storage, additions), artifact_store=files))
    try:
        server_class = _ServerOnIPv6 if ":" in host else _Server
        server = make_server(host, port, application, server_class=server_class, handler_class=_QuietHandler)
    except OSError as error:
        database.close()
        remedy = "choose another port with --port (0: any free one)"
        if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
            remedy = "--host takes an address of this machine, such as 127.0.0.1"
        raise StorageError(f"cannot listen on {host}:{port}: {error.strerror}; {remedy}") from None
    threading.Thread(target=_read_ahead, args=(additions, storage), name="read-ahead", daemon=True).start()
    return server


def _read_ahead(additions: Additions, storage: BaseStorage) -> None:
    """While the browser opens. What fails here fails again, and is said, when somebody asks for it."""
    with contextlib.suppress(*DATABASE_FAILURES, TunerError):
        read_ahead(additions, storage)


@contextlib.contextmanager
def _without_scikit_learn() -> Iterator[None]:
    """optuna-dashboard brings all of Optuna's importance evaluators, one of which brings scikit-learn; it uses another.

    That import is most of the time until the first page. Optuna takes scikit-learn's absence well.
    """
    if "sklearn" in sys.modules:
        yield
        return
    sys.modules["sklearn"] = None  # type: ignore[assignment]  # how Python is told that there is no such module
    try:
        yield
    finally:
        del sys.modules["sklearn"]


def serve(address: DatabaseUrl, *, host: str, port: int, announce: Callable[[str], None]) -> None:
    """Serve until interrupted; `announce` gets the one line that says where."""
    server = make_dashboard(address, host=host, port=port)
    shown = f"[{host}]" if ":" in host else host
    announce(f"dashboard of {address} at http://{shown}:{server.server_port}/ (read-only; Ctrl-C ends it)")
    if host not in ("127.0.0.1", "localhost", "::1"):
        announce("it listens beyond this machine and has no authentication: everyone who reaches it can read it")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(0.5)
    finally:
        server.shutdown()
        server.server_close()
