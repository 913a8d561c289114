"""Ten scripts as people write them for Optuna, run as they are, then confirmed without a changed line:

    python -m benchmarks.own_search.confirmed_examples [--postgres URL] [--only NAME] [--output OUT/examples]

Each runs in a folder of its own; with `--postgres` a copy of each study is made in that database, and confirmed there as well.
Printed is what `tuner confirm` says, and whether a dump of the foreign database is the same as before.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import optuna
from sqlalchemy import MetaData, create_engine, select

from benchmarks.own_search.reported import options_of, report
from tuner.storage.url import parse_url

EXAMPLES = Path(__file__).parent / "examples"
MORE = {"conditional": ["--margin", "0.005"]}
"""What a study asks for beside: values that are maximised have a margin in their own units."""


def searched(name: str, folder: Path) -> str:
    """Run a script; where its study is by then."""
    shutil.copy(EXAMPLES / f"{name}.py", folder)
    command = [sys.executable, f"{name}.py"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return str(folder / ("journal.log" if name == "journal" else "studies.db"))


def copied(source: str, url: str) -> str:
    """The study of a file in another database; its name there."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    to = parse_url(url).full()
    (study,) = optuna.get_all_study_names(f"sqlite:///{source}")
    with contextlib.suppress(KeyError):
        optuna.delete_study(study_name=study, storage=to)
    optuna.copy_study(from_study_name=study, from_storage=f"sqlite:///{source}", to_storage=to)
    return study


def dump(source: str) -> str:
    """A hash of all that is stored: every row of every table, or the file."""
    if "://" not in source:
        there = sorted(Path(source).parent.glob(f"{Path(source).name}*"))
        return " ".join(hashlib.sha256(each.read_bytes()).hexdigest()[:12] for each in there)
    engine, tables = create_engine(parse_url(source).full()), MetaData()
    tables.reflect(engine)
    told = hashlib.sha256()
    with engine.connect() as connection:
        for table in tables.sorted_tables:
            rows = sorted(str(tuple(row)) for row in connection.execute(select(table)))
            told.update(f"{table.name} {rows}".encode())
    engine.dispose()
    return told.hexdigest()[:12]


def confirm(name: str, source: str, study: str | None, folder: Path) -> tuple[str, bool]:
    """What is said, and whether the foreign database is as it was."""
    before = dump(source)
    command = [sys.executable, "-m", "tuner", "confirm", source]
    command += ["--objective", str(folder / f"{name}.py:objective"), *MORE.get(name, ())]
    command += ["--study", study] if study else []
    environment = os.environ | {"TUNER_STORAGE": f"sqlite:///{folder}/confirmed.db"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    return done.stdout or done.stderr, dump(source) == before


def main(arguments: Iterable[str] | None = None) -> None:
    parser = options_of(__doc__)
    parser.add_argument("--postgres", help="a database for copies of the studies")
    parser.add_argument("--only", help="this example alone")
    options = parser.parse_args(None if arguments is None else list(arguments))
    rows: list[dict[str, Any]] = []
    for path in sorted(EXAMPLES.glob("*.py")):
        if options.only not in (None, path.stem):
            continue
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            source = searched(path.stem, folder)
            places: list[tuple[str, str | None]] = [(source, None)]
            if options.postgres and path.stem != "journal":
                places.append((options.postgres, copied(source, options.postgres)))
            for where, study in places:
                said, same = confirm(path.stem, where, study, folder)
                kind = "PostgreSQL" if study else "a journal" if where.endswith("log") else "SQLite"
                row = {"example": path.stem, "in": kind, "dump": "same" if same else "CHANGED"}
                rows.append(row | {"said": said.splitlines()[0]})
                print(f"{rows[-1]}\n{said}", file=sys.stderr)
    report(options.output, rows, rows[0])


if __name__ == "__main__":
    main()
