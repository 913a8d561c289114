"""optuna-dashboard as a server: read-only, on loopback,
with the password nowhere on a command line.
"""

from __future__ import annotations

import contextlib
import errno
import io
import logging
import socket
import socketserver
import sys
import threading
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from optuna.storages import BaseStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from tuner.display.text import shown
from tuner.errors import StorageError, TunerError
from tuner.report.dashboard.additions import Additions, OwnStudies
from tuner.report.dashboard.downloads import StudyFiles
from tuner.report.dashboard.first_page import FirstPage
from tuner.report.dashboard.guard import Guard, Hosts
from tuner.storage.database import open_database
from tuner.storage.optuna.private import FrozenStudy, study_id_of
from tuner.storage.optuna.trials import FAILED
from tuner.storage.retry import DATABASE_FAILURES
from tuner.storage.url import DatabaseUrl
from tuner.study.open import OpenStudy

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment


# The storage as the dashboard sees it: Optuna's own, which nobody can write to, with what tuner
# adds to each study.


AddedAttributes = Callable[[int], Mapping[str, Any]]
"""What is added to the system attributes of the study with that number."""
_OURS = ("dashboard:", "artifacts:", "study:metric_names")


def _refused(*_given: object, **_named: object) -> NoReturn:
    raise StorageError("this dashboard is read-only")


_refuse: Any = _refused  # whatever a method of the base class takes


class ShownStorage(BaseStorage):
    """Reads `storage`, refuses every write, and adds `additions` to what each study says of itself.

    Of a study that `opened` knows, it shows the study's own trials, and none that another program
    made.
    """

    def __init__(
        self,
        storage: BaseStorage,
        additions: AddedAttributes,
        opened: Callable[[int], OpenStudy | None] = lambda _: None,
    ) -> None:
        self._storage = storage
        self._additions = additions
        self._opened = opened

    def get_all_studies(self) -> list[FrozenStudy]:
        studies = sorted(self._storage.get_all_studies(), key=study_id_of)
        return [self._extended(study) for study in studies]

    def _extended(self, study: FrozenStudy) -> FrozenStudy:
        number = study_id_of(study)
        return FrozenStudy(
            study_name=study.study_name,
            direction=None,
            directions=study.directions,
            user_attrs=study.user_attrs,
            system_attrs=_Extended(study.system_attrs, lambda: self._additions(number)),  # type: ignore[arg-type]
            study_id=number,
        )

    def get_study_system_attrs(self, study_id: int) -> dict[str, Any]:
        return self._storage.get_study_system_attrs(study_id) | dict(self._additions(study_id))

    # -- reading, passed on ------------------------------------------------------------------------

    def get_study_id_from_name(self, study_name: str) -> int:
        return self._storage.get_study_id_from_name(study_name)

    def get_study_name_from_id(self, study_id: int) -> str:
        return self._storage.get_study_name_from_id(study_id)

    def get_study_directions(self, study_id: int) -> list[StudyDirection]:
        return self._storage.get_study_directions(study_id)

    def get_study_user_attrs(self, study_id: int) -> dict[str, Any]:
        return self._storage.get_study_user_attrs(study_id)

    def get_trial(self, trial_id: int) -> FrozenTrial:
        return self._storage.get_trial(trial_id)

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        if (own := self._opened(study_id)) is not None:
            return own.optuna.get_trials(deepcopy=deepcopy, states=states)
        return self._storage.get_all_trials(study_id, deepcopy=deepcopy, states=states)

    def remove_session(self) -> None:
        self._storage.remove_session()

    # -- writing, refused --------------------------------------------------------------------------

    create_new_study = delete_study = create_new_trial = _refuse
    set_study_user_attr = set_study_system_attr = set_trial_user_attr = set_trial_system_attr = (
        _refuse
    )
    set_trial_param = set_trial_state_values = set_trial_intermediate_value = _refuse


class _Extended(Mapping[str, Any]):
    """Attributes with additions that are only made when
    somebody asks for one, not for a mere list of studies.
    """

    def __init__(
        self, stored: Mapping[str, Any], additions: Callable[[], Mapping[str, Any]]
    ) -> None:
        self._stored = stored
        self._additions = additions
        self._merged: dict[str, Any] | None = None

    def _all(self) -> dict[str, Any]:
        if self._merged is None:
            self._merged = {**self._stored, **self._additions()}
        return self._merged

    def __getitem__(self, key: str) -> Any:
        return self._all()[key] if key.startswith(_OURS) else self._stored[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def items(self) -> Any:
        return self._all().items()


def _without_tracebacks(application: WSGIApplication) -> WSGIApplication:
    """The application; when it fails (the database went away),
    the last line of what it has to say.
    """

    def answered(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        said = io.StringIO()
        answer = application(environ | {"wsgi.errors": said}, start_response)
        if lines := said.getvalue().strip().splitlines():
            _complain(f"{environ.get('PATH_INFO', '')!a}: {lines[-1].strip()}")
        return answer

    return answered


def _complain(message: str) -> None:
    print(f"tuner: dashboard: {shown(message)}", file=sys.stderr)  # noqa: T201 - the terminal of who started it


class _OneLine(logging.Handler):
    """What optuna-dashboard logs of a request that failed, without its stack."""

    def emit(self, record: logging.LogRecord) -> None:
        first = record.getMessage().partition("\n")[0].removeprefix("Exception: ")
        # Optuna says the one of every SQL error, of reading too, and our reading the other.
        sql_error = first.startswith(("An exception is raised during the commit", FAILED))
        _complain("the database cannot be read right now" if sql_error else first)


class _Server(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that hung up is no error; anything else is one line."""
        del request, client_address
        error = sys.exception()
        if error is not None and not isinstance(error, ConnectionError | TimeoutError):
            _complain(f"{type(error).__name__}: {error}")


class _ServerOnIPv6(_Server):
    address_family = socket.AF_INET6


class _QuietHandler(WSGIRequestHandler):
    timeout = 60.0  # of silence from a browser that asked and then takes nothing
    error_message_format = "%(message)s\n"  # what is no HTTP gets one line, too
    error_content_type = "text/plain; charset=utf-8"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the base class's
        """A page that refreshes itself would fill the terminal."""


def make_dashboard(
    address: DatabaseUrl, *, host: str, port: int, allowed: Sequence[str] = ()
) -> WSGIServer:
    """A server that shows the database at `address`; port 0 takes a free one.

    It answers to loopback names, to `host`, and to the names `allowed`.

    Raises:
        UsageError: one of `allowed` is no name.
        StorageError: the database cannot be opened, or holds no studies; or the port is taken.
    """
    hosts = Hosts.of(host, allowed)
    database = open_database(address, create=False)
    storage = database.optuna  # no cache before it: Optuna's goes by numbers, which SQLite reuses
    files = StudyFiles()
    additions = Additions(database, storage, files)
    shown = ShownStorage(storage, additions, additions.studies)
    with _without_scikit_learn():
        from optuna_dashboard import wsgi
    logger = logging.getLogger("optuna_dashboard")
    logger.handlers, logger.propagate = [_OneLine()], False
    inner = wsgi(shown, artifact_store=files)
    additions.studies.forget = inner._inmemory_cache.clear  # noqa: SLF001 - the same
    page = _without_tracebacks(inner)
    first_page = FirstPage(database, additions.studies)
    application = Guard(
        page,
        hosts,
        files,
        has_study=lambda number: _has_study(additions.studies, number),
        announce=additions,
        pages=first_page,
    )
    try:
        server_class = _ServerOnIPv6 if ":" in host else _Server
        server = make_server(
            host, port, application, server_class=server_class, handler_class=_QuietHandler
        )
    except OSError as error:
        database.close()
        remedy = "choose another port with --port (0: any free one)"
        if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
            remedy = "--host takes an address of this machine, such as 127.0.0.1"
        raise StorageError(f"cannot listen on {host}:{port}: {error.strerror}; {remedy}") from None
    threading.Thread(target=first_page.watch, name="first-page", daemon=True).start()
    return server


def _has_study(studies: OwnStudies, number: int) -> bool:
    """Whether there is one; a database that cannot be asked says so when it is read."""
    try:
        studies(number)
    except KeyError:
        return False
    except (*DATABASE_FAILURES, TunerError):
        return True
    return True


@contextlib.contextmanager
def _without_scikit_learn() -> Iterator[None]:
    """optuna-dashboard brings all of Optuna's importance evaluators, one of which brings
    scikit-learn; it uses another.

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


def serve(
    address: DatabaseUrl,
    *,
    host: str,
    port: int,
    allowed: Sequence[str],
    announce: Callable[[str], None],
) -> None:
    """Serve until interrupted; `announce` gets the one line that says where."""
    server = make_dashboard(address, host=host, port=port, allowed=allowed)
    shown = f"[{host}]" if ":" in host else host
    announce(
        f"dashboard of {address} at http://{shown}:{server.server_port}/ (read-only; Ctrl-C ends "
        "it)"
    )
    if host not in ("127.0.0.1", "localhost", "::1"):
        announce(
            "it listens beyond this machine and has no authentication: everyone who reaches it can "
            "read it"
        )
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(0.5)
    finally:
        server.shutdown()
        server.server_close()
