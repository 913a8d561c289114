"""The small network as a Lightning project: a module, a trainer, and one callback of tuner's."""

from __future__ import annotations

import logging
import warnings
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import EarlyStopping, ModelCheckpoint
from torch import Tensor
from torch.utils.data import DataLoader

from tuner.callbacks import LightningReport
from tuner.data.windows import DeviceData

from small_data import data_of, final_of, loss_of  # isort: skip
from small_network import SmallNetwork  # isort: skip

BY_ITSELF = {"learning_rate": 1e-3, "dropout": 0.1, "hidden_size": 32, "batch_size": 64}


class Forecaster(pl.LightningModule):
    def __init__(self, data: DeviceData, chosen: Any) -> None:
        super().__init__()
        self.data, self.rate = data, chosen["learning_rate"]
        self.network = SmallNetwork(
            data.shapes, hidden_size=chosen["hidden_size"], dropout=chosen["dropout"]
        )

    def training_step(self, index: Tensor) -> Tensor:
        return loss_of(self.network, self.data.train.gather(index), self.data)

    def validation_step(self, index: Tensor) -> None:
        loss = loss_of(self.network, self.data.val.gather(index), self.data)
        self.log("val_loss", loss, batch_size=len(index))

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.rate, weight_decay=0.0)
        return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.999)]


def main() -> None:
    report = LightningReport()
    trial = report.trial
    chosen = BY_ITSELF if trial is None else trial.hyperparameters
    pl.seed_everything(0 if trial is None else trial.seed, verbose=False)
    torch.set_num_threads(1)
    data = data_of(None if trial is None else trial.task)
    module = Forecaster(data, chosen)
    folder = None if trial is None else trial.checkpoint_folder
    best = ModelCheckpoint(folder, "best", monitor="val_loss", save_on_train_epoch_end=True)
    last = ModelCheckpoint(folder, "last", save_top_k=1, save_on_train_epoch_end=True)
    stopping = EarlyStopping(
        "val_loss",
        patience=10 if trial is None else trial.patience,
        min_delta=1e-5 if trial is None else trial.min_delta,
    )
    trainer = pl.Trainer(
        max_epochs=3 if trial is None else trial.max_epochs,
        accelerator="cpu",
        gradient_clip_val=1.0,
        callbacks=[report, stopping, best, last],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(
        module,
        DataLoader(range(len(data.train)), batch_size=chosen["batch_size"], shuffle=True),
        DataLoader(range(len(data.val)), batch_size=len(data.val)),
        ckpt_path=report.last_checkpoint,
    )
    if not report.stopped:
        module.load_state_dict(torch.load(best.best_model_path, weights_only=False)["state_dict"])
        converged = stopping.wait_count >= stopping.patience
        report.final(**final_of(module.network, data), converged=converged)


if __name__ == "__main__":
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore")
    main()
