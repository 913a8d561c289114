"""What strangers write: documents with hostile texts, numbers and types in any of their fields,
from a seed; and what must not come of it.

`HOSTILE_CASES=10000` tries as many of each kind as were tried when this was written; the suite
tries a share.
"""

from __future__ import annotations

import contextlib
import copy
import json
import math
import os
import pathlib
import random
import sys
import unicodedata
from collections.abc import Iterator
from typing import Any

from tuner.errors import TunerError

Path = tuple[str | int, ...]

CASES = int(os.environ.get("HOSTILE_CASES", "0"))
SOME = CASES or 90
CODE = "__import__('pathlib').Path('boom').touch()"
BOOM = f"{CODE}\n\nclass Boom: ...\n"
TEXTS = (
    f"400); {CODE}; (0",
    f'"""\n{CODE}\n"""',
    f"'''\n{CODE}\n'''",
    f"x\n{CODE}\n#",
    f"x\r{CODE}\r#",
    f"x\x0c{CODE}",
    f"x\u2028{CODE}",
    f"\\\n{CODE}",
    f"{{{CODE}}}",
    f"%({CODE})s",
    f'"; {CODE}; "',
    f"'; {CODE}; '",
    f'" + {CODE} + "',
    f"n_blocks={CODE}, x",
    "\\",
    "\\'",
    '\\"',
    '"',
    "'",
    '"""',
    "{headline}",
    "{0}",
    "]]>",
    "\x1b]0;title\x07\x1b[2J",
    "\x9b31m",
    "\x00",
    "\x7f",
    "\u202eevil",
    "\ud800",
    "\U0001f600",
    "é" * 40,
    " ",
    "",
    "x" * 3000,
    "[link=http://example.org]x[/link]",
    "[/v2]",
    "../../boom",
    "$(touch boom)",
    "`touch boom`; touch boom",
    "nan",
    "inf",
    "1e999",
    "10",
    "boom.py:Boom",
    f"boom.py:{CODE}",
    "boom:Boom",
    "boom.py:class",
    "boom.py\n:Boom",
    "etth",
    "csv",
    "demo",
    "COMPLETE",
    "RUNNING",
    "h",
    "99999999999999999999h",
    "-1h",
    "2024-01-01T00:00:00",
    "2024-01-01T00:00:00+01:00",
    "9999-99-99",
    "test",
    "val",
)
NUMBERS = (
    0,
    1,
    -1,
    -5,
    2,
    7,
    10**30,
    -(10**30),
    2**31,
    2**53 + 1,
    2**63,
    2**63 - 1,
    0.0,
    -0.0,
    0.5,
    1e-320,
    1e308,
    -1e308,
)
STRANGE: tuple[Any, ...] = (
    float("nan"),
    float("inf"),
    float("-inf"),
    True,
    False,
    None,
    [],
    {},
    [[]],
    [{}],
    {"": {}},
)


def hostile_value(chance: random.Random) -> Any:  # noqa: PLR0911 - a list of kinds
    """A text, mostly; else a number, another type, or something nested."""
    kind = chance.random()
    if kind < 0.5:
        return chance.choice(TEXTS)
    if kind < 0.6:
        return "".join(
            chr(chance.choice((chance.randrange(128), chance.randrange(0x3000)))) for _ in range(12)
        )
    if kind < 0.8:
        return chance.choice(NUMBERS)
    if kind < 0.92:
        return copy.deepcopy(chance.choice(STRANGE))
    if kind < 0.96:
        return {chance.choice(TEXTS): hostile_value(chance) for _ in range(3)}
    if kind < 0.99:
        return [hostile_value(chance) for _ in range(3)]
    return json.loads("[" * 60 + "]" * 60)


def changed(document: Any, chance: random.Random) -> Any:
    """`document` with one to three of its fields made hostile: values, keys, or what is left out or
    doubled."""
    document = copy.deepcopy(document)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        paths = list(_paths(document))
        if not paths:
            break
        *around, last = chance.choice(paths)
        inner: Any = document
        for part in around:
            inner = inner[part]
        how = chance.random()
        if how < 0.84:
            inner[last] = hostile_value(chance)
        elif how < 0.9:
            del inner[last]
        elif isinstance(inner, dict):
            inner[chance.choice(TEXTS)] = inner.pop(last) if how < 0.96 else hostile_value(chance)
        else:
            inner.insert(0, copy.deepcopy(inner[last]))
    return document


def _paths(value: Any, before: Path = ()) -> Any:
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, inner in items:
        yield (*before, key)
        if before[:1] != ("curves",) or chance_of_a_curve(key):
            yield from _paths(inner, (*before, key))


def chance_of_a_curve(key: str | int) -> bool:
    """Of a curve's many points only the first two."""
    return not isinstance(key, int) or key < 2


def as_toml(value: Any) -> str:
    """A document as TOML text as well as that goes: what TOML lacks is written as JSON has it, or
    Python."""
    if isinstance(value, dict):
        return (
            "{ " + ", ".join(f"{as_toml(str(k))} = {as_toml(v)}" for k, v in value.items()) + " }"
        )
    if isinstance(value, list):
        return "[" + ", ".join(map(as_toml, value)) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


@contextlib.contextmanager
def beside_code_that_must_not_run(folder: pathlib.Path) -> Iterator[None]:
    (folder / "boom.py").write_text(BOOM, encoding="utf-8")
    with contextlib.chdir(folder):
        yield
        assert not (folder / "boom").exists()
        assert "boom" not in sys.modules


def check_refusal(error: TunerError) -> None:
    """One line, without anything that a terminal obeys."""
    obeyed = [
        c
        for c in str(error)
        if unicodedata.category(c) in {"Cc", "Cs", "Zl", "Zp"} or c in "\u202a\u202e"
    ]
    assert not obeyed, repr(str(error))
