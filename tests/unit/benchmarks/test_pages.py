"""Each benchmark has a page that begins with its question and its answer, the index is made of
them, and a manifest names what left the repository."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks import index
from tests.support.paths import BENCHMARKS, REPOSITORY

PAGES = [each.path for each in index.pages()]
NO_PAGE = {"shared"}
MANIFEST = BENCHMARKS / "manifest.txt"


def test_the_committed_index_is_that_of_the_pages() -> None:
    assert index.INDEX.read_text(encoding="utf-8") == index.index()


def test_each_folder_has_a_page() -> None:
    folders = {path.parent.relative_to(BENCHMARKS).parts[0] for path in BENCHMARKS.rglob("*/*.py")}
    assert {path.parent.name for path in PAGES} >= folders - NO_PAGE
    assert len(PAGES) > 30


def test_a_page_is_short_and_has_a_command() -> None:
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        assert re.search(r"^```", text, flags=re.MULTILINE), f"{path}: no command"
        words = [word for word in text.split() if word.strip("|-")]
        assert len(words) <= 600, path
        for link in re.findall(r"\]\(([^)#:]+)[^)]*\)", text):
            assert (path.parent / link).exists(), f"{path}: {link} is not there"


@pytest.mark.parametrize(
    "text",
    [
        "# No question\n\n**Answer.**\n",
        "# Question?\n\nAnswer.\n",
        "# Question?\n**Answer.**\n",
        "",
    ],
)
def test_a_page_without_question_or_answer_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "README.md"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match="a page begins with"):
        index.read(path)


def test_links_of_an_answer_are_left_out_of_the_index(tmp_path: Path) -> None:
    page = index.Page(BENCHMARKS / "x" / "README.md", "Is it?", "Yes, [there](a.md): 1 [0, 2].")
    assert page.line() == "- [Is it?](x/README.md) Yes, there: 1 [0, 2]."


def test_the_manifest_names_what_left() -> None:
    lines = MANIFEST.read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines if not line.startswith("#")]
    assert re.search(r"git show [0-9a-f]{8}:PATH", lines[1])
    parsed = [re.fullmatch(r"([0-9a-f]{64}) +(\d+) +(benchmarks/\S+)", row) for row in rows]
    assert all(parsed)
    names = [found[3] for found in parsed if found]
    assert names == sorted(set(names))
    assert not [name for name in names if (REPOSITORY / name).exists()]
    assert sum(name.endswith(".json.gz") for name in names) > 90
