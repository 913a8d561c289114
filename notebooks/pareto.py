# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # The Pareto front of a study
#
# Which configurations reach convergence fast *and* forecast well? This notebook pulls one study or several, draws their
# front and what is behind it, and takes a configuration.
#
# It reads exported studies, so no database and no GPU are needed: those of the reference job in
# [benchmarks/campaign](../benchmarks/campaign/README.md) where they are there, else those in [data/](data/README.md), two
# small networks on generated series, from a CPU, for demonstration.

# %%
import os
import warnings
from pathlib import Path

warnings.filterwarnings("ignore", message="IProgress not found")  # we show no progress bars

from tuner import load_best
from tuner.api import front_frame, load_subjects
from tuner.errors import TunerError
from tuner.export import render
from tuner.report.figures.draw import draw

HERE = Path.cwd() if Path("data").is_dir() else Path("notebooks")

CAMPAIGN = [HERE.parent / "benchmarks" / "campaign" / f"etth-{name}.json.gz" for name in ("rmsnorm", "original")]
SMALL = [HERE / "data" / f"{name}.json.gz" for name in ("rmsnorm", "original")]
EXPORTED = [str(path) for path in (CAMPAIGN if all(path.exists() for path in CAMPAIGN) else SMALL)]

# Where the studies are: files that `tuner study export` wrote, or a database (sqlite:///…, postgresql://…).
STORAGE = os.environ.get("TUNER_STORAGE") or EXPORTED
# One study of a database, by its name; empty takes all of them.
STUDY = os.environ.get("TUNER_STUDY", "")

# %%
try:
    studies = load_subjects(STORAGE, names=[STUDY] if STUDY else None)
except TunerError as error:
    raise SystemExit(f"{error} (for a small study of generated data: make demo)") from None

# %% [markdown]
# ## The front
#
# Every faint mark is a trial, the line is the front: nobody on it is beaten on both axes at once. The star is the default
# configuration, which every study tries first. Hollow marks with bars are configurations that ran again on fresh seeds.
# Only trials that converged are drawn, unless none did.

# %%
draw("front", studies)

# %% [markdown]
# ## The trade behind it
#
# Time to convergence is seconds an epoch times epochs. On the dotted lines the product is the same: a configuration down
# and to the right of another has faster epochs and needs more of them, and the lines say whether that paid.

# %%
draw("trade", studies)

# %% [markdown]
# ## How it was found
#
# The hypervolume is the area that the front dominates: flat means that the last trials found nothing better. Below it,
# the learning curves of the default and of the front's trials, over each trial's own clock.

# %%
draw("hypervolume", studies)

# %%
draw("curves-time", studies[:1])

# %% [markdown]
# ## The configurations on it
#
# One trial is one seed; where a configuration has several `runs`, its figures are their medians. Before a difference
# in test MQL is believed, it should be larger than what another seed alone would make of the same configuration: that
# is what `tuner verify` and [compare_variants](compare_variants.ipynb) are for.

# %%
study = studies[0]
front = front_frame(study.results)
front[
    [
        "trial",
        "runs",
        *study.results.objectives,
        "epochs",
        "learning_rate",
        "weight_decay",
        "dropout",
        "hidden_size",
        "batch_size",
        "device",
        "contaminated",
    ]
]

# %% [markdown]
# ## The knee, and its network
#
# `pick` may also be `"mql"`, `"time"` or `"same-quality"`, within `max_time=` seconds or `max_mql=`.
# [use_best_config](use_best_config.ipynb) takes it further.

# %%
where = STORAGE if isinstance(STORAGE, str) else STORAGE[0]
best = load_best(study=study.name, pick="knee", storage=where)
print(render(best, "toml"))

# %%
model = best.build_model()
print(f"{sum(p.numel() for p in model.parameters()):,} parameters, input and output sizes {best.shapes}")
