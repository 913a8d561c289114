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
# # What a search found, and what to take
#
# Which configurations converge fast *and* forecast well? This notebook reads a study, says the answer, shows the pictures
# behind it, and ends with the recommended configuration in your own code.
#
# It reads an exported study, so it needs no database and no GPU: `original` on the reference job, searched and confirmed on
# an H100 ([benchmarks/runs](../benchmarks/runs/README.md)).

# %%
import os
import warnings
from pathlib import Path

warnings.filterwarnings("ignore", message="IProgress not found")  # we show no progress bars

from tuner import load_best
from tuner.api import front_frame, load_subjects
from tuner.errors import TunerError
from tuner.export import render
from tuner.report.figures import show
from tuner.report.figures.draw import draw
from tuner.report.overview import figure_of, sentences_of

HERE = Path.cwd() if Path("data").is_dir() else Path("notebooks")
EXPORTED = [str(HERE.parent / "benchmarks" / "runs" / "confirmed" / "h100-original.json.gz")]

# Where the studies are: files that `tuner study export` wrote, or a database (sqlite:///…, postgresql://…).
STORAGE = os.environ.get("TUNER_STORAGE") or EXPORTED
# One study of a database, by its name; empty takes all of them.
STUDY = os.environ.get("TUNER_STUDY", "")

# %%
try:
    studies = [each.with_runs_read() for each in load_subjects(STORAGE, names=[STUDY] if STUDY else None)]
except TunerError as error:
    raise SystemExit(f"{error} (for a small study of generated data: make demo)") from None

# %% [markdown]
# ## The answer
#
# In the words of `tuner compare`.

# %%
print(*sentences_of(studies), sep="\n")

# %% [markdown]
# ## What decides it
#
# Large marks ran on fresh seeds. The arrow comes from what the search had seen of the same configuration: of many single
# runs the best are the lucky ones, so it promised too much. The star is the default. Grey is the search.

# %%
show(draw(figure_of(studies), studies))

# %% [markdown]
# ## The front of the search
#
# Grey is each trial. The line is the front: nobody on it is beaten on both axes at once.

# %%
show(draw("front", studies))

# %% [markdown]
# ## What the best have in common
#
# A line for each configuration: the front in colour, the default dashed, what is recommended bold.

# %%
show(draw("parallel", studies))

# %% [markdown]
# ## The trade behind it
#
# Time to convergence is seconds an epoch times epochs. On the dotted lines the product is the same: a configuration down
# and to the right of another has faster epochs and needs more of them, and the lines say whether that paid.

# %%
show(draw("trade", studies))

# %% [markdown]
# ## How it was found
#
# The hypervolume is the area that the front dominates: flat means that the last trials found nothing better.

# %%
show(draw("hypervolume", studies))

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
# ## What is recommended
#
# The configuration that saves most time and is as good as the default. `pick` may be `"mql"`, `"time"` or `"knee"`, for a
# point of the front instead. [use_best_config](use_best_config.ipynb) takes it to neuralforecast and darts.

# %%
where = STORAGE if isinstance(STORAGE, str) else STORAGE[0]
try:
    best = load_best(study=study.name, storage=where)
except TunerError as error:  # too few trials to recommend one
    print(error)
    best = load_best(study=study.name, pick="knee", storage=where)
print(render(best, "toml"))

# %%
model = best.build_model()
print(f"{sum(p.numel() for p in model.parameters()):,} parameters, input and output sizes {best.shapes}")

# %% [markdown]
# ## In your own code
#
# The network is a plain `nn.Module`, and the configuration a dictionary. So your own loop takes both; the batches here are
# random numbers in the shapes of the task, where yours would be data.

# %%
import torch

model = best.build_model()
optimizer = torch.optim.Adam(
    model.parameters(), lr=best.params["learning_rate"], weight_decay=best.params["weight_decay"]
)
levels, shapes, rows = torch.tensor(best.definition.task["quantiles"]), best.shapes, best.params["batch_size"]
torch.manual_seed(0)
past = torch.randn(rows, shapes.input_size, shapes.n_targets + shapes.n_past + shapes.n_future)
future = torch.randn(rows, shapes.horizon, shapes.n_future) if shapes.n_future else None
static = torch.randn(rows, shapes.n_static) if shapes.n_static else None
truth = torch.randn(rows, shapes.horizon, shapes.n_targets)

for step in range(3):
    error = truth.unsqueeze(-1) - model(past, future, static)  # a forecast for each quantile level
    loss = torch.maximum(levels * error, (levels - 1) * error).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step}: quantile loss {loss:.4f}")
