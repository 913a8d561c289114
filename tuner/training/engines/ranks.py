"""Several devices that train one network together: each takes its part of every batch.

The process that trains is the first of these ranks; the others are children of it, each on a device
of its own. All have the same weights. Of each batch every rank takes its part, down to none of a
short last one, and the sum of their gradients is that of the whole batch on one device, so each
makes the same update. The first alone validates, decides and writes. Before each step it tells the
others to go on with a byte in a pipe, so that they stop between two steps where it does.

Where a rank dies, all do: the first one's process ends then, and the kernel ends the others.
"""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import logging
import math
import os
import signal
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

import psutil
import safetensors.torch
import torch
import torch.distributed as dist
from torch import Tensor, nn

from tuner.config import RunConfig, StopReason
from tuner.data.prepare import PreparedData
from tuner.data.windows import DeviceData, DeviceSplit, to_device
from tuner.devices import CpuCores, Gpu
from tuner.devices.lock import lock_folder, signed_in
from tuner.display.terminal import log_to_stderr
from tuner.errors import UsageError
from tuner.files.child import ChildProcess, end_with
from tuner.files.environment import without_secrets
from tuner.models.own_modules import hash_kept, keep_to_file
from tuner.models.registry import build_model
from tuner.training.batching import batches
from tuner.training.clock import arithmetic, seeded
from tuner.training.engines.eager import EagerEngine, Poll, TrainedEpoch, show_windows
from tuner.training.model_state import copy_together
from tuner.training.stage_marks import Stage
from tuner.training.step import Step

_ENTRY = "from tuner.training.engines.ranks import main; main()"
GO, STOP = b"\1", b"\0"
SAME_FAILURE_S = 5.0
"""For the first rank to fail as another one did, and to say so as its trial's result."""
ENDING_S = 10.0
"""For the thread that sees a rank's end to end this process."""
_log = logging.getLogger(__name__)


# A step of several ranks.


SumUp = Callable[[Tensor], None]
"""Adds up a tensor over all ranks, in place."""


class RankedStep(Step):
    """A step on this rank's part of each batch, which ends with the weights of all.

    Args:
        rank: of this process, from 0.
        ranks: how many there are.
        sum_up: over all of them.
    """

    def __init__(
        self,
        config: RunConfig,
        data: DeviceData,
        model: nn.Module,
        *,
        rank: int,
        ranks: int,
        sum_up: SumUp,
    ) -> None:
        super().__init__(config, data, model)
        self._rank, self._ranks, self._sum_up = rank, ranks, sum_up
        self._all_there = torch.ones(
            len(self._parameters), dtype=self._quantiles.dtype, device=self.device
        )

    def part_of(self, index: Tensor) -> Tensor:
        """This rank's, which is none where there are more ranks than windows."""
        return index.tensor_split(self._ranks)[self._rank]

    def train_on(self, split: DeviceSplit, index: Tensor, at_once: int) -> Tensor:
        """As of one device: `at_once` windows go through the network of all ranks together."""
        self._optimizer.zero_grad(set_to_none=True)
        self.mark(Stage.OPTIMISER)
        mean = torch.zeros((), dtype=self._quantiles.dtype, device=self.device)
        for together in batches(index, at_once):
            part = self.part_of(together)
            if len(part):
                batch = self.gathered(split, part)
                self.mark(Stage.DATA)
                mean += self._backward(batch, share=len(part) / len(index))
        mean = self._summed(mean)
        self.mark(Stage.BACKWARD)
        self._update()
        return mean

    @torch.no_grad()
    def _summed(self, mean: Tensor) -> Tensor:
        """Has each parameter hold its gradient over all ranks; the loss over all of them.

        Which parameters have one is summed, too: what no rank used is left without, as on one
        device, and the answer is waited for only where this rank lacks one.
        """
        mine = [parameter.grad for parameter in self._parameters]
        there = self._all_there
        if any(grad is None for grad in mine):
            there = torch.tensor([float(each is not None) for each in mine]).to(there)
        parts = [
            (torch.zeros_like(p) if grad is None else grad).reshape(-1).to(mean.dtype)
            for p, grad in zip(self._parameters, mine, strict=True)
        ]
        flat = torch.cat([*parts, there, mean.reshape(1)])
        self._sum_up(flat)
        used = [True] * len(mine)
        if there is not self._all_there:
            used = [n > 0 for n in flat[-1 - len(mine) : -1].tolist()]
        views = torch.split(flat[: -1 - len(mine)], [p.numel() for p in self._parameters])
        held, summed = [], []
        for parameter, view, is_used in zip(self._parameters, views, used, strict=True):
            if is_used:  # in its own memory: its place in `flat` need not be aligned
                if parameter.grad is None:
                    parameter.grad = torch.empty_like(parameter)
                held.append(parameter.grad)
                summed.append(view.view_as(parameter))
        copy_together(held, summed)
        return flat[-1]


# What the first rank tells the others.


@dataclass(frozen=True, slots=True)
class _Join:
    """The first thing: who it is, where, and with which data, by its hash."""

    rank: int
    ranks: int
    device: Gpu | CpuCores
    store: int
    """The descriptor of the file in which they meet."""
    prepared: Mapping[str, PreparedData]


@dataclass(frozen=True, slots=True)
class _Begin:
    """A training. `code` are the files of the user's that it runs, with the hash that each has in
    the first rank's process.
    """

    config: RunConfig
    data_hash: str
    code: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class _State:
    """Weights, buffers and the optimiser's moments, to go on from."""

    content: bytes


@dataclass(frozen=True, slots=True)
class _Epoch:
    """An epoch. The order of its windows follows over the devices, a byte before each step."""

    learning_rate: float
    seed: int
    n_windows: int


# The first rank's side.


@dataclass(slots=True, eq=False)
class _Other:
    """Another rank: its process, and what it is told through."""

    child: ChildProcess
    line: Connection
    closing: threading.Event = field(default_factory=threading.Event)

    def watch(self) -> None:
        """Ends this process with the other one, unless that was to end."""
        self.child.popen.wait()
        if not self.closing.is_set():
            _log.error("%s; this training ends with it", self.child.how_it_ended())
            logging.shutdown()
            os._exit(1)


class Ranks:
    """The ranks of a process that trains, which is the first of them. Its main thread alone may use
    them: the others end with the thread that started them.

    Args:
        device: all of them together.
        prepared: what they train on, by data hash.
    """

    def __init__(self, device: Gpu | CpuCores, prepared: Mapping[str, PreparedData]) -> None:
        self._devices: Sequence[Gpu | CpuCores] = device.devices
        self._prepared = prepared
        self._others: list[_Other] = []
        self._trains = False

    def __len__(self) -> int:
        return len(self._devices)

    @property
    def pids(self) -> tuple[int, ...]:
        """Of the others' processes."""
        return tuple(other.child.popen.pid for other in self._others)

    def cpu_s(self) -> float:
        """What the others have used of their cores so far."""
        total = 0.0
        for pid in self.pids:
            with contextlib.suppress(psutil.Error):
                used = psutil.Process(pid).cpu_times()
                total += used.user + used.system
        return total

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """Around one training: the others are there, and this process keeps to its own cores. One
        that fails in the middle ends the others, who know nothing of it.
        """
        first, before = self._devices[0], os.sched_getaffinity(0)
        if isinstance(first, CpuCores):
            _keep_to(first.cores)
        try:
            self.start()
            yield
        finally:
            _keep_to(before)
            if self._trains:
                self.close()

    def engine(
        self, config: RunConfig, data: DeviceData, model: nn.Module, fallback: str
    ) -> EagerEngine:
        """What trains on all of them.

        Raises:
            UsageError: a network that would be another one on several devices.
        """
        if any(isinstance(each, _OF_A_BATCH) for each in model.modules()):
            raise UsageError(
                f"gpus_per_trial {len(self)}: the network normalises over its batch (BatchNorm), "
                "of which each device would see a part only; choose gpus_per_trial 1, or another "
                "norm"
            )
        if self._trains:  # it ran out of memory, and is tried once more
            self.close()
            self.start()
        loss = config.training.loss
        named = (config.architecture.model, *([loss.term] if loss is not None else ()))
        code = tuple((each, hash_kept(each)) for each in named)
        self._trains = True
        self.tell(_Begin(config, data.data_hash, code))
        return _FirstEngine(config, data, model, self, fallback)

    def tell(self, said: object) -> None:
        """All of the others."""
        with self.ending_together():
            for other in self._others:
                other.line.send(said)

    def go(self, *, on: bool) -> None:
        """Have them make the next step, or stop."""
        with self.ending_together():
            for other in self._others:
                other.line.send_bytes(GO if on else STOP)

    def agree(self, state: Mapping[str, Tensor]) -> None:
        """Have them go on from this state; returns once they do."""
        copies = {name: tensor.detach().cpu().clone() for name, tensor in state.items()}
        self.tell(_State(safetensors.torch.save(copies)))
        self._hear()

    def sum_up(self, tensor: Tensor) -> None:
        with self.ending_together():
            dist.all_reduce(tensor)

    def finish(self) -> None:
        """The training is over; the others wait for the next one."""
        self.tell(None)
        self._trains = False

    def close(self) -> None:
        """End the others."""
        for other in self._others:
            other.closing.set()
            other.child.end()
            other.line.close()
        if self._others and dist.is_initialized():
            if isinstance(self._devices[0], Gpu) and dist.group.WORLD is not None:
                dist.group.WORLD.abort()  # else it waits for those who are gone
            dist.destroy_process_group()
        self._others, self._trains = [], False

    def start(self) -> None:
        """Have the others there; returns once they can train."""
        if self._others:
            return
        with tempfile.TemporaryFile() as meeting:
            # Never closed: torch writes to it once more, whenever it takes its part of it apart.
            store = os.dup(meeting.fileno())
        for rank, device in enumerate(self._devices[1:], 1):
            self._others.append(_started(device, store))
            with self.ending_together():
                join = _Join(rank, len(self), device, store, self._prepared)
                self._others[-1].line.send(join)
        _join(store, 0, len(self), self._devices[0])
        self._hear()

    def _hear(self) -> None:
        """Wait until each has done what it was told."""
        with self.ending_together():
            for other in self._others:
                other.line.recv()

    @contextlib.contextmanager
    def ending_together(self) -> Iterator[None]:
        """What fails in here because a rank has ended is no failure of the trial: the thread that
        watches that rank ends this process.
        """
        try:
            yield
        except (RuntimeError, EOFError, ConnectionError):
            time.sleep(ENDING_S)
            raise


_OF_A_BATCH = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


def _keep_to(cores: Iterable[int]) -> None:
    """Have all threads of this process run on these cores only."""
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended
            os.sched_setaffinity(int(thread.name), cores)


def _started(device: Gpu | CpuCores, store: int) -> _Other:
    ours, theirs = Pipe()
    environment = without_secrets(os.environ)
    if isinstance(device, CpuCores):
        environment["OMP_NUM_THREADS"] = str(len(device.cores))
    else:
        environment["CUDA_VISIBLE_DEVICES"] = device.uuid
    try:
        # In this process's group: who kills that kills all.
        child = ChildProcess(
            f"the process that trains on {device.label} with others",
            [sys.executable, "-c", _ENTRY, str(theirs.fileno()), str(os.getpid())],
            environment=environment,
            passed=[theirs.fileno(), store],
            group=False,
        )
    finally:
        theirs.close()
    other = _Other(child, ours)
    threading.Thread(target=other.watch, name="rank", daemon=True).start()
    return other


def _join(store: int, rank: int, ranks: int, device: Gpu | CpuCores) -> None:
    """Returns once all have joined. They meet in a file that is open to them alone."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    backend = "nccl" if isinstance(device, Gpu) else "gloo"
    meeting = dist.FileStore(f"/proc/self/fd/{store}", ranks)  # type: ignore[attr-defined]
    dist.init_process_group(backend, store=meeting, rank=rank, world_size=ranks)


class _FirstEngine(EagerEngine):
    """The first rank's: tells the others what it does itself."""

    def __init__(
        self, config: RunConfig, data: DeviceData, model: nn.Module, ranks: Ranks, fallback: str
    ) -> None:
        step = functools.partial(RankedStep, rank=0, ranks=len(ranks), sum_up=ranks.sum_up)
        super().__init__(config, data, model, fallback, step=step)
        self._ranks = ranks

    def warm_up(self) -> None:
        super().warm_up()
        self._ranks.agree(self.state())

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        super().load(tensors)
        self._ranks.agree(self.state())

    def train_epoch(self, order: Tensor, learning_rate: float, poll: Poll) -> TrainedEpoch:
        # A checkpoint has this rank's random state: what the others draw follows from it.
        on_gpu = self._device.type == "cuda"
        random = torch.cuda.get_rng_state(self._device) if on_gpu else torch.get_rng_state()
        seed = zlib.crc32(random.numpy().tobytes())
        self._ranks.tell(_Epoch(learning_rate, seed, len(order)))
        with self._ranks.ending_together():
            dist.broadcast(order, 0)
        left = math.ceil(len(order) / self._update_size)
        self._ranks.go(on=True)

        def polled() -> StopReason | None:
            nonlocal left
            left -= 1
            stopped = poll()
            if left:
                self._ranks.go(on=stopped is None)
            return stopped

        return super().train_epoch(order, learning_rate, polled)

    def close(self) -> None:
        super().close()
        self._ranks.finish()


# Another rank's side.


def main() -> None:
    """Follow the first rank, whose descriptor and process id are the arguments, until it hangs up
    or dies.
    """
    descriptor, parent = (int(word) for word in sys.argv[1:])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    end_with(parent, signal.SIGKILL)
    log_to_stderr()
    faulthandler.enable()
    line = Connection(descriptor)
    try:
        with signed_in(lock_folder()):
            _follow(line)
    except (EOFError, ConnectionError):
        return
    except Exception:  # noqa: BLE001 - whatever it is, it ends this process
        _log.exception("a process that trains with others failed")
        with contextlib.suppress(OSError):
            line.poll(SAME_FAILURE_S)
        raise SystemExit(1) from None


def _follow(line: Connection) -> None:
    join: _Join = line.recv()
    target = "cuda:0"
    if isinstance(join.device, CpuCores):
        target = "cpu"
        _keep_to(join.device.cores)
        torch.set_num_threads(len(join.device.cores))
    data = {name: to_device(each, target) for name, each in join.prepared.items()}
    _join(join.store, join.rank, join.ranks, join.device)
    line.send(None)
    while True:
        begin: _Begin = line.recv()
        _train(begin, data[begin.data_hash], join, line)


def _train(begin: _Begin, data: DeviceData, join: _Join, line: Connection) -> None:
    """One training, as the first rank says."""
    config, device = begin.config, data.minimum.device
    data = data.seeing(config.hyperparameters.input_size)
    for reference, sha256 in begin.code:
        keep_to_file(reference, sha256)
    step = functools.partial(RankedStep, rank=join.rank, ranks=join.ranks, sum_up=dist.all_reduce)
    with arithmetic(config.training.precision), seeded(config.seed, device):
        model = build_model(config.architecture, data.shapes, config.hyperparameters).to(device)
        show_windows(model, data)
        engine = EagerEngine(config, data, model, step=step)
        engine.warm_up()
        while True:
            match line.recv():
                case _State(content):
                    engine.load(safetensors.torch.load(content))
                    line.send(None)
                case _Epoch() as epoch:
                    _train_epoch(engine, epoch, config, join.rank, line)
                case _:
                    engine.close()
                    return


def _train_epoch(
    engine: EagerEngine, epoch: _Epoch, config: RunConfig, rank: int, line: Connection
) -> None:
    device = next(engine.model.parameters()).device
    torch.manual_seed(epoch.seed + rank)
    order = torch.empty(epoch.n_windows, dtype=torch.int64, device=device)
    dist.broadcast(order, 0)
    left = math.ceil(epoch.n_windows / (config.hyperparameters.batch_size * config.accumulate))

    def poll() -> StopReason | None:
        nonlocal left
        left -= 1
        return None if left == 0 or line.recv_bytes() == GO else StopReason.INTERRUPTED

    line.recv_bytes()
    engine.train_epoch(order, epoch.learning_rate, poll)
