"""The fused network's kernels one by one, beside their floors and the plain network's same parts.

On a CUDA device: every kernel of a training step, as it was launched, captured ten times in a graph and replayed;
the median of the replays' times by events. With --dry-run, on any machine: what they compile to for Hopper.

    python benchmarks/kernels.py [--hidden 64] [--batch 256] [--precision fp32|tf32] [--products ieee]
    python benchmarks/kernels.py --dry-run [--hidden 64]
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from tuner.config import ModelShapes, Precision
from tuner.models.fused import FusedTSMixer
from tuner.models.tsmixer import DESIGNS, TSMixer

SHAPES = ModelShapes(input_size=168, horizon=24, n_targets=7, n_past=0, n_future=6, n_static=1, n_quantiles=17)
BYTES_PER_S = 4.3e12
FLOP_PER_S = {"ieee": 67e12, "tf32x3": 400e12 / 3, "tf32": 400e12}
IN_A_GRAPH = 10
REPLAYS = 30
SPLITS = 16

PREDICTED_US = {
    "draw_masks": 6, "enter_forward": 16, "block_forward 192": 22, "block_forward 128": 18, "head_forward": 5,
    "head_backward": 6, "block_backward 128": 20, "block_backward 192": 24, "enter_backward": 14,
    "sum_products": 18, "sum_columns": 12, "sum_splits": 4,
}  # fmt: skip
"""At hidden 64, batch 256, before any measurement; how, is in docs/log.md."""


class Launch(NamedTuple):
    """A kernel as the network started it."""

    name: str
    kernel: Any
    grid: Any
    arguments: tuple[Any, ...]
    options: dict[str, Any]

    def again(self) -> None:
        self.kernel.run(*self.arguments, grid=self.grid, warmup=False, **self.options)

    def compiled(self) -> Any:
        return self.kernel.run(*self.arguments, grid=self.grid, warmup=True, **self.options)


class Hopper:
    """A device to compile for, where there is none."""

    def get_current_target(self) -> Any:
        return triton.backends.compiler.GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:  # noqa: ARG002
        return 0


@contextmanager
def recorded(*, started: bool) -> Iterator[list[Launch]]:
    """In here launches are recorded, and started too where there is a device."""
    launches: list[Launch] = []
    of_class = triton.runtime.jit.JITFunction
    plain = of_class.__getitem__

    def record(kernel: Any, grid: Any) -> Callable[..., None]:
        def launch(*arguments: Any, **options: Any) -> None:
            name = kernel.fn.__name__ + (f" {options['B'].width}" if "B" in options else "")
            launches.append(Launch(name, kernel, grid, arguments, options))
            if started:
                launches[-1].again()

        return launch

    of_class.__getitem__ = record
    try:
        yield launches
    finally:
        of_class.__getitem__ = plain


def floors(hidden: int, batch: int, products: str, n_parameters: int) -> dict[str, tuple[float, float, float]]:
    """Of each kernel: megabytes it must read and write, millions of operations, microseconds of the larger of both."""
    t, length, columns, future = SHAPES.horizon, SHAPES.input_size, 13, SHAPES.n_future
    plane, outputs = t * hidden, t * SHAPES.n_targets * SHAPES.n_quantiles
    square = 2 * plane * hidden
    window, projection = length * columns, 2 * t * length * columns

    def enter(n: int) -> int:
        return 2 * t * n * 2 * hidden

    numbers: dict[str, tuple[float, float]] = {
        "draw_masks": (17 * plane / 4, 0),
        "enter_forward": (
            2 * window + 2 * t * (columns + future) + 7 * plane,
            projection + enter(columns) + enter(future) + 2 * square,
        ),
        "head_forward": (plane + 2 * outputs, 2 * outputs * hidden),
        "head_backward": (plane + 3 * outputs, 2 * outputs * hidden),
        "enter_backward": (12 * plane + window + t * length, 2 * square + enter(columns) + projection),
    }
    sums, columns_read = 2 * (2 * plane + plane * 2) + t * (columns + future) + outputs + plane, 4 * plane + t * length
    flop = enter(columns) + enter(future) + 2 * square + 2 * outputs * hidden
    for slots in (3, 2):
        width = slots * plane
        name = f"{slots * hidden}"
        time = 2 * t * width
        numbers[f"block_forward {name}"] = (3.5 * width + 7 * plane, 2 * square + time + enter(slots * hidden))
        numbers[f"block_backward {name}"] = (
            4.25 * width + 9.5 * plane,
            2 * square + enter(slots * hidden) + 2 * time,
        )
        sums += 6 * plane + width
        flop += 2 * square + enter(slots * hidden)
        columns_read += 4 * plane + 2 * width
    partial = SPLITS * n_parameters / batch
    numbers["sum_products"] = (sums + partial, flop)
    numbers["sum_columns"] = (columns_read + partial / 4, 0)
    numbers["sum_splits"] = (partial + n_parameters / batch, 0)
    found = {}
    for name, (n, operations) in numbers.items():
        seconds = max(4 * n * batch / BYTES_PER_S, operations * batch / FLOP_PER_S[products])
        found[name] = (4 * n * batch / 1e6, operations * batch / 1e6, 1e6 * seconds)
    return found


def replayed_us(work: Callable[[], object], times: int = 1) -> float:
    """The median time of one of `times` repetitions in a captured graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())  # which may still be filling what the work reads
    with torch.cuda.stream(stream):
        for _ in range(3):
            work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(times):
            work()
    found = []
    for _ in range(REPLAYS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        found.append(1e3 * begin.elapsed_time(end) / times)
    return statistics.median(found[5:])


def batch_of(n: int, device: str) -> tuple[Tensor, Tensor, Tensor]:
    shapes = ((n, SHAPES.input_size, 13), (n, SHAPES.horizon, SHAPES.n_future), (n, SHAPES.n_static))
    past, future, static = (torch.randn(shape, device=device) for shape in shapes)
    return past, future, static


def plain_parts(model: TSMixer, batch: tuple[Tensor, Tensor, Tensor]) -> dict[str, Callable[[], Tensor]]:
    """The plain network's parts, each from planes of its own, with what a kernel of the fused one covers."""
    past, future, static = batch
    n, horizon, hidden = len(past), SHAPES.horizon, model.past_mixing.widths[0]
    norm, projection, n_targets = model.reversible_norm, model.time_projection, SHAPES.n_targets

    def entry() -> Tensor:
        targets, _ = norm(past[..., :n_targets])
        history = torch.cat([targets, past[..., n_targets:]], dim=-1)
        mixed = model.past_mixing(model.layout.enter(norm.after_projection(projection(history), projection)))
        assert model.future_mixing is not None
        return torch.cat([mixed, model.future_mixing(model.layout.enter(future))], dim=model.layout.feature_axis)

    def block_part(number: int, width: int) -> Callable[[], Tensor]:
        plane = model.layout.enter(torch.randn(n, horizon, width, device=past.device)).requires_grad_()
        block: Any = model.blocks[number]

        def run() -> Tensor:
            mixed = block.static_mixing(model.layout.one_hour(static), horizon=horizon)
            result: Tensor = block([plane, mixed])
            return result

        return run

    last = model.layout.enter(torch.randn(n, horizon, hidden, device=past.device)).requires_grad_()
    statistics_of_window = norm(past[..., :n_targets])[1]

    def head() -> Tensor:
        forecast = model.layout.leave(model.head(last)).reshape(n, horizon, n_targets, SHAPES.n_quantiles)
        restored: Tensor = norm.inverse(forecast, statistics_of_window)
        return restored

    return {
        "enter": entry,
        f"block {3 * hidden}": block_part(0, 2 * hidden),
        f"block {2 * hidden}": block_part(1, hidden),
        "head": head,
        "whole": lambda: model(past, future, static),
    }


def forward_and_backward(run: Callable[[], Tensor], parameters: list[Tensor]) -> Callable[[], object]:
    with torch.no_grad():
        slope = torch.randn_like(run())
    return lambda: torch.autograd.grad(run(), parameters, slope, allow_unused=True)


def error_of(model: TSMixer, products: str, batch: tuple[Tensor, Tensor, Tensor]) -> tuple[float, float]:
    """Distance of the gradient from that in double precision, by its norm: of the fused network, of the plain one."""
    model.eval()
    parameters = list(model.parameters())

    def gradient(network: Callable[..., Tensor], inputs: tuple[Tensor, ...]) -> list[Tensor]:
        forecast = network(*inputs)
        return list(torch.autograd.grad(forecast.square().mean(), parameters))

    found = [gradient(FusedTSMixer(model, products=products), batch), gradient(model, batch)]
    model.double()
    parameters = list(model.parameters())
    exact = gradient(model, tuple(tensor.double() for tensor in batch))
    model.float().train()
    size = float(torch.stack([g.norm() for g in exact]).norm())
    off = [float(torch.stack([(a - b).norm() for a, b in zip(g, exact, strict=True)]).norm()) for g in found]
    return off[0] / size, off[1] / size


def resources(launch: Launch) -> str:
    """Registers, bytes of stack (spills) and shared memory, warps; instructions of the tensor cores and of fp32."""
    kernel = launch.compiled()
    tools = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        usage = subprocess.run(
            [tools / "cuobjdump", "-res-usage", file.name], capture_output=True, text=True, check=True
        ).stdout
        code = subprocess.run([tools / "nvdisasm", "-c", file.name], capture_output=True, text=True, check=True).stdout
    registers, stack = (re.search(rf"{key}:(\d+)", usage) for key in ("REG", "STACK"))
    assert registers is not None
    assert stack is not None
    counts = [len(re.findall(rf"\b{name}", code)) for name in ("HMMA", "HGMMA", "FFMA")]
    figures = [registers[1], stack[1], kernel.metadata.shared, kernel.metadata.num_warps, *counts]
    return " | ".join(str(figure) for figure in figures)


def dry_run(arguments: argparse.Namespace) -> None:
    triton.runtime.driver.set_active(Hopper())
    _, fused, batch = networks(arguments, "cpu")
    with recorded(started=False) as launches:
        fused(*batch).sum().backward()
    products, n = fused.plan.sizes.products, fused.tables.n_parameters
    found = floors(arguments.hidden, arguments.batch, products, n)
    print(
        f"hidden {arguments.hidden}, batch {arguments.batch}, {products}; compiled for sm_90 by triton {triton.__version__}\n"
    )
    print(
        "| kernel | MB | MFLOP | floor, us | predicted, us | registers | stack | shared | warps | HMMA | HGMMA | FFMA |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    for launch in launches:
        megabytes, operations, floor = found[launch.name]
        predicted = prediction(launch.name, arguments)
        print(
            f"| {launch.name} | {megabytes:.1f} | {operations:.0f} | {floor:.1f} | {predicted} | {resources(launch)} |"
        )


def prediction(name: str, arguments: argparse.Namespace) -> str:
    told = (arguments.hidden, arguments.batch) == (64, 256)
    return str(PREDICTED_US[name]) if told else ""


def networks(arguments: argparse.Namespace, device: str) -> tuple[TSMixer, FusedTSMixer, tuple[Tensor, Tensor, Tensor]]:
    torch.manual_seed(0)
    model = TSMixer(SHAPES, DESIGNS[arguments.variant], hidden_size=arguments.hidden, dropout=0.1).to(device)
    fused = FusedTSMixer(model, Precision(arguments.precision), arguments.products)
    return model, fused, batch_of(arguments.batch, device)


def measure(arguments: argparse.Namespace) -> None:
    torch.backends.cuda.matmul.allow_tf32 = arguments.precision == "tf32"
    model, fused, batch = networks(arguments, "cuda")
    parameters = list(model.parameters())
    run = forward_and_backward(lambda: fused(*batch), parameters)
    run()
    with recorded(started=True) as launches:
        run()
    products = fused.plan.sizes.products
    found = floors(arguments.hidden, arguments.batch, products, fused.tables.n_parameters)
    print(f"{torch.cuda.get_device_name()}, hidden {arguments.hidden}, batch {arguments.batch}, {products}\n")
    print("| kernel | MB | MFLOP | floor, us | predicted, us | measured, us |\n|---|---|---|---|---|---|")
    total = 0.0
    # Forward launches come before those of the backward pass, whose inputs stay as they are: each can run again.
    for launch in launches:
        megabytes, operations, floor = found[launch.name]
        time = replayed_us(launch.again, IN_A_GRAPH)
        total += time
        predicted = prediction(launch.name, arguments)
        print(f"| {launch.name} | {megabytes:.1f} | {operations:.0f} | {floor:.1f} | {predicted} | {time:.1f} |")
    print(f"| sum | | | {sum(f[2] for f in found.values()):.1f} | | {total:.1f} |\n")
    print("| part | plain forward, us | plain forward and backward, us |\n|---|---|---|")
    for name, part in plain_parts(model, batch).items():
        print(f"| {name} | {replayed_us(part):.1f} | {replayed_us(forward_and_backward(part, parameters)):.1f} |")
    with torch.no_grad():
        whole = replayed_us(lambda: fused(*batch))
    print(f"| whole, fused | {whole:.1f} | {replayed_us(run):.1f} |\n")
    for name in FLOP_PER_S:
        ours, plain = error_of(model, name, batch)
        print(f"{name}: gradient off by {ours:.1e} of its norm, the plain network's by {plain:.1e}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--variant", default="original", choices=[name for name in DESIGNS if name != "batchnorm"])
    parser.add_argument("--precision", default="fp32", choices=["fp32", "tf32"])
    parser.add_argument("--products", default=None, choices=list(FLOP_PER_S))
    parser.add_argument("--dry-run", action="store_true")
    arguments = parser.parse_args()
    if arguments.dry_run:
        dry_run(arguments)
    elif not torch.cuda.is_available():
        parser.error("times need a CUDA device; --dry-run compiles without one")
    else:
        measure(arguments)


if __name__ == "__main__":
    main()
