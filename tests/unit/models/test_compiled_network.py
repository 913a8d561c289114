"""Compiled networks compute what the model does and leave it as it is. No machine code here."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn

from tests.support.traced_networks import guards_not_timed
from tuner.config import ModelShapes, Precision
from tuner.models.compiled_network import CompiledPieces, CompiledWhole
from tuner.models.names import builtin_names
from tuner.models.tsmixer import DESIGNS, InPlace, Join, TSMixer

BATCH = 5
CASES = {"rmsnorm": (0, 1), "layernorm": (2, 0), "batchnorm": (0, 0), "simple": (2, 1)}
"""Future and static covariates. `original`, with all of them, is the one with a block after the
first, below."""
TRACED = "aot_eager"
"""Graphs as Inductor would get them, forward and backward, run operation by operation."""


@pytest.fixture(autouse=True)
def _compiled_afresh() -> Iterator[None]:
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    with guards_not_timed():
        yield
    torch.compiler.reset()


def network(
    name: str, n_future: int = 2, n_static: int = 1, dropout: float = 0.0, n_blocks: int = 2
) -> TSMixer:
    shapes = ModelShapes(
        input_size=20,
        horizon=6,
        n_targets=3,
        n_past=1,
        n_future=n_future,
        n_static=n_static,
        n_quantiles=5,
    )
    torch.manual_seed(7)
    return TSMixer(shapes, DESIGNS[name], hidden_size=8, dropout=dropout, n_blocks=n_blocks)


def inputs(
    model: TSMixer, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    shapes = model.shapes
    torch.manual_seed(1)
    past = torch.randn(
        BATCH, shapes.input_size, shapes.n_targets + shapes.n_past + shapes.n_future, dtype=dtype
    )
    future = (
        torch.randn(BATCH, shapes.horizon, shapes.n_future, dtype=dtype)
        if shapes.n_future
        else None
    )
    static = torch.randn(BATCH, shapes.n_static, dtype=dtype) if shapes.n_static else None
    return past, future, static


def pieces(model: TSMixer, precision: Precision = Precision.FP32) -> CompiledPieces:
    return CompiledPieces(model, precision, InPlace(), TRACED)


def whole(model: nn.Module, precision: Precision = Precision.FP32) -> CompiledWhole:
    return CompiledWhole(model, precision, TRACED)


def of_every_parameter(forecast: Tensor, model: nn.Module) -> Tensor:
    """The gradients in one, along some slope. None may be missing."""
    torch.manual_seed(2)
    slope = torch.randn(forecast.shape, dtype=forecast.dtype)
    return torch.cat(
        [g.flatten() for g in torch.autograd.grad(forecast, list(model.parameters()), slope)]
    )


def assert_agree(compiled: Tensor, model: TSMixer, plain: Tensor) -> None:
    """In float64, but for the forecast's own type."""
    plain = plain.float()
    assert torch.allclose(compiled, plain, rtol=1e-6, atol=1e-6)
    ours, theirs = of_every_parameter(compiled, model), of_every_parameter(plain, model)
    assert float((ours - theirs).norm() / theirs.norm()) < 1e-12
    assert not torch._dynamo.utils.counters["graph_break"]


def n_graphs() -> int:
    found: int = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    return found


def test_every_variant_is_compiled_here() -> None:
    assert {*CASES, "original"} == set(builtin_names())


@pytest.mark.parametrize(("name", "covariates"), CASES.items())
def test_pieces_have_the_models_forecast_and_gradients(
    name: str, covariates: tuple[int, int]
) -> None:
    model = network(name, *covariates, n_blocks=1).double()
    given = inputs(model, torch.float64)
    assert_agree(pieces(model)(*given), model, model(*given))


def test_a_forecast_is_written_as_the_loss_reads_it() -> None:
    model = network("original", n_blocks=1)
    forecast = pieces(model, Precision.BF16)(*inputs(model))
    assert forecast.dtype == torch.float32
    assert forecast.is_contiguous()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = model(*inputs(model)).float()
    assert torch.allclose(forecast, half, atol=0.03)  # bfloat16 has three digits
    assert not torch.allclose(forecast, model(*inputs(model)), atol=1e-4)
    ours, theirs = of_every_parameter(forecast, model), of_every_parameter(half, model)
    assert float((ours - theirs).norm() / theirs.norm()) < 3e-2


def test_evaluation_is_compiled_too_and_drops_nothing() -> None:
    model = network("original", dropout=0.5, n_blocks=1).eval()
    with torch.no_grad():
        expected = model(*inputs(model))
        assert torch.allclose(pieces(model)(*inputs(model)), expected, atol=1e-6)
        assert torch.allclose(whole(model)(*inputs(model)), expected, atol=1e-6)
    assert n_graphs() > 0


def test_running_statistics_move_on_as_in_the_model() -> None:
    plain, compiled = network("batchnorm", n_blocks=1), network("batchnorm", n_blocks=1)
    plain(*inputs(plain))
    pieces(compiled)(*inputs(compiled))
    moved = [
        buffer
        for buffer in plain.buffers()
        if buffer.dim() and float(buffer.abs().max()) not in (0.0, 1.0)
    ]
    assert len(moved) >= 4
    assert all(
        torch.allclose(a, b) for a, b in zip(plain.buffers(), compiled.buffers(), strict=True)
    )


def test_a_second_block_agrees_and_the_same_sizes_find_everything_compiled() -> None:
    model, other = network("original").double(), network("original").double()
    given = inputs(model, torch.float64)
    assert_agree(pieces(model)(*given), model, model(*given))
    first = n_graphs()
    assert first == 4  # past, future, static for both blocks, and the rest
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(0.1)
    assert_agree(pieces(other)(*given), other, other(*given))
    assert n_graphs() == first


class Recorded(InPlace):
    """Which steps came in which order."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def begin(self, function: Callable[[Tensor], Tensor], argument: Tensor) -> Join:
        self.seen.append("begin")
        join = super().begin(function, argument)

        def joined() -> Tensor:
            self.seen.append("join")
            return join()

        return joined


def test_covariates_are_begun_before_any_is_waited_for() -> None:
    model = network("original")
    branches = Recorded()
    # The order is that of the code around what is compiled.
    with torch.compiler.set_stance("force_eager"):
        CompiledPieces(model, Precision.FP32, branches, TRACED)(*inputs(model))
    assert branches.seen == ["begin"] * 3 + ["join"] * 3


def test_nothing_of_it_stays_with_the_model() -> None:
    model = network("simple", n_blocks=1)
    names, held = (
        list(model.state_dict()),
        {key: dict(vars(module)) for key, module in model.named_modules()},
    )
    gc.collect()
    gc.disable()
    try:
        compiled = pieces(model)
        compiled(*inputs(model)).sum().backward()
        seen = weakref.ref(compiled)
        del compiled
        assert seen() is None
    finally:
        gc.enable()
    assert list(model.state_dict()) == names
    assert {key: set(vars(module)) for key, module in model.named_modules()} == {
        k: set(v) for k, v in held.items()
    }
    assert type(model.branches) is InPlace
