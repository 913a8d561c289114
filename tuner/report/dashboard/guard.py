"""What stands between the network and optuna-dashboard: who may ask, what may be asked, and what
every answer says.

optuna-dashboard has no authentication: who reaches a writable one can finish a running trial with
forged values.
"""

from __future__ import annotations

import gzip
import io
import ipaddress
import json
import re
import urllib.parse
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

from tuner.errors import TunerError, UsageError
from tuner.report.dashboard.downloads import StudyFiles
from tuner.report.dashboard.first_page import Pages
from tuner.storage.retry import DATABASE_FAILURES

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment


# Which names the dashboard answers to.


_NAME = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)(?:\.(?!-)[a-z0-9_-]{1,63}(?<!-))*", re.ASCII)
_HEADER = re.compile(r"(?P<name>\[[^\]]*\]|[^:\[\]]*)(?::[0-9]{0,5})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Hosts:
    """Loopback, whatever the port; the address listened on,
    or every address where that is all of them; `names`.
    """

    names: frozenset[str]
    every_address: bool

    @classmethod
    def of(cls, listening: str, allowed: Sequence[str]) -> Hosts:
        """The names of a dashboard that listens on `listening`, with those of `--allow-host`.

        Raises:
            UsageError: one of `allowed` is no name.
        """
        names = {_plain_name(listening), *(_checked(name) for name in allowed)}
        address = _address(_plain_name(listening))
        return cls(
            frozenset(names), listening == "" or (address is not None and address.is_unspecified)
        )

    def answers(self, header: str) -> bool:
        """Whether a request with this `Host` is one for us."""
        match = _HEADER.fullmatch(header)
        if match is None:
            return False
        name = _plain_name(match["name"])
        address = _address(name)
        if address is not None:  # nobody else's: a name is what can be pointed elsewhere
            return self.every_address or _is_loopback(address) or name in self.names
        return name == "localhost" or (name != "" and name in self.names)


def _plain_name(name: str) -> str:
    name = name.lower().removesuffix(".")
    name = name[1:-1] if name.startswith("[") and name.endswith("]") else name
    address = _address(name)
    return name if address is None else str(address)


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


def _is_loopback(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def _checked(name: str) -> str:
    plain = _plain_name(name)
    if _address(plain) is None and not _NAME.fullmatch(plain):
        raise UsageError(
            f"--allow-host {name!r} is no name; it takes one without scheme and port, such as "
            "gpu7.example"
        )
    return plain


# optuna-dashboard's page without what a read-only dashboard cannot do.


_LABELS = ("rename study", "delete study", "delete artifact", "skip trial")
_ICONS = (
    "AddBox",
    "Delete",
    "DriveFileRenameOutline",
    "Edit",
    "EditNote",
    "Replay",
    "RestoreFromTrash",
    "Save",
    "Settings",
    "StopCircle",
    "Undo",
    "UploadFile",
)
"""Of buttons that write: create, delete, rename, edit a note, undo and configure a preference, fail
a trial, upload."""
_HIDDEN = (
    *(f'[aria-label="{label}"]' for label in _LABELS),
    *(f'button:has([data-testid="{icon}Icon"])' for icon in _ICONS),
    ".MuiCard-root:not(:has(.MuiCard-root)):has(input[type=file])",  # where a file is dropped
    "button[type=submit]",  # a trial's form
    "button.MuiButton-outlinedError",  # "worst" of trials that somebody compares by eye
)
_PREFERRED = '[aria-label="trial-button"]{pointer-events:none}'
"""A press on a trial says that it is better than the others."""
STYLE = "".join(f"{selector}{{display:none!important}}" for selector in _HIDDEN) + _PREFERRED
"""Each rule by itself: a browser that does not know
one of them drops all that it shares a rule with."""
_END = b"</head>"
_BACK = (
    '<a href="/" style="position:fixed;left:10px;bottom:8px;z-index:2000;padding:2px 9px;'
    "border-radius:9px;background:#757D87;color:#fff;font:13px system-ui;text-decoration:none"
    '">tuner: all studies</a>'
)
"""To the first page."""


def read_only_page(page: bytes) -> bytes:
    """The page with a style that hides what writes.
    Whatever is overlooked here is refused all the same.
    """
    before, end, after = page.partition(_END)
    page = before + f"<style>{STYLE}</style>".encode() + end + after if end else page
    return page.replace(b"</body>", f"{_BACK}</body>".encode())


READING = frozenset({"GET", "HEAD"})
LONGEST = 2**15
"""Characters of a path with its query: more than a list of 5,000 chosen trials has."""
LARGEST_ID = 2**31 - 1
"""Of a study in the database."""
_STUDY = re.compile(r"/(?:api/studies|csv|artifacts)/(?P<number>[^/]*)(?P<rest>/.*)?")
_FILE = re.compile(r"/artifacts/(?P<study>[0-9]+)/(?:[0-9]+/)?(?P<id>[0-9a-f-]{36})")
_NUMBER = re.compile(r"[0-9]{1,10}")
SHOWN = 80
"""Characters of what was asked for that an answer repeats."""
_TEXT = "text/plain; charset=utf-8"
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_POLICY = (
    "default-src 'self'; img-src 'self' data: blob:; style-src 'self' data: 'unsafe-inline'; "
    # plotly draws parallel coordinates with functions that it makes
    "script-src 'self' 'unsafe-eval'; "
    "object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_ALWAYS = {
    "Content-Security-Policy": _POLICY,
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


@dataclass(frozen=True, slots=True)
class _Answer:
    """What is said to a request, before it is passed on."""

    status: str
    headers: list[tuple[str, str]]
    body: Iterable[bytes]

    def instead(self, body: bytes, kind: str) -> _Answer:
        """The same with another body, of that kind."""
        self.close()
        own = (
            "content-type",
            "content-length",
            "content-encoding",
            "last-modified",
            "etag",
            "accept-ranges",
        )
        kept = [(name, value) for name, value in self.headers if name.lower() not in own]
        return _Answer(
            self.status, [*kept, ("Content-Type", kind), ("Content-Length", str(len(body)))], [body]
        )

    def is_of(self, kind: str) -> bool:
        return any(
            name.lower() == "content-type" and value.startswith(kind)
            for name, value in self.headers
        )

    def close(self) -> None:
        if callable(close := getattr(self.body, "close", None)):
            close()


@dataclass(frozen=True, slots=True)
class Guard:
    """A WSGI application around optuna-dashboard's.

    `has_study` says whether there is a study of that number; `announce` makes `files` know those of
    a study; `pages` has tuner's own pages.
    """

    application: WSGIApplication
    hosts: Hosts
    files: StudyFiles
    has_study: Callable[[int], bool]
    announce: Callable[[int], object]
    pages: Pages = lambda _path: None

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        answer = self._refused(environ) or _malformed(environ) or self._missing(environ)
        answer = answer or self._served(environ)
        # Where the page reads a reason.
        if answer.is_of(_TEXT) and environ.get("PATH_INFO", "").startswith("/api/"):
            reason = b"".join(answer.body).decode().strip()
            answer = answer.instead(json.dumps({"reason": reason}).encode(), "application/json")
        ours = {name.lower() for name in _ALWAYS}
        kept = []
        for name, value in answer.headers:
            if name.lower() not in ours and not name.lower().startswith("access-control-"):
                kept.append((name, value))
        start_response(answer.status, [*kept, *_ALWAYS.items()])
        if environ["REQUEST_METHOD"] == "HEAD":
            answer.close()
            return []
        return answer.body

    def _refused(self, environ: WSGIEnvironment) -> _Answer | None:
        host = environ.get("HTTP_HOST", "")
        if not self.hosts.answers(host):
            remedy = "start the dashboard with --allow-host NAME if that name is yours"
            what = f"the dashboard does not answer to the Host header {_shown(host)}; {remedy}"
            return _line(403, what)
        if environ["REQUEST_METHOD"] not in READING:
            return _line(405, "this dashboard is read-only", ("Allow", ", ".join(sorted(READING))))
        return None

    def _missing(self, environ: WSGIEnvironment) -> _Answer | None:
        match = _STUDY.fullmatch(_path(environ))
        if match is None:
            return None
        number = match["number"]
        known = _NUMBER.fullmatch(number) is not None and int(number) <= LARGEST_ID
        if known and self.has_study(int(number)):
            return None
        what = f"there is no study with the number {_shown(number)}; /dashboard lists them"
        return _line(404, what)

    def _served(self, environ: WSGIEnvironment) -> _Answer:
        path = _path(environ)
        if path.startswith("/artifacts/"):
            return self._file(path)
        if (own := self._own_page(path, environ)) is not None:
            return own
        answer = _asked(self.application, _plain(environ))
        status = int(answer.status[:3])
        if status >= HTTPStatus.BAD_REQUEST and not answer.is_of("application/json"):
            answer.close()
            # Outside of what it serves is nowhere.
            status = 404 if status == HTTPStatus.FORBIDDEN else status
            return _line(status, _WHY.get(status, "this cannot be answered"))
        if path.startswith("/dashboard") and answer.is_of("text/html"):
            return answer.instead(read_only_page(b"".join(answer.body)), "text/html; charset=utf-8")
        return answer

    def _own_page(self, path: str, environ: WSGIEnvironment) -> _Answer | None:
        """A page of tuner's; nothing where the browser has it as it is."""
        try:
            found = self.pages(path)
        except KeyError:
            return _line(404, _WHY[404])
        except UsageError as error:  # studies that cannot share a figure
            return _line(409, str(error))
        except (*DATABASE_FAILURES, TunerError):
            return _line(500, _WHY[500])
        if found is None:
            return None
        tag = f'"{found.tag}"'
        headers = [("ETag", tag), ("Cache-Control", "no-cache")]
        if environ.get("HTTP_IF_NONE_MATCH") == tag:
            return _Answer("304 Not Modified", headers, [])
        body = found.body
        if "gzip" in environ.get("HTTP_ACCEPT_ENCODING", ""):
            headers.append(("Content-Encoding", "gzip"))
            body = gzip.compress(body, 1)
        headers += [("Content-Type", found.kind), ("Content-Length", str(len(body)))]
        return _Answer("200 OK", headers, [body])

    def _file(self, path: str) -> _Answer:
        """One of our own, of the name and kind that we gave it,
        whatever somebody's study says there is.
        """
        match = _FILE.fullmatch(path)
        if match is not None:
            try:
                self.announce(int(match["study"]))
                file = self.files.find(match["id"])
                content = b"" if file is None else file.content().encode()
            # The database went away, or the study did.
            except (*DATABASE_FAILURES, KeyError, TunerError):
                return _line(500, _WHY[500])
            if file is not None:
                disposition = ("Content-Disposition", f'attachment; filename="{file.name}"')
                return _Answer("200 OK", [disposition], []).instead(content, file.kind)
        return _line(404, "there is no such file; the page of its study lists those that there are")


_WHY = {404: "there is no such page; / lists the studies", 500: "this cannot be read right now"}


def _line(status: int, text: str, *headers: tuple[str, str]) -> _Answer:
    answer = _Answer(f"{status} {HTTPStatus(status).phrase}", list(headers), [])
    return answer.instead(f"{text}\n".encode(), _TEXT)


def _shown(text: str) -> str:
    return ascii(text if len(text) <= SHOWN else f"{text[:SHOWN]}...")


def _path(environ: WSGIEnvironment) -> str:
    path: str = environ.get("PATH_INFO", "")
    return path.encode("latin-1").decode().rstrip("/")


def _malformed(environ: WSGIEnvironment) -> _Answer | None:
    query = environ.get("QUERY_STRING", "")
    if len(environ.get("PATH_INFO", "")) + len(query) > LONGEST:
        return _line(414, f"the address is longer than {LONGEST} characters")
    try:
        path = _path(environ)
        asked = urllib.parse.parse_qs(query, keep_blank_values=True, errors="strict")
    except ValueError:  # not UTF-8, or too many of them
        return _line(400, "the address is not UTF-8")
    if _CONTROL.search(path):
        return _line(400, "the address has control characters in it")
    for after in asked.get("after", ()):
        if not _NUMBER.fullmatch(after):
            return _line(400, f"after={_shown(after)} is no number of trials, which is 0 or more")
    return None


def _plain(environ: WSGIEnvironment) -> WSGIEnvironment:
    """The request without what optuna-dashboard needs not,
    or would stumble over: a body, most headers.
    """
    kept = {
        name: value for name, value in environ.items() if not name.startswith(("HTTP_", "CONTENT_"))
    }
    modified = environ.get("HTTP_IF_MODIFIED_SINCE", "")
    # A page that we change is never as it was.
    if modified.isascii() and _path(environ).startswith("/static/"):
        kept["HTTP_IF_MODIFIED_SINCE"] = modified
    encoding = "gzip" if "gzip" in environ.get("HTTP_ACCEPT_ENCODING", "") else "identity"
    host = {"HTTP_HOST": environ["HTTP_HOST"], "HTTP_ACCEPT_ENCODING": encoding}
    return {**kept, **host, "REQUEST_METHOD": "GET", "wsgi.input": io.BytesIO()}


def _asked(application: WSGIApplication, environ: WSGIEnvironment) -> _Answer:
    said: list[tuple[str, list[tuple[str, str]]]] = []

    def note(
        status: str, headers: list[tuple[str, str]], _error: object = None
    ) -> Callable[[bytes], object]:
        said.append((status, headers))
        return lambda _: None

    body = application(environ, note)
    return _Answer(*said[-1], body)
