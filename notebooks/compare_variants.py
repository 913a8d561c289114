# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#       format_version: '1.3'
#       jupytext_version: 1.19.6
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Which architecture is better?
#
# A front is made of single runs with one seed each, and the search chose the ones that looked best. So a verdict rests on
# other runs: `tuner verify` trains the default configuration and some of each front again, on fresh seeds that all of
# them share, in random order. This notebook reads those runs interval by interval. The command for the same is
# `tuner compare`; what each figure means is in [docs/read-a-verdict.md](../docs/read-a-verdict.md).
#
# It compares the five confirmed searches each of `original` and `rmsnorm`, on H200s, that are in [the table of recorded
# runs](../benchmarks/runs/README.md). Where that is missing it takes the studies in [data/](data/README.md), two small
# networks on generated series, for demonstration: neither is confirmed, and the answer says so.

# %%
import os
import sys
import tempfile
import warnings
from pathlib import Path

warnings.filterwarnings("ignore", message="IProgress not found")  # we show no progress bars

import pandas as pd

from tuner.verdict.compare.findings import compare
from tuner.verdict.compare.studies import read_studies
from tuner.report.comparison_files import HEADINGS, cell, volume_line
from tuner.verdict.explain import explain_study
from tuner.report.figures import show
from tuner.report.figures.draw import draw, importances_figure

HERE = Path.cwd() if Path("data").is_dir() else Path("notebooks")

SMALL = [HERE / "data" / f"{name}.json.gz" for name in ("original", "rmsnorm")]


def recorded(folder):
    """The studies of the table as exported ones in a folder."""
    sys.path.append(str(HERE.parent))
    from benchmarks.runs.export import table, write_archive

    names = [name for name in table.exports() if name.startswith(("retune/minute/etth-original", "retune/minute/etth-rmsnorm"))]
    for name in names:
        write_archive(table.without_ablations(table.archive(name)), folder / f"{Path(name).name}.json.gz")
    return sorted(folder.iterdir())


# Exported studies; or variants, with STORAGE a database and TASK their task.
FOLDER = tempfile.TemporaryDirectory()
STUDIES = [str(path) for path in (recorded(Path(FOLDER.name)) if (HERE.parent / "benchmarks" / "runs").is_dir() else SMALL)]
STORAGE = os.environ.get("TUNER_STORAGE") or "sqlite:///storage/tuner.db"
TASK = "etth"

studies = read_studies(STUDIES, task=TASK, storage=STORAGE)
report = compare(studies)

# %% [markdown]
# ## The answer
#
# As `tuner compare` says it.

# %%
print(*report.answer, sep="\n")

# %%
show(draw("parallel", studies))

# %% [markdown]
# ## What can be claimed
#
# Between variants by an exact test over whole searches; of a configuration and its default by its confirmation (`tuner
# verify --confirm`).

# %%
for line in (*(found.sentence for found in (*report.between, *report.confirmed)), *report.notes):
    print(f"- {line}.")
for line in report.missing:
    print(f"- missing: {line}")

# %% [markdown]
# ## Interval by interval
#
# Medians over the converged runs, with 95 % intervals. A row in which nothing is in brackets was not verified: it is one
# run of the search, and no ground for a verdict.

# %%
pd.DataFrame(
    [
        {"variant": row.variant, "hyperparameters": row.hyperparameters, "trial": row.trial, "runs": row.runs}
        | {heading: cell(row, name) for name, heading in HEADINGS.items()}
        | {"missed": sum(row.misses.values()), "verdict": row.verdict}
        for row in report.rows
    ]
)

# %% [markdown]
# ## The fronts over each other
#
# Hollow marks are verified, with their intervals; the search's own front is what the line shows. Where a hollow mark lies
# above and to the right of the front, the search had promised too much.

# %%
show(draw("front", studies))

# %%
for index in range(len(report.volumes)):
    print(volume_line(report, index))

# %% [markdown]
# ## Is it a fair comparison?
#
# What differs between the studies beside their variants:

# %%
print("\n".join(f"- {line}" for line in report.fairness) or "nothing that tuner knows of")

# %% [markdown]
# ## What each study teaches
#
# Each hyperparameter's share in the variation of each objective. Few trials give rough shares; fewer than ten give none.

# %%
lessons = {study.variant: explain_study(study) for study in studies}
for variant, lesson in lessons.items():
    show(importances_figure(lesson.importances, title=variant))

# %%
for variant, lesson in lessons.items():
    if (ranking := lesson.ranking) is not None:
        chosen = f"validation would have chosen trial {ranking.by_validation}, test chose {ranking.by_test}"
        print(f"{variant}: over {ranking.trials} trials, {chosen}; that costs {ranking.price:+.4f} test MQL")
    for line in lesson.missing:
        print(f"{variant}: {line}")

# %% [markdown]
# ## What to take
#
# Of the variant that you decide for, the recommended configuration; [pareto](pareto.ipynb) puts it into your own loop.

# %%
from tuner import load_best

for path, study in zip(STUDIES, studies):
    try:
        best = load_best(study=study.name, storage=path)
    except Exception as error:
        print(f"{study.name}: {error}")
    else:
        print(f"{study.name}: {best.params}")
