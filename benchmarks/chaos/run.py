"""`make chaos`: workers killed, frozen and cut off, databases restarted, and then every result accounted for.

Each scenario writes what it did and what it found to chaos-NAME.json beside this file, and README.md is made from
all of these. Exit code 1 when a promise did not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sys
import time
from pathlib import Path

from faults import Record
from report import write_report
from scenarios import LEASE_S, SCENARIOS

from tuner.version import __version__


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenarios", nargs="*", help=f"which: {', '.join(SCENARIOS)} (all)")
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--every",
        type=float,
        default=2.0,
        metavar="S",
        help="a fault every so many seconds (2); more on a busy machine",
    )
    parser.add_argument("--minutes", type=float, default=5.0, help="of another program's work (5)")
    parser.add_argument("--mariadb", metavar="URL", default=os.environ.get("TUNER_CHAOS_MARIADB"))
    parser.add_argument(
        "--output", type=Path, default=Path(__file__).parent, help="folder for the figures"
    )
    options = parser.parse_args()
    options.output.mkdir(
        parents=True, exist_ok=True
    )  # before anything is measured that could not be written then
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # through the clean-up
    failed = []
    for name in options.scenarios or SCENARIOS:
        scenario = SCENARIOS[name]
        print(f"{name}: {scenario.__doc__}", flush=True)
        record = Record()
        found = scenario(options, record)
        about = {
            "scenario": name,
            "about": scenario.__doc__,
            "seed": options.seed,
            "tuner": __version__,
        }
        about |= {"cores": len(os.sched_getaffinity(0)), "python": platform.python_version()}
        about |= {"date": time.strftime("%Y-%m-%d"), "lease_s": LEASE_S}
        document = about | found | {"events": record.events}
        text = json.dumps(document, indent=1)
        path = options.output / f"chaos-{name}.json"
        if "skipped" not in found or not path.exists():  # what was found elsewhere stays
            path.write_text(text + "\n", encoding="utf-8")
        print(json.dumps(found, indent=1), flush=True)
        if found.get("broken"):
            failed.append(name)
    write_report(options.output)
    print(f"broken: {', '.join(failed)}" if failed else "every promise held")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
