"""What the fused network's kernels cannot be faster than on an H200, in the reference job's shapes."""

from __future__ import annotations

from tuner.config import ModelShapes

SHAPES = ModelShapes(
    input_size=168, horizon=24, n_targets=7, n_past=0, n_future=6, n_static=1, n_quantiles=17
)
BYTES_PER_S = 4.3e12
FLOP_PER_S = {"ieee": 67e12, "tf32x3": 400e12 / 3, "tf32": 400e12}

PREDICTED_US = {
    "draw_masks": 6, "enter_forward": 16, "block_forward 192": 22, "block_forward 128": 18, "head_forward": 5,
    "head_backward": 6, "block_backward 128": 20, "block_backward 192": 24, "enter_backward": 14,
    "sum_products": 27, "sum_columns": 8, "sum_splits": 4,
}  # fmt: skip
"""At hidden 64, batch 256, before this version was measured; docs/lessons.md says how far such figures were off."""


def floors(
    hidden: int, batch: int, products: str, n_parameters: int, n_splits: int
) -> dict[str, tuple[float, float, float]]:
    """Of each kernel: megabytes it must read and write, millions of operations, microseconds of the larger of both.

    Gradients of `n_parameters` numbers are summed in `n_splits` of the batch.
    """
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
        "enter_backward": (
            12 * plane + window + t * length,
            2 * square + enter(columns) + projection,
        ),
    }
    sums, columns_read = (
        2 * (2 * plane + plane * 2) + t * (columns + future) + outputs + plane,
        4 * plane + t * length,
    )
    flop = enter(columns) + enter(future) + 2 * square + 2 * outputs * hidden
    for slots in (3, 2):
        width = slots * plane
        name = f"{slots * hidden}"
        time = 2 * t * width
        numbers[f"block_forward {name}"] = (
            3.5 * width + 7 * plane,
            2 * square + time + enter(slots * hidden),
        )
        numbers[f"block_backward {name}"] = (
            4.25 * width + 9.5 * plane,
            2 * square + enter(slots * hidden) + 2 * time,
        )
        sums += 6 * plane + width
        flop += 2 * square + enter(slots * hidden)
        columns_read += 4 * plane + 2 * width
    partial = n_splits * n_parameters / batch
    numbers["sum_products"] = (sums + partial, flop)
    numbers["sum_columns"] = (columns_read + partial / 4, 0)
    numbers["sum_splits"] = (partial + n_parameters / batch, 0)
    found = {}
    for name, (n, operations) in numbers.items():
        seconds = max(4 * n * batch / BYTES_PER_S, operations * batch / FLOP_PER_S[products])
        found[name] = (4 * n * batch / 1e6, operations * batch / 1e6, 1e6 * seconds)
    return found
