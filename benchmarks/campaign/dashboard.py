"""The picture of the dashboard in the docs: a committed study of the reference job, as a headless Chromium shows it.

    python benchmarks/campaign/dashboard.py [etth-rmsnorm.json.gz]

Imports the exported study into a database of its own, serves it, and writes docs/dashboard.png: the figures that tuner
adds, which stand below those of optuna-dashboard itself. Needs a Chromium and Pillow, no GPU and no network; takes about a
quarter of a minute.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from PIL import Image

from tuner.report.dashboard.server import make_dashboard
from tuner.storage.database import open_database
from tuner.storage.url import parse_url
from tuner.study.archive import read_archive
from tuner.study.transfer import restore

HERE = Path(__file__).resolve().parent
PICTURE = HERE.parents[1] / "docs" / "dashboard.png"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WIDTH, HEIGHT = 1400, 1470
BELOW = 1745
"""Pixels: where optuna-dashboard's own figures end."""
LEFT, SCROLL_BAR = 66, 16
"""Pixels: the page's menu, and what lies at its other side."""
COLOURS = 256
WAIT_S = 30
"""Of the page's own time, in which its scripts draw."""


def main() -> None:
    export = HERE / (sys.argv[1] if len(sys.argv) > 1 else "etth-rmsnorm.json.gz")
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        raise SystemExit(
            f"the picture needs one of {', '.join(BROWSERS)} (apt-get install chromium)"
        )
    with tempfile.TemporaryDirectory(prefix="tuner-picture-", ignore_cleanup_errors=True) as folder:
        address = parse_url(f"sqlite:///{folder}/tuner.db")
        archive = read_archive(export)
        database = open_database(address, create=True)
        number = restore(database, archive, archive.name).study_id
        database.close()
        server = make_dashboard(address, host="127.0.0.1", port=0)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/dashboard/studies/{number}"
        shoot(browser, url, profile=Path(folder, "profile"))
        server.shutdown()
        server.server_close()
    print(f"wrote {PICTURE}")


def shoot(browser: str, url: str, *, profile: Path) -> None:
    """Open the page without a window and write its lower part to `PICTURE`."""
    flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        "--disable-background-networking",
    ]
    size = f"--window-size={WIDTH},{BELOW + HEIGHT}"
    wanted = [size, f"--virtual-time-budget={1000 * WAIT_S}", f"--screenshot={PICTURE}"]
    command = [browser, *flags, f"--user-data-dir={profile}", *wanted, url]
    subprocess.run(command, capture_output=True, timeout=240, check=True)
    with Image.open(PICTURE) as whole:
        lower = whole.convert("RGB").crop((LEFT, BELOW, WIDTH - SCROLL_BAR, BELOW + HEIGHT))
    lower.quantize(COLOURS).save(PICTURE, optimize=True)


if __name__ == "__main__":
    main()
