"""The forms of a cell are one function; it does not overflow, whatever the precision."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tuner.models.social_xlstm.encoder import Encoder, MatrixBlock, slstm
from tuner.models.social_xlstm.matrix_cell import (
    Gates,
    MatrixCell,
    PackageCell,
    _divisor,
    mlstm_last,
    mlstm_parallel,
    package_function,
)
from tuner.models.social_xlstm.variant_settings import Cell, Kind, VariantSettings

ROWS, HEADS, STEPS, SIZE = 3, 2, 40, 8
HUGE = 300.0
"""Its exponential is beyond fp32, and 1 / it, too."""
SKIPPED = "the package xlstm is not installed: pip install 'tuner[xlstm]'"


def mlstm_recurrent(
    query: Tensor, key: Tensor, value: Tensor, input_gate: Tensor, forget_gate: Tensor
) -> Tensor:
    """`mlstm_parallel` step by step, with memory (R, A, D, D), normaliser (R, A, D) and stabiliser
    (R, A), as in the paper."""
    key = key / math.sqrt(key.shape[-1])
    forgotten = functional.logsigmoid(forget_gate)
    memory = torch.zeros_like(key[..., 0, :, None] * value[..., 0, None, :])
    normaliser = torch.zeros_like(key[..., 0, :])
    stabiliser = torch.full_like(input_gate[..., 0], -math.inf)
    found = []
    for step in range(query.shape[-2]):
        entering = input_gate[..., step]
        before, stabiliser = (
            stabiliser,
            torch.maximum(forgotten[..., step] + stabiliser, entering).detach(),
        )
        kept = torch.exp(forgotten[..., step] + before - stabiliser).unsqueeze(-1)  # (R, A, 1)
        added = torch.exp(entering - stabiliser).unsqueeze(-1)
        k, v, q = key[..., step, :], value[..., step, :], query[..., step, :]
        memory = kept.unsqueeze(-1) * memory + (added * k).unsqueeze(-1) * v.unsqueeze(-2)
        normaliser = kept * normaliser + added * k
        divisor = _divisor((normaliser * q).sum(-1, keepdim=True), stabiliser.unsqueeze(-1))
        found.append((q.unsqueeze(-2) @ memory).squeeze(-2) / divisor)
    return torch.stack(found, dim=-2)


def _inputs(
    spread: float = 1.0, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    query, key, value = (torch.randn(ROWS, HEADS, STEPS, SIZE, dtype=dtype) for _ in range(3))
    entering = spread * torch.randn(ROWS, HEADS, STEPS, dtype=dtype)
    forget = 3 + spread * torch.randn(ROWS, HEADS, STEPS, dtype=dtype)
    given = (query, key, value, entering, forget)
    for each in given:
        each.requires_grad_()
    return given


def _gradients(found: Tensor, given: tuple[Tensor, ...]) -> list[Tensor]:
    weights = torch.linspace(-1, 1, found.numel()).view(found.shape)
    return list(torch.autograd.grad((found * weights).sum(), given))


@pytest.mark.parametrize(("spread", "dtype"), [(1.0, torch.float32), (8.0, torch.float64)])
def test_the_parallel_form_is_the_recurrent_one_gradients_included(
    spread: float, dtype: torch.dtype
) -> None:
    """Gates that differ much leave small differences of large sums: fp32 has no digits for them."""
    given = _inputs(spread, dtype)
    recurrent, parallel = mlstm_recurrent(*given), mlstm_parallel(*given)
    torch.testing.assert_close(parallel, recurrent, rtol=1e-5, atol=1e-5)
    for a, b in zip(_gradients(parallel, given), _gradients(recurrent, given), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_the_last_step_alone_is_the_last_of_all() -> None:
    query, *rest = _inputs()
    all_steps = mlstm_parallel(query, *rest)
    last = mlstm_last(query[..., -1:, :], *rest)
    torch.testing.assert_close(last, all_steps[..., -1:, :], rtol=1e-5, atol=1e-5)


def test_what_comes_later_changes_nothing_earlier() -> None:
    given = [each.detach().clone() for each in _inputs()]
    before = mlstm_parallel(*given)
    for each in given:
        each[..., STEPS // 2 :, :] += 1 if each.dim() == 4 else 0
    given[3][..., STEPS // 2 :] += 2
    after = mlstm_parallel(*given)
    assert torch.equal(before[..., : STEPS // 2, :], after[..., : STEPS // 2, :])
    assert not torch.equal(before, after)


@pytest.mark.parametrize("gate", [HUGE, -HUGE])
@pytest.mark.parametrize("form", [mlstm_parallel, mlstm_recurrent])
def test_huge_gates_overflow_neither_forward_nor_backward(form: object, gate: float) -> None:
    query, key, value, entering, forget = _inputs()
    pushed = entering + gate
    found = form(query, key, value, pushed, forget)  # type: ignore[operator]
    assert found.isfinite().all()
    for gradient in _gradients(found, (query, key, value, entering, forget)):
        assert gradient.isfinite().all()


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_16_bits_train_with_large_gates(kind: Kind, half: torch.dtype) -> None:
    torch.manual_seed(0)
    settings = VariantSettings(
        hidden_size=16, dropout=0.0, n_layers=2, n_heads=2, kind=kind, cell=Cell.OWN
    )
    encoder = Encoder(2, settings)
    with torch.no_grad():
        for block in encoder.blocks:
            block.gates.weight.normal_(0, 30)  # type: ignore[union-attr, operator]
    history, covariates = torch.rand(4, 3, 24), torch.rand(4, 24, 2)
    exact = encoder(history, covariates)
    with torch.autocast("cpu", dtype=half):
        found = encoder(history, covariates)
    assert found.isfinite().all()
    assert (found.float() - exact).abs().mean() < 0.2
    found.float().square().mean().backward()
    for name, parameter in encoder.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


def test_gates_are_in_32_bits_whatever_the_products_are_in() -> None:
    settings = VariantSettings(hidden_size=16, dropout=0.0, n_heads=2, cell=Cell.OWN)
    block = MatrixBlock(settings)
    torch.nn.init.normal_(block.gates.weight)
    normed = torch.randn(3, 24, 16)
    exact = block._gates_of(normed)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = block._gates_of(normed)
    assert half.entering.dtype == half.forget.dtype == torch.float32
    assert torch.equal(half.entering, exact.entering)
    assert torch.equal(half.forget, exact.forget)


def _slstm_by_the_book(inputs: Tensor, recurrent: Tensor) -> Tensor:
    """Equations 8 to 14 without a stabiliser, in double precision."""
    steps, heads, rows, four = inputs.shape
    output = memory = normaliser = torch.zeros(heads, rows, four // 4, dtype=torch.float64)
    found = []
    for step in range(steps):
        gates = inputs[step].double() + output @ recurrent.double()
        entering, forget, new, out = gates.chunk(4, dim=-1)
        memory = torch.sigmoid(forget) * memory + torch.exp(entering) * torch.tanh(new)
        normaliser = torch.sigmoid(forget) * normaliser + torch.exp(entering)
        output = torch.sigmoid(out) * memory / normaliser
        found.append(output)
    return torch.stack(found)


def test_the_slstm_is_the_one_of_the_paper_gradients_included() -> None:
    torch.manual_seed(0)
    inputs = torch.randn(12, HEADS, ROWS, 4 * SIZE, requires_grad=True)
    recurrent = (0.3 * torch.randn(HEADS, SIZE, 4 * SIZE)).requires_grad_()
    found, plain = slstm(inputs, recurrent), _slstm_by_the_book(inputs, recurrent)
    torch.testing.assert_close(found.double(), plain, rtol=1e-5, atol=1e-5)
    ours, theirs = (_gradients(each, (inputs, recurrent)) for each in (found, plain))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_the_slstm_does_not_overflow() -> None:
    torch.manual_seed(0)
    inputs = (HUGE * torch.randn(12, HEADS, ROWS, 4 * SIZE)).requires_grad_()
    found = slstm(inputs, torch.zeros(HEADS, SIZE, 4 * SIZE))
    assert found.isfinite().all()
    assert _gradients(found, (inputs,))[0].isfinite().all()


def test_the_package_s_mlstm_is_ours_gradients_included() -> None:
    pytest.importorskip("xlstm", reason=SKIPPED)
    function, _ = package_function()
    assert function is not None
    query, key, value, entering, forget = given = _inputs()
    gates = Gates(entering, forget)
    ours = MatrixCell().sequence(query, key, value, gates)
    theirs = PackageCell(function).sequence(query, key, value, gates)
    torch.testing.assert_close(theirs, ours, rtol=1e-5, atol=1e-5)
    for a, b in zip(_gradients(theirs, given), _gradients(ours, given), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
    last = PackageCell(function).last(query[..., -1:, :], key, value, gates)
    torch.testing.assert_close(last, ours[..., -1:, :], rtol=1e-5, atol=1e-5)


def test_the_package_s_mlstm_does_not_overflow_either() -> None:
    pytest.importorskip("xlstm", reason=SKIPPED)
    function, _ = package_function()
    assert function is not None
    query, key, value, entering, forget = given = _inputs()
    for gate in (HUGE, -HUGE):
        gates = Gates(entering + gate, forget)
        found = PackageCell(function).sequence(query, key, value, gates)
        assert found.isfinite().all()
        assert all(gradient.isfinite().all() for gradient in _gradients(found, given))


def test_the_package_s_slstm_is_ours() -> None:
    pytest.importorskip("xlstm", reason=SKIPPED)
    from xlstm.blocks.slstm.src.vanilla.slstm import slstm_forward_pointwise

    torch.manual_seed(0)
    inputs = torch.randn(12, 1, ROWS, 4 * SIZE)
    recurrent = 0.3 * torch.randn(1, SIZE, 4 * SIZE)
    states, found = torch.zeros(4, ROWS, SIZE), []
    for step in inputs:
        added = states[0] @ recurrent[0]
        states, _ = slstm_forward_pointwise(step[0], added, torch.zeros(1, 4 * SIZE), states, {})
        found.append(states[0])
    ours = slstm(inputs, recurrent)[:, 0]
    torch.testing.assert_close(ours, torch.stack(found), rtol=1e-5, atol=1e-5)
