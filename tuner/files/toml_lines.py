"""On which line of a TOML file each of its keys stands."""

from __future__ import annotations

import bisect
import re
import tomllib


def lines_of(text: str) -> dict[tuple[str, ...], int]:
    """The line, from 1 on, of each key,
    table and element of `text`, which `tomllib` has accepted.
    """
    return _Scanner(text).scan()


class _Scanner:
    """Walks TOML text that `tomllib` has accepted and notes the line on which each key starts."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._ends = [found.start() for found in re.finditer("\n", text)]
        self._at = 0
        self._lines: dict[tuple[str, ...], int] = {}
        self._tables: dict[tuple[str, ...], int] = {}

    def scan(self) -> dict[tuple[str, ...], int]:
        table: tuple[str, ...] = ()
        while self._skip_blank():
            if self._text.startswith("[", self._at):
                table = self._header()
            else:
                self._statement(table)
        return self._lines

    def _skip_blank(self) -> bool:
        found = re.compile(r"(?:\s|#[^\n]*)*").match(self._text, self._at)
        self._at = found.end() if found else self._at
        return self._at < len(self._text)

    def _note(self, path: tuple[str, ...], at: int) -> None:
        line = bisect.bisect_left(self._ends, at) + 1
        for length in range(len(path), 0, -1):
            if path[:length] in self._lines:  # and so are the tables around it
                break
            self._lines[path[:length]] = line

    def _header(self) -> tuple[str, ...]:
        start = self._at
        array = self._text.startswith("[[", start)
        self._at += 2 if array else 1
        names = self._key()
        path: tuple[str, ...] = ()
        for position, name in enumerate(names):
            path = (*path, name)
            is_last = position == len(names) - 1
            if array and is_last:
                self._tables[path] = self._tables.get(path, -1) + 1
            if path in self._tables:
                path = (*path, str(self._tables[path]))
        self._note(path, start)
        self._at = self._text.index("]", self._at) + (2 if array else 1)
        return path

    def _statement(self, table: tuple[str, ...]) -> None:
        start = self._at
        path = (*table, *self._key())
        self._note(path, start)
        self._at = self._text.index("=", self._at) + 1
        self._value(path)

    def _key(self) -> tuple[str, ...]:
        names: list[str] = []
        while True:
            self._skip_blank()
            if self._text[self._at] in "\"'":
                start = self._at
                self._skip_string()
                names.append(str(tomllib.loads(f"k = {self._text[start : self._at]}")["k"]))
            else:
                found = re.compile(r"[A-Za-z0-9_-]+").match(self._text, self._at)
                names.append(found.group() if found else "")
                self._at = found.end() if found else self._at + 1
            self._skip_blank()
            if not self._text.startswith(".", self._at):
                return tuple(names)
            self._at += 1

    def _skip_string(self) -> None:
        patterns = (r'"""(?:\\.|.)*?"{3,5}', r"'''.*?'{3,5}", r'"(?:\\.|[^"\\])*"', r"'[^']*'")
        for pattern in patterns:
            found = re.compile(pattern, re.DOTALL).match(self._text, self._at)
            if found:
                self._at = found.end()
                return

    def _value(self, path: tuple[str, ...]) -> None:
        self._skip_blank()
        first = self._text[self._at]
        if first in "\"'":
            self._skip_string()
        elif first in "[{":
            self._at += 1
            self._container(path, "]" if first == "[" else "}")
        else:
            found = re.compile(r"[^,\]}#\n]*").match(self._text, self._at)
            self._at = found.end() if found else self._at + 1

    def _container(self, path: tuple[str, ...], end: str) -> None:
        position = 0
        while self._skip_blank() and not self._text.startswith(end, self._at):
            if self._text.startswith(",", self._at):
                self._at += 1
            elif end == "}":
                self._statement(path)
            else:
                self._note((*path, str(position)), self._at)
                self._value((*path, str(position)))
                position += 1
        self._at += 1
