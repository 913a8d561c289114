"""From exported studies to a table: python benchmarks/samplers/collect.py STUDY.json.gz [MORE …] --output TABLE.csv.gz

How to get the studies (README.md beside this file has the whole story):

    tuner launch --variant original --gpus all --trials 400 --sampler qmc --no-prune --study etth-original-table
    tuner study export etth-original-table --output etth-original-table.json.gz
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))
from benchmarks.samplers.table import table_of, write_table
from tuner.study.archive import read_archive


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("studies", nargs="+", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    table = table_of([read_archive(path) for path in arguments.studies])
    write_table(table, arguments.output)
    ends = {
        end: sum(row["stopped_by"] == end for row in table.rows)
        for end in {row["stopped_by"] for row in table.rows}
    }
    print(f"{arguments.output}: {len(table.rows)} trials of {table.name}, {ends}")


if __name__ == "__main__":
    main()
