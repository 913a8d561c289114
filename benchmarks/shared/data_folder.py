"""Where the reference job's data are: said alike to all that measures, as to tuner's commands."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from tuner.files.environment import DATA_VARIABLE


def add_data_dir(parser: argparse.ArgumentParser) -> None:
    """`--data-dir`, else `TUNER_DATA_DIR`, else the user's cache."""
    named = os.environ.get(DATA_VARIABLE)
    parser.add_argument(
        "--data-dir",
        type=Path,
        default=Path(named) if named else None,
        help=f"the folder with the task's data (else {DATA_VARIABLE}, else a cache)",
    )
