"""Which models of neuralforecast work at the reference job's shapes: writes models.md beside it.

    PYTHONPATH=. OMP_NUM_THREADS=1 python benchmarks/neuralforecast_classes/table.py

The numbers, and where they come from, go to models.json beside this file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.shared.circumstances import circumstances, heading, tuner
from tuner.cli.variants import Checked, cells
from tuner.devices.cpu import CpuCores, available_cores

HERE = Path(__file__).parent
PAGE = HERE / "models.md"

HEAD = """\
# The models of neuralforecast as variants

A study file may say `model = "neuralforecast:NAME"`; [Your own model](../../docs/own-model.md#a-model-of-neuralforecast)
says how. This page is made by `benchmarks/neuralforecast_classes/table.py`, which asks `tuner variants --check
neuralforecast --task etth`: every class the library lists, at its own defaults, trained for one step on {windows} windows of
the reference job ({shapes}).

**{works} of {all} work.** "Targets together" is what the library calls multivariate. A covariate that is not named is left out,
and said to be. The parameters are those at the defaults; the step is in seconds of processor time on one core. It is the
first of each model, and other programs shared the machine: it tells seconds from minutes, not a model from its neighbour.
"""


def main() -> None:
    found: dict[str, Any] = json.loads(
        tuner("variants", "--check", "neuralforecast", "--task", "etth", "--json", output=True)
    )
    where = circumstances(CpuCores(available_cores()[:1]).model)
    (HERE / "models.json").write_text(
        json.dumps({"circumstances": where} | found, indent=1) + "\n", encoding="utf-8"
    )
    PAGE.write_text("\n".join(page(found, where)), encoding="utf-8")


def page(found: dict[str, Any], where: dict[str, Any]) -> list[str]:
    rows = [Checked(**row) for row in found["models"]]
    s = found["shapes"]
    shapes = (
        f"{s['input_size']} hours in, {s['horizon']} ahead, {s['n_targets']} targets, {s['n_past']} past, {s['n_future']} future "
        f"and {s['n_static']} static covariates, {s['n_quantiles']} quantiles"
    )
    works = [row for row in rows if row.why_not is None]
    lines = [
        HEAD.format(windows=found["windows"], shapes=shapes, works=len(works), all=len(rows)),
        *heading(where),
        "| model | targets | covariates it takes | parameters | CPU time of a step | remarks |",
        "|---|---|---|---:|---:|---|",
    ]
    lines += [f"| {row.name} | " + " | ".join(cells(row)) + " |" for row in works]
    lines += ["", "These do not:", ""]
    lines += [f"- {row.name}: {row.why_not}" for row in rows if row.why_not is not None]
    return [*lines, ""]


if __name__ == "__main__":
    main()
