"""`tuner profile` as people run it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.forked_cli import run
from tests.support.refusals import refused
from tuner.cli.replace import is_profile_page, is_trace

TINY = ("profile", "--task", "demo", "--cpu", "--steps", "12", "--no-advice")


@pytest.mark.usefixtures("one_core")
def test_a_variant_is_profiled_into_a_document_a_page_and_a_trace(tmp_path: Path) -> None:
    sizes = ("--variant", "original", "--set", "hidden_size=8", "--batch", "200")
    files = ("--html", "page.html", "--trace", "trace.json")
    done = run(*TINY, *sizes, *files, "--json", folder=tmp_path)
    assert done.code == 0, done.err
    found = done.json()
    assert found["settings"]["batch_size"] == 200
    assert found["settings"]["hidden_size"] == 8
    assert abs(sum(found["stages"]["seconds"].values()) / found["pace"]["epoch_s"] - 1) < 0.05
    assert "<svg" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert is_profile_page(tmp_path / "page.html")  # and may be written again
    assert is_trace(tmp_path / "trace.json")


def test_what_cannot_be_profiled_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "mine.html").write_text("mine", encoding="utf-8")
    original = (*TINY, "--variant", "original")
    for arguments, words in (
        (TINY, ("--variant", "--python")),
        ((*original, "--set", "hidden_sise=8"), ("hidden_sise", "did you mean 'hidden_size'")),
        ((*original, "--set", "hidden_size=8.5"), ("hidden_size", "8.5", "whole number")),
        ((*original, "--set", "dropout"), ("--set", "NAME=VALUE")),
        ((*original, "--html", "mine.html"), ("mine.html", "--force")),
        ((*original, "--precision", "tf32"), ("tf32", "fp32")),
        ((*TINY, "--python", "not_there.py"), ("--python", "not_there.py")),
        ((*TINY, "--python", "mine.html", "--batch", "3"), ("--batch", "variant")),
    ):
        refused(*arguments, folder=tmp_path, code=2, says=words)
