"""A training loop with a fault that is planted, or repaired: what a stranger's script may look like.

    python benchmarks/profile/faulty_training.py --fault slow_transform [--repaired] [--full]

Prints the seconds of each epoch as one line of JSON. With `--asked`, it trains anew, in the same
process, for each line that it reads. It knows nothing of tuner.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

FAULTS = (
    "slow_transform",
    "slow_disk",
    "host_slices",
    "loop_per_series",
    "tiny_batch",
    "sync_each_step",
    "full_precision",
    "dead_branch",
    "falling_throughput",
)

SERIES, PAST = 16, 48
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Windows(Dataset):
    """On the device, and gathered a batch at a time; with `jitter` each window is scaled by a little,
    drawn on the host.
    """

    def __init__(self, count: int, *, jitter: bool = False) -> None:
        self.past = torch.randn(count, SERIES, PAST, device=DEVICE)
        self.target = self.past.mean(2)
        self.jitter = jitter

    def __len__(self) -> int:
        return len(self.past)

    def __getitems__(self, index: list[int]) -> tuple[Tensor, Tensor]:
        at = _on_device(torch.tensor(index))
        past, target = self.past[at], self.target[at]
        if self.jitter:
            draw = random.Random(index[0])
            scale = torch.tensor([draw.gauss(1.0, 0.01) for _ in index])
            past = past * _on_device(scale)[:, None, None]
        return past, target


def _on_device(host: Tensor) -> Tensor:
    """Without a wait: else the host would wait for the GPU here, in every training."""
    if DEVICE.type == "cuda":
        return host.pin_memory().to(DEVICE, non_blocking=True)
    return host


class SlowWindows(Dataset):
    """On the host, each scaled when it is asked for; ready, it was scaled before."""

    def __init__(self, count: int, work: int, *, ready: bool) -> None:
        self.raw = torch.randn(count, SERIES, PAST)
        self.work = work
        self.ready = [self._transformed(n) for n in range(count)] if ready else None

    def __len__(self) -> int:
        return len(self.raw)

    def __getitem__(self, n: int) -> tuple[Tensor, Tensor]:
        return self.ready[n] if self.ready is not None else self._transformed(n)

    def _transformed(self, n: int) -> tuple[Tensor, Tensor]:
        past = self.raw[n]
        for _ in range(self.work):
            past = (past - past.mean(1, keepdim=True)) / (past.std(1, keepdim=True) + 1e-6)
        return past, past.mean(1)


class OnADisk(Dataset):
    """Each window takes a while to come, in which nobody computes; ready, all were read before."""

    def __init__(self, count: int, *, ready: bool) -> None:
        self.past = torch.randn(count, SERIES, PAST)
        self.target, self.ready = self.past.mean(2), ready

    def __len__(self) -> int:
        return len(self.past)

    def __getitem__(self, n: int) -> tuple[Tensor, Tensor]:
        if not self.ready:
            time.sleep(0.002)
        return self.past[n], self.target[n]


class HostSlices:
    """Batches by a loop over series, each window cut from a list; or by its numbers, at once."""

    def __init__(self, count: int, batch: int, *, at_once: bool) -> None:
        rows = torch.randn(SERIES, count + PAST)
        self.rows, self.lists = rows.to(DEVICE), rows.tolist()
        self.batch, self.at_once = batch, at_once

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for index in torch.randperm(len(self.lists[0]) - PAST).split(self.batch):
            if self.at_once:
                at = _on_device(index)[:, None] + torch.arange(PAST, device=DEVICE)
                past = self.rows[:, at].transpose(0, 1)
            else:
                past = torch.tensor(
                    [[series[n : n + PAST] for series in self.lists] for n in index.tolist()]
                )
            yield past, past.mean(2)


class Shared(nn.Module):
    """One encoder for all series; with a dead branch, work that is multiplied by nothing."""

    def __init__(self, hidden: int, *, deep: int, dead: bool, dead_hidden: int) -> None:
        super().__init__()
        self.encoder = _mlp(hidden, deep)
        self.pooling = _mlp(dead_hidden) if dead else None

    def forward(self, past: Tensor) -> Tensor:
        out = self.encoder(past).squeeze(-1)
        if self.pooling is not None:
            out = out + 0.0 * self.pooling(past).squeeze(-1)
        return out


class ForEachSeries(nn.Module):
    """An encoder for each series: one after the other, or all of them at once."""

    def __init__(self, hidden: int, *, at_once: bool) -> None:
        super().__init__()
        self.at_once = at_once
        if at_once:
            self.inner = nn.Parameter(torch.randn(SERIES, PAST, hidden) / PAST**0.5)
            self.inner_bias = nn.Parameter(torch.zeros(SERIES, 1, hidden))
            self.outer = nn.Parameter(torch.randn(SERIES, hidden, 1) / hidden**0.5)
            self.outer_bias = nn.Parameter(torch.zeros(SERIES, 1, 1))
        else:
            self.encoders = nn.ModuleList(_mlp(hidden) for _ in range(SERIES))

    def forward(self, past: Tensor) -> Tensor:
        if not self.at_once:
            each = [encoder(past[:, n]) for n, encoder in enumerate(self.encoders)]
            return torch.cat(each, dim=1)
        by_series = past.transpose(0, 1)
        hidden = torch.relu(torch.baddbmm(self.inner_bias, by_series, self.inner))
        return torch.baddbmm(self.outer_bias, hidden, self.outer).squeeze(-1).transpose(0, 1)


def _mlp(hidden: int, deep: int = 0) -> nn.Module:
    layers = [nn.Linear(PAST, hidden), nn.ReLU()]
    for _ in range(deep):
        layers += [nn.Linear(hidden, hidden), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(hidden, 1))


def _network(fault: str, *, repaired: bool, full: bool) -> nn.Module:
    if fault == "loop_per_series":
        return ForEachSeries(64 if full else 16, at_once=repaired)
    # Of a training that waits in each step the GPU has so much to do that the host, with its
    # jitter, could be ready for the next step before the GPU has done this one.
    wide = {"full_precision": 2048, "sync_each_step": 20480, "tiny_batch": 256}
    # Of a loop on the host so little remains of a tiny network that caches decide how long it takes.
    hidden = wide.get(fault, 512) if full else 512 if fault == "host_slices" else 64
    dead = fault == "dead_branch" and not repaired
    deep = 2 if full and fault == "full_precision" else 0
    return Shared(hidden, deep=deep, dead=dead, dead_hidden=hidden * (32 if full else 4))


def _loader(options: argparse.Namespace) -> DataLoader | HostSlices:
    few = 8192 if options.fault == "falling_throughput" else 1024
    many = 16384 if options.fault in ("sync_each_step", "full_precision") else 32768
    count = options.windows or (many if options.full else few)
    if options.fault == "slow_transform":
        work = 4 if options.full else 2
        data = SlowWindows(min(count, 8192), work, ready=options.repaired)
        return DataLoader(data, batch_size=options.batch, shuffle=True)
    if options.fault == "slow_disk":
        data = OnADisk(min(count, 2048), ready=options.repaired)
        return DataLoader(data, batch_size=options.batch, shuffle=True)
    if options.fault == "host_slices":
        return HostSlices(count, options.batch, at_once=options.repaired)
    data = Windows(count, jitter=options.fault == "sync_each_step")
    return DataLoader(data, batch_size=options.batch, shuffle=True, collate_fn=lambda batch: batch)


def _first_contact(network: nn.Module, loader: DataLoader | HostSlices) -> None:
    """Libraries are loaded before any clock runs."""
    past, _ = (each.to(DEVICE) for each in next(iter(loader)))
    network(past).sum().backward()
    network.zero_grad(set_to_none=True)


def train(options: argparse.Namespace) -> list[float]:
    torch.manual_seed(0)
    loader = _loader(options)
    planted = not options.repaired
    network = _network(options.fault, repaired=options.repaired, full=options.full).to(DEVICE)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
    half = options.precision == "bf16"
    if options.precision == "tf32":
        torch.set_float32_matmul_precision("high")
    waits = options.fault == "sync_each_step" and planted
    keeps = options.fault == "falling_throughput"
    _first_contact(network, loader)
    kept: list[Tensor] = []
    losses = []
    seconds = []
    for _ in range(options.epochs):
        began = time.perf_counter()
        for given in loader:
            past, target = (each.to(DEVICE) for each in given)
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(DEVICE.type, dtype=torch.bfloat16, enabled=half):
                loss = nn.functional.mse_loss(network(past), target)
            loss.backward()
            optimizer.step()
            if waits:
                losses.append(loss.item())
            if keeps:
                kept.append(torch.randn(1 << (19 if options.full else 14), device=DEVICE))
                kept = kept if planted else kept[-1:]
                for each in kept:
                    each.mul_(0.999)
        if DEVICE.type == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fault", choices=FAULTS, required=True)
    parser.add_argument("--repaired", action="store_true")
    parser.add_argument("--full", action="store_true", help="sizes for a GPU")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--precision", choices=("fp32", "tf32", "bf16"), default="fp32")
    parser.add_argument("--windows", type=int)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--asked", action="store_true", help="train once for each line read")
    options = parser.parse_args()
    if options.batch is None:
        usual = 1024 if options.full else 64
        if options.fault == "falling_throughput":
            usual = 64  # a step is short, and an epoch has many of them
        options.batch = (8 if options.full else 2) if options.fault == "tiny_batch" else usual
    for _ in sys.stdin if options.asked else range(1):
        print(json.dumps(train(options)), flush=True)


if __name__ == "__main__":
    main()
