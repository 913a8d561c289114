"""Make the table of all recorded runs from exported studies:

    python benchmarks/runs/collect.py STUDY.json.gz FOLDER ... [--add] [--output FILE]

Of a folder every exported study below it is taken. A study's name in the table is its path under benchmarks/ without its
ending, or its path as given where it lies elsewhere. With `--add` the studies that the table has stay in it; without it, a
table that has others than those given is not written over.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))
from benchmarks.runs import table
from tuner.study.archive import Archive, read_archive

BENCHMARKS = Path(__file__).resolve().parents[1]


def found_below(given: list[Path]) -> list[Path]:
    """Every exported study that these files and folders mean."""
    found = []
    for each in given:
        found += sorted(each.rglob("*.json.gz")) if each.is_dir() else [each]
    return found


def name_of(path: Path) -> str:
    """What the table calls an export."""
    whole = path.resolve()
    known = whole.relative_to(BENCHMARKS) if whole.is_relative_to(BENCHMARKS) else path
    return str(known).removesuffix(".gz").removesuffix(".json")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("studies", type=Path, nargs="+")
    parser.add_argument("--add", action="store_true", help="to what the table has")
    parser.add_argument("--output", type=Path, default=table.TABLE)
    options = parser.parse_args()
    there = table.exports(path=options.output) if options.output.exists() else []
    given = {name_of(path): path for path in found_below(options.studies)}
    if not options.add and (lost := [name for name in there if name not in given]):
        raise SystemExit(
            f"{options.output} has {len(lost)} studies that are not given, such as {lost[0]}; say --add to keep them"
        )
    studies: dict[str, Archive] = table.archives(path=options.output) if there else {}
    studies |= {name: read_archive(path) for name, path in given.items()}
    table.write(studies, options.output)
    trials = sum(len(each.records) for each in studies.values())
    again = sum(len(each.verifications) for each in studies.values())
    size = options.output.stat().st_size
    print(f"{len(studies)} studies, {trials} trials, {again} runs on fresh seeds: {size} bytes")


if __name__ == "__main__":
    main()
