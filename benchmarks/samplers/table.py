"""A compact table of real trials: one row a trial, made from exported studies, read back as plain arrays.

A .csv or .csv.gz file. Its first line is a comment with JSON: where the trials come from (study, variant, task, device),
the space they were drawn from and the default configuration. Columns: the five hyperparameters, `wall_clock_s`,
`test_mql`, `val_mql`, `val_loss`, `epochs`, `s_per_epoch`, `stopped_by`, `seed`. A figure that a trial does not have
(it diverged) is empty.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.record import Recorded
from tuner.spec.space import SearchSpace
from tuner.study.archive import Archive

HYPERPARAMETERS = ("learning_rate", "weight_decay", "dropout", "hidden_size", "batch_size")
FIGURES = ("wall_clock_s", "test_mql", "val_mql", "val_loss", "epochs", "s_per_epoch")
COLUMNS = (*HYPERPARAMETERS, *FIGURES, "stopped_by", "seed")
ENDS = ("converged", "epoch_limit", "time_limit", "diverged", "out_of_memory")
"""What a row can have ended by; pruned trials and errors say nothing that a table could hold."""


@dataclass(frozen=True, slots=True)
class Table:
    """Trials as dictionaries of numbers (None where there is none), with what they were drawn from."""

    name: str
    space: SearchSpace
    default: dict[str, float]
    origin: dict[str, Any]
    rows: tuple[dict[str, Any], ...]


def table_of(archives: Sequence[Archive]) -> Table:
    """The finished trials of exported studies of one definition (all their runs, verification included)."""
    first = archives[0]
    if any(each.definition.identity() != first.definition.identity() for each in archives):
        raise ValueError("the studies have different definitions; a table holds trials of one")
    rows = [
        _row(record.params, record.recorded)
        for each in archives
        for record in each.records
        if record.state.is_finished() and record.recorded.stopped_by in ENDS
    ]
    for each in archives:
        for run in each.verifications:
            if run.result is not None and run.result.recorded.stopped_by in ENDS:
                rows.append(_row(run.params, run.result.recorded))
    origin = {
        "studies": [each.name for each in archives],
        "variant": first.definition.variant,
        "task": first.definition.task_name,
        "device": first.device_model,
        "precision": first.definition.training.precision.value,
        "max_epochs": first.definition.training.max_epochs,
    }
    name = f"{origin['task']}-{origin['variant']}"
    return Table(
        name, first.definition.space, dict(first.definition.defaults.as_dict()), origin, tuple(rows)
    )


def _row(params: Any, recorded: Recorded) -> dict[str, Any]:
    figures = {name: recorded.named(name) for name in FIGURES}
    return dict(params) | figures | {"stopped_by": recorded.stopped_by, "seed": recorded.seed}


def write_table(table: Table, path: Path) -> None:
    """Write `table`; the same table gives the same bytes. Figures keep seven significant digits."""
    head = {
        "name": table.name,
        "space": table.space.definition(),
        "default": table.default,
        "origin": table.origin,
    }
    text = io.StringIO()
    text.write(f"# {json.dumps(head, sort_keys=True)}\n")
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in table.rows:
        writer.writerow(
            {key: f"{row[key]:.7g}" if isinstance(row[key], float) else row[key] for key in COLUMNS}
        )
    data = text.getvalue().encode()
    path.write_bytes(gzip.compress(data, mtime=0) if path.name.endswith(".gz") else data)


def read_table(path: Path) -> Table:
    """The table that `write_table` wrote."""
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if path.name.endswith(".gz") else raw).decode()
    first, _, rest = text.partition("\n")
    head = json.loads(first.removeprefix("# "))
    rows = tuple(
        {key: _value(key, cell) for key, cell in row.items()}
        for row in csv.DictReader(io.StringIO(rest))
    )
    space = SearchSpace.model_validate(head["space"])
    return Table(head["name"], space, head["default"], head["origin"], rows)


def _value(key: str, cell: str) -> Any:
    if key == "stopped_by":
        return cell
    if cell == "":
        return None
    return int(cell) if key in ("hidden_size", "batch_size", "seed", "epochs") else float(cell)
