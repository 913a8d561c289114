"""The small network under Hugging Face's Trainer: a module that gives its loss, and one callback of tuner's."""

from __future__ import annotations

import tempfile
from typing import Any

import torch
from torch import Tensor, nn
from transformers import EarlyStoppingCallback, Trainer, TrainingArguments
from transformers.utils.logging import disable_progress_bar, set_verbosity_error

from tuner.callbacks import HuggingFaceReport
from tuner.data.windows import DeviceData

from small_data import data_of, final_of, loss_of  # isort: skip
from small_network import SmallNetwork  # isort: skip

BY_ITSELF = {"learning_rate": 1e-3, "dropout": 0.1, "hidden_size": 32, "batch_size": 64}


class Forecaster(nn.Module):
    def __init__(self, data: DeviceData, chosen: Any) -> None:
        super().__init__()
        self.data = data
        self.network = SmallNetwork(
            data.shapes, hidden_size=chosen["hidden_size"], dropout=chosen["dropout"]
        )

    def forward(self, index: Tensor, return_loss: bool = True) -> dict[str, Tensor]:
        """The Trainer asks a network whose inputs have no labels by the name `return_loss`."""
        del return_loss
        split = self.data.train if self.training else self.data.val
        return {"loss": loss_of(self.network, split.gather(index), self.data)}


def main() -> None:
    report = HuggingFaceReport()
    trial = report.trial
    chosen = BY_ITSELF if trial is None else trial.hyperparameters
    torch.set_num_threads(1)
    data = data_of(None if trial is None else trial.task)
    torch.manual_seed(0 if trial is None else trial.seed)
    module = Forecaster(data, chosen)
    folder = tempfile.mkdtemp() if trial is None else str(trial.checkpoint_folder)
    max_epochs = 3 if trial is None else trial.max_epochs
    optimizer = torch.optim.AdamW(module.parameters(), lr=chosen["learning_rate"], weight_decay=0.0)
    steps = -(-len(data.train) // chosen["batch_size"])
    decay = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.999 ** (step // steps))
    stopping = EarlyStoppingCallback(
        10 if trial is None else trial.patience, 1e-5 if trial is None else trial.min_delta
    )
    trainer = Trainer(
        module,
        TrainingArguments(
            folder,
            per_device_train_batch_size=chosen["batch_size"],
            per_device_eval_batch_size=len(data.val),
            num_train_epochs=max_epochs,
            max_grad_norm=1.0,
            eval_strategy="epoch",
            logging_strategy="epoch",
            save_strategy="epoch",
            save_total_limit=2,
            load_best_model_at_end=True,
            metric_for_best_model="eval_loss",
            greater_is_better=False,
            use_cpu=True,
            seed=0 if trial is None else trial.seed,
            report_to=[],
            disable_tqdm=True,
        ),
        train_dataset=[{"index": n} for n in range(len(data.train))],
        eval_dataset=[{"index": n} for n in range(len(data.val))],
        optimizers=(optimizer, decay),
        callbacks=[report, stopping],
    )
    trainer.train(resume_from_checkpoint=report.last_checkpoint)
    if not report.stopped:
        report.final(
            **final_of(module.network, data), converged=round(trainer.state.epoch) < max_epochs
        )


if __name__ == "__main__":
    set_verbosity_error()
    disable_progress_bar()
    main()
