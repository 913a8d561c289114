"""A configuration as a script that sets up a neuralforecast model, trains it and forecasts."""

from __future__ import annotations

from tuner.config import library_class
from tuner.export.best_config import BestConfig, library_arguments
from tuner.export.script_text import comment, literal
from tuner.models.of_neuralforecast.library_source import QUANTILES_FIRST
from tuner.models.registry import check_name

CLASSES = {
    "original": "TSMixerOriginal",
    "rmsnorm": "TSMixerRMSNorm",
    "layernorm": "TSMixerLayerNorm",
    "simple": "TSMixerSimple",
    "batchnorm": "TSMixerBatchNorm",
}
"""The classes in `tuner.integrations.neuralforecast`, whose import takes seconds, by variant."""

SCRIPT = """\
{headline}
#
# Needs {needs}. Run:  python THIS_FILE PANEL.csv
# The panel has a row for each series and time: unique_id, ds, y. Name exogenous columns in
# futr_exog_list, hist_exog_list or stat_exog_list below.
import sys

if __name__ == "__main__" and (len(sys.argv) != 2 or sys.argv[1] in ("-h", "--help")):
    print(f"usage: python {{sys.argv[0]}} PANEL.csv  (columns unique_id, ds, y)", file=sys.stderr)
    sys.exit(0 if len(sys.argv) == 2 else 2)

import numpy as np
import pandas as pd
import torch
from neuralforecast import NeuralForecast
from neuralforecast.losses.pytorch import MQLoss

{imports}

model = {model}(
{arguments}
    optimizer=torch.optim.AdamW,
    loss={loss}(quantiles={quantiles}),
)
# The study scaled each series by the range of its training rows.
nf = NeuralForecast(models=[model], freq={frequency}, local_scaler_type="minmax")


def read_panel(path):
    # The panel; where it is unfit, the script ends with one line that says why.
    try:
        panel = pd.read_csv(path)
    except (OSError, ValueError) as error:
        sys.exit(f"{{path}}: cannot be read as a CSV ({{' '.join(str(error).split())}})")
    missing = [name for name in ("unique_id", "ds", "y") if name not in panel.columns]
    if missing:
        found = ", ".join(map(str, panel.columns))
        gone = ", ".join(missing)
        sys.exit(f"{{path}}: has no column {{gone}}; expected unique_id, ds and y, found {{found}}")
    for name, read in (("ds", pd.to_datetime), ("y", pd.to_numeric)):
        try:
            panel[name] = read(panel[name])
        except (TypeError, ValueError) as error:
            sys.exit(f"{{path}}: column {{name}} cannot be read ({{' '.join(str(error).split())}})")
{series}    return panel


def without_crossing(forecast):
    # A network forecasts each level by itself; a higher one is not to have a lower value.
    levels = [name for name in forecast.columns if name not in ("unique_id", "ds")]
    forecast[levels] = np.sort(forecast[levels].to_numpy(), axis=1)
    return forecast


if __name__ == "__main__":
    panel = read_panel(sys.argv[1])
    nf.fit(panel)
    print(without_crossing(nf.predict()).to_string())
"""


SERIES = """\
    series = panel["unique_id"].nunique()
    if series != {n}:
        sys.exit(f"{{path}}: has {{series}} series; this network forecasts {n} together")
"""

QUANTILES_FIRST_LOSS = """


class QuantilesFirst(MQLoss):
    # This model returns one quantile of all series, then the next; MQLoss would read one series,
    # then the next, and mix them up.
    def domain_map(self, y_hat):
        quantiles = self.outputsize_multiplier
        return y_hat.reshape(*y_hat.shape[:2], quantiles, -1).transpose(-1, -2)

"""


def render(config: BestConfig) -> str:
    """The script."""
    given, name = library_arguments(config), config.architecture.model
    check_name(name)
    settings = dict(config.architecture.settings)
    of_library = library_class(name)
    loss, its_class = "MQLoss", ""
    if of_library in QUANTILES_FIRST:
        loss, its_class = "QuantilesFirst", QUANTILES_FIRST_LOSS
    needs = "tuner and neuralforecast" if of_library is None else "neuralforecast"
    if of_library is not None:
        model, imports = of_library, f"from neuralforecast.models import {of_library}"
    elif name in CLASSES:
        model = CLASSES[name]
        imports = f"from tuner.integrations.neuralforecast import {model}"
    else:
        own = settings if ":" in name else {}
        model = f"model_class(Architecture(model={literal(name)}, settings={literal(own)}))"
        imports = (
            "from tuner import Architecture\n"
            "from tuner.integrations.neuralforecast import model_class"
        )
    fixed = settings if ":" not in name else {}
    lines = [f"    {key}={literal(value)}," for key, value in given.items() if key not in fixed]
    if fixed:
        lines.append(f"    **{literal(fixed)},")
    if "lr_scheduler_kwargs" in given:
        lines.append("    lr_scheduler=torch.optim.lr_scheduler.ExponentialLR,")
    return SCRIPT.format(
        headline=comment(config),
        needs=needs,
        imports=imports + its_class,
        loss=loss,
        series=SERIES.format(n=given["n_series"]) if "n_series" in given else "",
        model=model,
        arguments="\n".join(lines),
        quantiles=literal(list(config.definition.task["quantiles"])),
        frequency=literal(config.definition.task["frequency"]),
    )
