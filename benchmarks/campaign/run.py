"""The campaign in calls of some minutes: each goes on where the last one stopped, on whatever machine it runs.

    python benchmarks/campaign/run.py --data-dir DIR --gpus all --minutes 9 --state STATE --output OUT

Restores what an earlier call left in STATE/campaign.tar.gz, or else the exported studies in STATE (nothing there: begins),
searches and verifies, stops cleanly before the minutes are over, and writes OUT/campaign.tar.gz (OUT is STATE unless
given) with the database, the ends of the workers' logs and a list of all calls, OUT/campaign.md and OUT/campaign.json
with how far it is and how long the rest takes. Give the same command again, with the new file in STATE, until it says that nothing is left. All calls must run on
GPUs of one model; how many there are may change.

The file is also written every two minutes meanwhile, so that a call that is killed loses little. `--quick` is a dry run
with a tiny study on the CPU, `--plan table` another plan of `plan.py`. README.md beside this file says what the campaign is.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[2]))
from plan import PLANS, VERIFICATION, Campaign, Progress, progress
from state import (
    CALLS,
    DATABASE,
    NAME,
    refuse_to_lose,
    restore,
    restore_exports,
    saved_regularly,
)

from benchmarks.shared.circumstances import circumstances, heading, tuner, write
from benchmarks.shared.data_folder import add_data_dir
from tuner.launch import DeviceChoice, choose_devices
from tuner.storage.database import open_database
from tuner.storage.url import parse_url

STOPPING_S = 30.0
"""Kept free at the end of a call: starting up, handing back and writing the state."""
WORTH_STARTING_S = 20.0
LARGE_BYTES = 15 << 20


@dataclass(frozen=True, slots=True)
class Call:
    """One call's means: where, until when, and what runs a `tuner` command."""

    campaign: Campaign
    folder: Path
    place: tuple[str, ...]
    deadline: float
    run: Callable[..., str] = tuner
    now: Callable[[], float] = time.monotonic

    @property
    def storage(self) -> str:
        return f"sqlite:///{self.folder / DATABASE}"

    def progress(self) -> Progress:
        if not (self.folder / DATABASE).exists():
            return progress(self.campaign, None)
        database = open_database(parse_url(self.storage), create=False)
        try:
            return progress(self.campaign, database)
        finally:
            database.close()

    def work(self) -> bool:
        """Search and verify while there is time; True when nothing is left to do."""
        common = ("--task", self.campaign.task, *self.place, "--storage", self.storage)
        for search in self.campaign.searches:
            if self._left(self.campaign.studies(search)):
                named = ("--variant", ",".join(search.variants), "--trials", str(search.trials))
                self._timed("launch", *named, *self.campaign.options, *common)
                if self._left(self.campaign.studies(search)):
                    return False
        if not self.campaign.seeds or self._verified():
            return True
        seeds = ("--top", str(self.campaign.top), "--seeds", str(self.campaign.seeds))
        self._timed("verify", "--variant", ",".join(self.campaign.variants), *seeds, *common)
        return self._verified()

    def _timed(self, *command: str) -> None:
        """Run a command that stops cleanly when this call's time is over; not where that is hardly worth its start."""
        left_s = self.deadline - STOPPING_S - self.now()
        if left_s >= WORTH_STARTING_S:
            self.run(*command, "--timeout", f"{left_s:.0f}")

    def _left(self, names: Sequence[str]) -> int:
        return sum(item.left for item in self.progress().items if item.name in names)

    def _verified(self) -> bool:
        (runs,) = (item for item in self.progress().items if item.name == VERIFICATION)
        return runs.done > 0 and not runs.left


def summary(found: Progress, *, workers: int, minutes: float, done: bool) -> list[str]:
    """How far it is, and what is left, in Markdown."""
    lines = found.lines()
    if done:
        return [*lines, "", "Nothing is left to do: `report.py` writes the tables."]
    left_s = found.left_s(workers)
    if left_s is None:
        return [*lines, "", "Nothing has finished yet, so nothing can be said of the rest."]
    calls = -(-left_s // max(60 * minutes - STOPPING_S, 1.0))
    return [
        *lines,
        "",
        f"Left: about {left_s / 60:.0f} minutes on {workers} at once, {calls:.0f} calls of {minutes:g}.",
    ]


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=9.0, help="this call's time, all included")
    parser.add_argument(
        "--state", type=Path, required=True, help="folder with what the last call wrote"
    )
    parser.add_argument("--output", type=Path, help="folder to write to (default: that of --state)")
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--gpus", default="all")
    place.add_argument("--cpu", action="store_true")
    add_data_dir(parser)
    parser.add_argument("--plan", choices=PLANS, default="campaign", help="see plan.py")
    parser.add_argument("--quick", action="store_true", help="a dry run: a tiny study on one core")
    options = parser.parse_args(arguments)
    if options.quick:
        options.plan, options.cpu = "quick", True
    return options


def main(arguments: Sequence[str] | None = None, *, age_s: float = 0.0) -> None:
    """`age_s`: seconds of this call that are over already."""
    began = time.monotonic() - age_s
    options = parse(arguments)
    cpu = options.cpu
    choice = DeviceChoice(gpus=None if cpu else options.gpus, cpu=cpu, workers=1 if cpu else None)
    devices, _ = choose_devices(choice, environment=os.environ)
    place = ("--cpu", "--workers", "1") if cpu else ("--gpus", options.gpus)
    if options.data_dir:
        place += ("--data-dir", str(options.data_dir.absolute()))
    given, archive = options.state / NAME, (options.output or options.state) / NAME
    refuse_to_lose(archive, given)
    with tempfile.TemporaryDirectory(prefix="campaign-") as name:
        folder = Path(name)
        went_on = restore(given, folder) or restore_exports(
            options.state, folder, PLANS[options.plan].studies()
        )
        call = Call(PLANS[options.plan], folder, place, began + 60 * options.minutes)
        print("going on where the last call stopped" if went_on else "beginning", file=sys.stderr)
        where = circumstances(devices[0].model) | {
            "workers": len(devices),
            "before": dones(call.progress()),
        }
        with saved_regularly(folder, archive):
            done = call.work()
            found = call.progress()
            where |= {"after": dones(found), "took_s": time.monotonic() - began, "done": done}
            with (folder / CALLS).open("a", encoding="utf-8") as calls:
                calls.write(json.dumps(where) + "\n")
    lines = summary(found, workers=len(devices), minutes=options.minutes, done=done)
    write(archive.with_name("campaign"), where, [*heading(where), *lines])
    print("\n".join(lines))
    if archive.exists() and archive.stat().st_size > LARGE_BYTES:
        print(f"{archive} has {archive.stat().st_size / 2**20:.0f} MiB", file=sys.stderr)


def dones(found: Progress) -> dict[str, int]:
    return {item.name: item.done for item in found.items}


if __name__ == "__main__":
    main(
        age_s=time.time() - psutil.Process().create_time()
    )  # to import everything takes long on a fresh machine
