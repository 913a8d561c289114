"""A headless Chromium for pages that only scripts fill."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
PATIENCE_S = 240
"""Of the real time, for a browser that starts on a busy machine."""
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def chromium() -> str:
    """Path of the program; without one the test is skipped here, and fails where CI=true."""
    for program in PROGRAMS:
        if found := shutil.which(program):
            return found
    names = " or ".join(PROGRAMS)
    missing = f"no {names} to open the dashboard with; install one (apt-get install chromium)"
    if os.environ.get("CI") == "true":
        pytest.fail(missing)
    pytest.skip(missing)


def rendered(
    url: str, *, screenshot: Path | None = None, virtual_s: int = 20, height: int = 1300
) -> str:
    """The document at `url` after its scripts ran for `virtual_s` of the page's own time, as
    HTML."""
    extra = [f"--screenshot={screenshot}"] if screenshot else []
    with tempfile.TemporaryDirectory(
        prefix="tuner-chromium-", ignore_cleanup_errors=True
    ) as profile:
        done = subprocess.run(
            [
                chromium(),
                *FLAGS,
                f"--window-size=1400,{height}",
                f"--user-data-dir={profile}",
                f"--virtual-time-budget={virtual_s * 1000}",
                *extra,
                "--dump-dom",
                url,
            ],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=True,
        )
    return done.stdout


@contextlib.contextmanager
def opened(url: str) -> Iterator[None]:
    """A browser that shows `url` in real time, for pages that tell by themselves what happens on
    them."""
    with tempfile.TemporaryDirectory(
        prefix="tuner-chromium-", ignore_cleanup_errors=True
    ) as profile:
        words = [chromium(), *FLAGS, "--remote-debugging-port=0", f"--user-data-dir={profile}", url]
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield
        finally:
            process.terminate()
            process.wait(PATIENCE_S)


@pytest.fixture(scope="session")
def screenshots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where screenshots go: TUNER_SCREENSHOTS, to look at them afterwards, else a temporary
    folder."""
    named = os.environ.get("TUNER_SCREENSHOTS")
    folder = Path(named) if named else tmp_path_factory.mktemp("screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
