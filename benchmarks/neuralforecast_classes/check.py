"""neuralforecast's own check of a model class, on every variant's: `make check-neuralforecast`.

The check's data generator needs pandas below 3, as neuralforecast's own models do in it; our code runs on both.
"""

from __future__ import annotations

import logging
import warnings

import pandas as pd
import torch

from tuner.integrations.neuralforecast import MODELS


def main() -> None:
    from neuralforecast.common._model_checks import check_model

    torch.set_num_threads(1)
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    print(f"pandas {pd.__version__}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for variant, model_class in MODELS.items():
            check_model(model_class, ["airpassengers"])
            print(f"{variant}: {model_class.__name__} passes")


if __name__ == "__main__":
    main()
