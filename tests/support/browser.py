"""A headless Chromium for pages that only scripts fill."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import choreographer
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


def photographed(
    url: str, path: Path, *, width: int, dark: bool = False, wait_s: float = 2.0, whole: bool = True
) -> dict[str, Any]:
    """A picture of a page as a device of that width shows it, and what the page measures.

    A window is never narrower than 500 pixels, so its metrics are what is said to the browser.
    """
    found, picture = asyncio.run(_photographed(url, width, dark=dark, wait_s=wait_s, whole=whole))
    path.write_bytes(picture)
    return found


async def _photographed(
    url: str, width: int, *, dark: bool, wait_s: float, whole: bool
) -> tuple[dict[str, Any], bytes]:
    browser = choreographer.Browser(path=chromium(), headless=True, enable_sandbox=False)
    async with browser:
        tab = await browser.create_tab("about:blank")
        narrow = width < 600
        scale = 2 if narrow else 1
        size: dict[str, Any] = {"width": width, "height": 844 if narrow else 900}
        size |= {"deviceScaleFactor": scale, "mobile": narrow}
        await tab.send_command("Emulation.setDeviceMetricsOverride", size)
        theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await tab.send_command("Emulation.setEmulatedMedia", {"features": [theme]})
        await tab.send_command("Page.navigate", {"url": url})
        await _read_to_the_end(tab)
        await asyncio.sleep(wait_s)
        asked = {"expression": MEASURED, "returnByValue": True}
        told = await tab.send_command("Runtime.evaluate", asked)
        found: dict[str, Any] = told["result"]["result"]["value"]
        taken: dict[str, Any] = {"captureBeyondViewport": whole}
        if whole:
            clip = {"x": 0, "y": 0, "width": width, "height": found["height"], "scale": 1}
            taken |= {"clip": clip}
        shot = await tab.send_command("Page.captureScreenshot", taken)
        picture = base64.b64decode(shot["result"]["data"])
    return found, picture


async def _read_to_the_end(tab: Any) -> None:
    """Wait until the page's own text was read whole: a busy machine needs longer than a nap."""
    until = time.monotonic() + PATIENCE_S
    asked = {
        "expression": "location.href != 'about:blank' && document.readyState == 'complete'",
        "returnByValue": True,
    }
    while time.monotonic() < until:
        told = await tab.send_command("Runtime.evaluate", asked)
        if told.get("result", {}).get("result", {}).get("value") is True:
            return
        await asyncio.sleep(0.05)
    raise TimeoutError("the page was not read to its end")


MEASURED = """(() => ({
  width: document.documentElement.scrollWidth,
  height: document.documentElement.scrollHeight,
  ground: getComputedStyle(document.body).backgroundColor,
  figures: document.querySelectorAll('.main-svg, figure > svg').length,
  whites: [...document.querySelectorAll('.main-svg, rect.bg')]
    .filter(each => [each.style.background, each.style.fill].some(c => /255, 255, 255\\)/.test(c)
      && !/, 0\\)/.test(c))).length,
  text: document.body.innerText,
}))()"""


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
