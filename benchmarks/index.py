"""Make benchmarks/README.md from the pages, one line a question:

    python benchmarks/index.py

A page is a README.md of a folder here, or a page beside one. Its first line is the question, as its title; its first paragraph
is the answer in bold. Reports that a command writes beside its page are no pages.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
INDEX = HERE / "README.md"
REPORTS = (HERE / "campaign" / "report.md", HERE / "neuralforecast_classes" / "models.md")
HEAD = """# Benchmarks

A page for each question: its answer, its command, its table. This index is made of the pages by `python benchmarks/index.py`.
Times compare only within one table. Run a script from the repository's root, as its page says; `--help` says what it takes, and
`--quick` or `--dry-run`, where there is one, needs no GPU. A new question is a new folder with a page.

"""


@dataclass(frozen=True, slots=True)
class Page:
    """One page, and what its first lines say."""

    path: Path
    question: str
    answer: str

    def line(self) -> str:
        """Its line of the index."""
        # A link of the answer leads from its page, not from here.
        name = self.path.relative_to(HERE)
        return f"- [{self.question}]({name}) {_without_links(self.answer)}"


def read(path: Path) -> Page:
    """A page's question and answer.

    Raises:
        ValueError: it does not begin with `# Question?` and `**Answer.**`.
    """
    title, empty, answer, *_ = [*path.read_text(encoding="utf-8").splitlines(), "", "", ""]
    bold = answer.startswith("**") and answer.endswith("**")
    if not (title.startswith("# ") and title.endswith("?") and not empty and bold):
        raise ValueError(
            f"{path}: a page begins with '# Question?', an empty line and '**Answer.**'"
        )
    return Page(path, title.removeprefix("# "), answer.strip("*"))


def pages() -> list[Page]:
    """All pages, in the order of their paths, each folder's README first."""
    found = [path for path in HERE.rglob("*.md") if path not in (INDEX, *REPORTS)]
    found.sort(key=lambda path: (path.parent, path.name != INDEX.name, path.name))
    return [read(path) for path in found]


def index() -> str:
    """The whole text."""
    return HEAD + "".join(f"{page.line()}\n" for page in pages())


def _without_links(text: str) -> str:
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)


def main() -> None:
    INDEX.write_text(index(), encoding="utf-8")
    print(f"{len(pages())} pages: {INDEX}")


if __name__ == "__main__":
    main()
