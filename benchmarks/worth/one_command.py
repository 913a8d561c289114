"""`tuner forecast` on files of others: see one-command.md.

python benchmarks/worth/one_command.py FILE.csv ... --budget 2m --output benchmarks/worth/one-command.json
python benchmarks/worth/one_command.py --table benchmarks/worth/one-command.json
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any


def one(file: Path, budget: str) -> dict[str, Any]:
    """What the command printed, how long it took, and what its record says."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "forecast"
        words = ["forecast", str(file), "--budget", budget, "--cpu", "--output", str(place)]
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "tuner", *words], check=True, capture_output=True, text=True
        )
        minutes = (time.monotonic() - began) / 60
        record = json.loads((place / "forecast.json").read_text(encoding="utf-8"))
    record["inputs"] = {Path(name).name: digest for name, digest in record["inputs"].items()}
    return {
        "file": file.name,
        "minutes": minutes,
        "printed": done.stdout.replace(str(place), "forecast"),
        "said": done.stderr,
        "record": record,
    }


def rows(found: list[dict[str, Any]]) -> list[str]:
    """A row of the table for each file."""
    lines = [
        "| file | test MQL: network | best baseline | | forecast by | back-test: network better | minutes | words |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for each in found:
        answer = each["record"]["answer"]
        network, baseline = answer["network"], answer["baseline"]
        mql = {name: f"{pair[0]:.4g}" for name, pair in answer["mql"].items()}
        origins = list(answer["back_test"].values())
        won = sum(network in origin and origin[network] < origin[baseline] for origin in origins)
        by = "network" if answer["model"] == network else "baseline"
        words = len(each["printed"].split())
        lines.append(
            f"| {each['file'].removesuffix('.csv')} | {mql.get(network, '-')} | {mql[baseline]} | {baseline} | {by} "
            f"| {won} of {len(origins)} | {each['minutes']:.1f} | {words} |"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--budget", default="2m")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--table", type=Path)
    options = parser.parse_args()
    if options.table is not None:
        print("\n".join(rows(json.loads(options.table.read_text(encoding="utf-8")))))
        return
    found = []
    for file in options.files:
        found.append(one(file, options.budget))
        if options.output is not None:
            options.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print("\n".join(rows(found[-1:])))


if __name__ == "__main__":
    main()
