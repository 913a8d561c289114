"""The small network in a loop of one's own: AdamW, clipped gradients, early stopping, checkpoints."""

from __future__ import annotations

import copy
from pathlib import Path

import torch

from tuner.callbacks import Report, trial_to_run

from small_data import data_of, final_of, loss_of  # isort: skip
from small_network import SmallNetwork  # isort: skip

BY_ITSELF = {"learning_rate": 1e-3, "dropout": 0.1, "hidden_size": 32, "batch_size": 64}


def main() -> None:
    trial, report = trial_to_run(), Report()
    chosen = BY_ITSELF if trial is None else trial.hyperparameters
    max_epochs, patience = (3, 10) if trial is None else (trial.max_epochs, trial.patience)
    min_delta = 1e-5 if trial is None else trial.min_delta
    kept = None if trial is None else trial.checkpoint_folder / "last.pt"
    torch.set_num_threads(1)
    data = data_of(None if trial is None else trial.task)
    torch.manual_seed(0 if trial is None else trial.seed)
    network = SmallNetwork(
        data.shapes, hidden_size=chosen["hidden_size"], dropout=chosen["dropout"]
    )
    optimizer = torch.optim.AdamW(
        network.parameters(), lr=chosen["learning_rate"], weight_decay=0.0
    )
    epoch, lowest, best_epoch, best = 0, float("inf"), 0, copy.deepcopy(network.state_dict())
    if kept is not None and kept.exists():
        state = torch.load(kept)
        epoch, lowest, best_epoch, best = (
            state[name] for name in ("epoch", "lowest", "best_epoch", "best")
        )
        network.load_state_dict(state["network"])
        optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["random"])

    report.started()
    while epoch < max_epochs and epoch - best_epoch < patience and not report.should_stop:
        epoch += 1
        network.train()
        losses = []
        for index in torch.randperm(len(data.train)).split(chosen["batch_size"]):
            loss = loss_of(network, data.train.gather(index), data)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.detach())
        network.eval()
        with torch.no_grad():
            val_loss = float(loss_of(network, data.val.gather(torch.arange(len(data.val))), data))
        if val_loss < lowest - min_delta:
            lowest, best_epoch, best = val_loss, epoch, copy.deepcopy(network.state_dict())
        report.epoch(epoch, train_loss=float(torch.stack(losses).mean()), val_loss=val_loss)
        for group in optimizer.param_groups:
            group["lr"] *= 0.999
        if kept is not None:
            save(
                kept,
                {
                    "epoch": epoch,
                    "lowest": lowest,
                    "best_epoch": best_epoch,
                    "best": best,
                    "network": network.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "random": torch.get_rng_state(),
                },
            )

    if not report.should_stop:
        network.load_state_dict(best)
        converged = epoch - best_epoch >= patience
        report.final(**final_of(network, data), converged=converged, epochs=epoch)


def save(path: Path, state: dict[str, object]) -> None:
    """There whole or as it was before: this program may be killed at any moment."""
    half = path.with_suffix(".half")
    torch.save(state, half)
    half.replace(path)


if __name__ == "__main__":
    main()
