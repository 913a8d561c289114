"""Writes the map of the code in docs/how-it-works.md: a line for each folder of tuner/.

    python docs/code_map.py            write it
    python docs/code_map.py --check    exit with 1 when the page is not what the code says

The order is that of the layers in pyproject.toml, what is imported first. The sentence is the first
of the docstring of the folder's package.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
PAGE = REPOSITORY / "docs" / "how-it-works.md"
TUNER = REPOSITORY / "tuner"


def folders() -> Iterator[Path]:
    """The folders of tuner/, from the bottom up.

    Raises:
        SystemExit: one of them is in no layer.
    """
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    (layers,) = (each["layers"] for each in contracts if each["type"] == "layers")
    there = {path.parent for path in TUNER.glob("*/__init__.py")}
    for layer in reversed(layers):
        for name in layer.split("|"):
            folder = TUNER / name.strip().removeprefix("tuner.")
            if folder in there:
                there.remove(folder)
                yield folder
    if there:
        names = ", ".join(sorted(folder.name for folder in there))
        raise SystemExit(f"in no layer of pyproject.toml: {names}; add it to [tool.importlinter]")


def sentence(folder: Path) -> str:
    """What the folder is, without the page that its docstring sends to.

    Raises:
        SystemExit: its package has no docstring.
    """
    source = (folder / "__init__.py").read_text(encoding="utf-8")
    docstring = ast.get_docstring(ast.parse(source))
    if not docstring:
        raise SystemExit(f"{folder.name}/__init__.py has no docstring; say what the folder is")
    paragraph = " ".join(docstring.partition("\n\n")[0].split())
    return re.sub(r" \(docs/[^)]*\)", "", re.split(r"(?<=\.)\s", paragraph)[0])


def with_map(text: str) -> str:
    """`text` with the map between its markers.

    Raises:
        SystemExit: it has no markers.
    """
    pattern = re.compile(r"(<!-- code map -->\n).*?(<!-- /code map -->)", flags=re.DOTALL)
    if not pattern.search(text):
        raise SystemExit("there is no <!-- code map --> with a <!-- /code map -->")
    rows = [f"| `{folder.name}/` | {sentence(folder)} |" for folder in folders()]
    table = "\n".join(["| folder | what it is |", "|---|---|", *rows, ""])
    return pattern.sub(lambda found: found[1] + table + found[2], text)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 instead")
    options = parser.parse_args(arguments)
    before = PAGE.read_text(encoding="utf-8")
    after = with_map(before)
    if after == before:
        return
    if options.check:
        sys.exit("docs/how-it-works.md is out of date; run python docs/code_map.py")
    PAGE.write_text(after, encoding="utf-8")


if __name__ == "__main__":
    main()
