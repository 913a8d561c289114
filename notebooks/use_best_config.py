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
# # The best configuration, where you train
#
# The same configuration in three places: PyTorch with tuner's own training loop, neuralforecast, and darts. It comes from
# an exported study, `original` on the reference job, confirmed on an H100 ([benchmarks/runs](../benchmarks/runs/README.md));
# with a database it is `load_best("original", storage="postgresql://…")`. It is trained here on generated
# series, for a few seconds on a CPU: they show how it is done, and say nothing about how good it is.

# %%
import logging
import runpy
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import torch

warnings.filterwarnings("ignore")
logging.getLogger("ray.widgets.util").setLevel(logging.ERROR)
torch.set_num_threads(1)  # the network is tiny: a second core would mostly wait for the first

from tuner import evaluate, fit, load_best, load_data
from tuner.config import RunConfig
from tuner.data.sources import demo_series
from tuner.export import render
from tuner.report.figures import show
from tuner.report.figures.style import COLOURS, finish

HERE = Path.cwd() if Path("data").is_dir() else Path("notebooks")
EXPORTED = str(HERE.parent / "benchmarks" / "runs" / "confirmed" / "h100-original.json.gz")

best = load_best(storage=EXPORTED)
print(render(best, "toml"))

# %% [markdown]
# ## In PyTorch
#
# `build_model` gives the network alone, an `nn.Module` for the task's shapes; `fit` trains it by the study's protocol,
# early stopping and clock included; the study's own data would be `load_data(best.task)`. A few epochs are enough to see
# that it learns.

# %%
data = load_data("demo")
job = RunConfig(
    architecture=best.architecture,
    hyperparameters=best.hyperparameters,
    training=best.training.but(max_epochs=20),
    seed=best.provenance["seed"],
)
result = fit(job, data)
scores = evaluate(result.model, data)
print(f"{result.stopped_by} after {result.epochs} epochs and {result.wall_clock_s:.1f} s; test MQL {scores.test_mql_mean:.4f}")
print(f"the trial itself, on {best.task}: {best.provenance['epochs']} epochs, test MQL {best.values['test_mql']:.4f}")
print(f"expected by all runs, on {best.task}: test MQL {best.expected['test_mql']:.4f}")

# %% [markdown]
# ### A fan chart
#
# `tuner train` keeps a network with its card as a file that forecasts; here that is done by hand. Quantiles of a forecast
# are sorted, so they never cross. `tuner predict model.safetensors recent.csv --plot fan.png` draws the same figure.

# %%
from tuner import forecast_figure, load_model
from tuner.data.prepare import prepare
from tuner.export.saved_model import describe, save_model

file = Path(tempfile.mkdtemp()) / "model.safetensors"
save_model(file, result.model, describe(prepare(data.task), job.architecture, job.hyperparameters))

recent = pd.concat(
    pd.DataFrame(each.values, columns=list(data.task.target_columns)).assign(ds=each.timestamps, series=each.name)
    for each in demo_series(rows=400, seed=0, n_targets=3)
)
show(forecast_figure(load_model(file), recent, start="2024-01-16 12:00", series=["demo1"], columns=["load"]))

# %% [markdown]
# ## In neuralforecast
#
# `to_neuralforecast` sets up the same network as a neuralforecast model; the series of the panel are the network's target
# columns. Here it forecasts the last six hours of the three columns of one series, with its quantiles.

# %%
from neuralforecast import NeuralForecast

for name in ("pytorch_lightning", "lightning_fabric", "lightning.pytorch", "lightning.fabric", "darts"):
    logging.getLogger(name).setLevel(logging.ERROR)  # they speak of every run

series = demo_series(rows=300, seed=0, n_targets=3)[0]
panel = pd.concat(
    pd.DataFrame({"unique_id": column, "ds": series.timestamps, "y": series.values[:, index]})
    for index, column in enumerate("abc")
)
known = panel[panel["ds"] < series.timestamps[-6]]

model = best.to_neuralforecast(
    h=6, n_series=3, max_steps=60, enable_progress_bar=False, enable_model_summary=False, logger=False, accelerator="cpu"
)
forecaster = NeuralForecast(models=[model], freq="h", local_scaler_type="minmax")
forecaster.fit(known)
forecast = forecaster.predict()
forecast.head()

# %%
levels = [column for column in forecast.columns if column not in ("unique_id", "ds")]
low, middle, high = (
    next(c for c in levels if f"-{side}" in c) if side != "median" else next(c for c in levels if c.endswith("median"))
    for side in ("lo-80", "median", "hi-80")
)
one = forecast[forecast["unique_id"] == "a"]
truth = panel[(panel["unique_id"] == "a") & (panel["ds"] >= series.timestamps[-48])]
figure = go.Figure()
figure.add_scatter(x=truth["ds"], y=truth["y"], name="observed", mode="lines", line={"color": "#222222"})
figure.add_scatter(
    x=[*one["ds"], *one["ds"][::-1]], y=[*one[high], *one[low][::-1]], mode="lines", line={"width": 0}, fill="toself",
    fillcolor="rgba(77,149,203,0.25)", name="80 % interval",
)
figure.add_scatter(x=one["ds"], y=one[middle], name="median", mode="lines", line={"color": COLOURS[0], "dash": "dash"})
show(finish(figure, title="Column a of the first series", x="time", y="value"))

# %% [markdown]
# ## In darts
#
# `--format darts` is a script: it sets up darts' `TSMixerModel` and drops the variant's network in for darts' own. Run as
# a program it trains and scores; imported, `make()` gives the model, ready for `fit`.

# %%
script = Path(tempfile.mkdtemp()) / "best_in_darts.py"
script.write_text(render(best, "darts"), encoding="utf-8")
print("\n".join(script.read_text(encoding="utf-8").splitlines()[:8]))

made = runpy.run_path(str(script))["make"]()
print(made)

# %% [markdown]
# ## In your own code
#
# The network is a plain `nn.Module`, and the configuration a dictionary. So your own loop takes both; the batches here are
# random numbers in the shapes of the task, where yours would be data.

# %%
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
