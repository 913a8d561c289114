"""The fused network's kernels one by one, beside their floors and the plain network's same parts.

On a CUDA device: every kernel of a training step, as it was launched, captured ten times in a graph and replayed;
the median of the replays' times by events. With --dry-run, on any machine: what they compile to for Hopper.

    python benchmarks/kernels/kernels.py [--hidden 64] [--batch 256] [--precision fp32|tf32] [--products ieee]
    python benchmarks/kernels/kernels.py --dry-run [--hidden 64]
"""

from __future__ import annotations

import argparse
import functools
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import triton
from torch import Tensor

sys.path.append(str(Path(__file__).parents[2]))

from benchmarks.kernels.floors import FLOP_PER_S, PREDICTED_US, SHAPES, floors
from benchmarks.kernels.launches import Hopper, recorded, resources
from tuner.config import Precision
from tuner.kernels import FusedTSMixer
from tuner.kernels.kernel_launch import samples_per_split
from tuner.models.tsmixer import DESIGNS, TSMixer

IN_A_GRAPH = 10
REPLAYS = 30


@functools.cache
def side_stream() -> torch.cuda.Stream:
    """The one stream that everything here is made, run and captured on.

    Autograd remembers for each parameter the stream on which a graph first met it, for as long as any such graph lives.
    Were that the default stream, a backward pass in a capture would wait for it, which ends the capture.
    """
    return torch.cuda.Stream()  # type: ignore[no-untyped-call]


def replayed_us(work: Callable[[], object], times: int = 1) -> float:
    """The median time of one of `times` repetitions in a captured graph."""
    stream = side_stream()
    stream.wait_stream(
        torch.cuda.current_stream()
    )  # which may still be filling what the work reads
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
    shapes = (
        (n, SHAPES.input_size, 13),
        (n, SHAPES.horizon, SHAPES.n_future),
        (n, SHAPES.n_static),
    )
    past, future, static = (torch.randn(shape, device=device) for shape in shapes)
    return past, future, static


def plain_parts(
    model: TSMixer, batch: tuple[Tensor, Tensor, Tensor]
) -> dict[str, Callable[[], Tensor]]:
    """The plain network's parts, each from planes of its own, with what a kernel of the fused one covers."""
    past, future, static = batch
    n, horizon, hidden = len(past), SHAPES.horizon, model.past_mixing.widths[0]
    norm, projection, n_targets = model.reversible_norm, model.time_projection, SHAPES.n_targets

    def entry() -> Tensor:
        targets, _ = norm(past[..., :n_targets])
        history = torch.cat([targets, past[..., n_targets:]], dim=-1)
        mixed = model.past_mixing(
            model.layout.enter(norm.after_projection(projection(history), projection))
        )
        assert model.future_mixing is not None
        return torch.cat(
            [mixed, model.future_mixing(model.layout.enter(future))], dim=model.layout.feature_axis
        )

    def block_part(number: int, width: int) -> Callable[[], Tensor]:
        plane = model.layout.enter(
            torch.randn(n, horizon, width, device=past.device)
        ).requires_grad_()
        block: Any = model.blocks[number]

        def run() -> Tensor:
            mixed = block.static_mixing(model.layout.one_hour(static), horizon=horizon)
            result: Tensor = block([plane, mixed])
            return result

        return run

    last = model.layout.enter(torch.randn(n, horizon, hidden, device=past.device)).requires_grad_()
    with torch.no_grad():
        statistics_of_window = norm(past[..., :n_targets])[1]

    def head() -> Tensor:
        forecast = model.layout.leave(model.head(last)).reshape(
            n, horizon, n_targets, SHAPES.n_quantiles
        )
        restored: Tensor = norm.inverse(forecast, statistics_of_window)
        return restored

    return {
        "enter": entry,
        f"block {3 * hidden}": block_part(0, 2 * hidden),
        f"block {2 * hidden}": block_part(1, hidden),
        "head": head,
        "whole": lambda: model(past, future, static),
    }


def forward_and_backward(
    run: Callable[[], Tensor], parameters: list[Tensor]
) -> Callable[[], object]:
    with torch.no_grad():
        slope = torch.randn_like(run())
    return lambda: torch.autograd.grad(run(), parameters, slope, allow_unused=True)


def error_of(
    model: TSMixer, products: str, batch: tuple[Tensor, Tensor, Tensor]
) -> tuple[float, float]:
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
    off = [
        float(torch.stack([(a - b).norm() for a, b in zip(g, exact, strict=True)]).norm())
        for g in found
    ]
    return off[0] / size, off[1] / size


def floors_of(
    arguments: argparse.Namespace, fused: FusedTSMixer
) -> dict[str, tuple[float, float, float]]:
    """Of the kernels of this network, with as many splits of the batch as its gradients are summed in."""
    n_splits = -(-arguments.batch // samples_per_split(len(fused.tables.products), arguments.batch))
    return floors(
        arguments.hidden,
        arguments.batch,
        fused.plan.sizes.products,
        fused.tables.layout.size,
        n_splits,
    )


def row(
    name: str, arguments: argparse.Namespace, found: dict[str, tuple[float, float, float]]
) -> str:
    """A kernel's floor and what was predicted of it; a kernel that nobody has counted through has neither."""
    told = (arguments.hidden, arguments.batch) == (64, 256)
    predicted = str(PREDICTED_US.get(name, "")) if told else ""
    if name not in found:
        return f"| {name} | | | | {predicted} |"
    megabytes, operations, floor = found[name]
    return f"| {name} | {megabytes:.1f} | {operations:.0f} | {floor:.1f} | {predicted} |"


def dry_run(arguments: argparse.Namespace) -> None:
    triton.runtime.driver.set_active(Hopper())
    _, fused, batch = networks(arguments, "cpu")
    with recorded(started=False) as launches:
        fused(*batch).sum().backward()
    products, found = fused.plan.sizes.products, floors_of(arguments, fused)
    print(
        f"hidden {arguments.hidden}, batch {arguments.batch}, {products}; compiled for sm_90 by triton {triton.__version__}\n"
    )
    print(
        "| kernel | MB | MFLOP | floor, us | predicted, us | registers | stack | shared | warps | HMMA | HGMMA | FFMA |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    for launch in launches:
        print(f"{row(launch.name, arguments, found)} {resources(launch)} |")


def networks(
    arguments: argparse.Namespace, device: str
) -> tuple[TSMixer, FusedTSMixer, tuple[Tensor, Tensor, Tensor]]:
    torch.manual_seed(0)
    model = TSMixer(
        SHAPES, DESIGNS[arguments.variant], hidden_size=arguments.hidden, dropout=0.1
    ).to(device)
    fused = FusedTSMixer(model, Precision(arguments.precision), arguments.products)
    return model, fused, batch_of(arguments.batch, device)


def measure(arguments: argparse.Namespace) -> None:
    """Everything, on `side_stream()`."""
    torch.backends.cuda.matmul.allow_tf32 = arguments.precision == "tf32"
    model, fused, batch = networks(arguments, "cuda")
    parameters = list(model.parameters())
    print(
        f"{torch.cuda.get_device_name()}, hidden {arguments.hidden}, batch {arguments.batch}, ",
        end="",
    )
    print(f"{fused.plan.sizes.products}\n")
    run = forward_and_backward(lambda: fused(*batch), parameters)
    measure_kernels(arguments, fused, run)
    print("| part | plain forward, us | plain forward and backward, us |\n|---|---|---|")
    for name, part in plain_parts(model, batch).items():
        print(
            f"| {name} | {replayed_us(part):.1f} | {replayed_us(forward_and_backward(part, parameters)):.1f} |"
        )
    with torch.no_grad():
        whole = replayed_us(lambda: fused(*batch))
    print(f"| whole, fused | {whole:.1f} | {replayed_us(run):.1f} |\n")
    for name in FLOP_PER_S:
        ours, plain = error_of(model, name, batch)
        print(f"{name}: gradient off by {ours:.1e} of its norm, the plain network's by {plain:.1e}")


def measure_kernels(
    arguments: argparse.Namespace, fused: FusedTSMixer, run: Callable[[], object]
) -> None:
    """One by one. Once this returns nothing holds the launches' tensors, nor through them the graph of the pass."""
    run()
    with recorded(started=True) as launches:
        run()
    found = floors_of(arguments, fused)
    print(
        "| kernel | MB | MFLOP | floor, us | predicted, us | measured, us |\n|---|---|---|---|---|---|"
    )
    total = 0.0
    # Forward launches come before those of the backward pass, whose inputs stay as they are: each can run again.
    for launch in launches:
        time = replayed_us(launch.again, IN_A_GRAPH)
        total += time
        print(f"{row(launch.name, arguments, found)} {time:.1f} |")
    print(f"| sum | | | {sum(f[2] for f in found.values()):.1f} | | {total:.1f} |\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument(
        "--variant", default="original", choices=[name for name in DESIGNS if name != "batchnorm"]
    )
    parser.add_argument("--precision", default="fp32", choices=["fp32", "tf32"])
    parser.add_argument("--products", default=None, choices=list(FLOP_PER_S))
    parser.add_argument("--dry-run", action="store_true")
    arguments = parser.parse_args()
    if arguments.dry_run:
        dry_run(arguments)
    elif not torch.cuda.is_available():
        parser.error("times need a CUDA device; --dry-run compiles without one")
    else:
        with torch.cuda.stream(side_stream()):
            measure(arguments)


if __name__ == "__main__":
    main()
