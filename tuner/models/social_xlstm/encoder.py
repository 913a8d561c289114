"""The past of detectors as one hidden state each: embedding, and residual xLSTM blocks.

A block is a pre-norm residual one: LayerNorm, cell, norm by head, output gate, projection, dropout.
Left out of the authors' blocks are what serves language models: the causal convolution, the wider
inner size and the feed-forward part. Source: Beck et al. 2024, arXiv:2405.04517, figures 10 and 11.

Only the last state is asked for, so the last block computes no other query.

Legend: B windows, N detectors, R rows = B * N, S time steps, H hidden size, A heads, D = H / A.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from tuner.models.social_xlstm.matrix_cell import Gates, matrix_cell, single
from tuner.models.social_xlstm.variant_settings import Kind, VariantSettings

# The sLSTM: scalar memories with exponential gates, whose heads see their own last outputs.


class State(NamedTuple):
    """After a step, (A, R, D) each: the output, the memory, its normaliser and stabiliser."""

    output: Tensor
    memory: Tensor
    normaliser: Tensor
    stabiliser: Tensor


def slstm(inputs: Tensor, recurrent: Tensor) -> Tensor:
    """Every output of a sequence.

    Args:
        inputs: (S, A, R, 4 * D), what the input adds to each gate, biases included: input gate,
            forget gate, memory input, output gate; fp32.
        recurrent: (A, D, 4 * D), what the last output adds to them; fp32.

    Returns:
        (S, A, R, D).
    """
    state = first_step(inputs[0])
    outputs = [state.output]
    for gates in inputs[1:].unbind(0):
        state = step(torch.baddbmm(gates, state.output, recurrent), state)
        outputs.append(state.output)
    return torch.stack(outputs)


def first_step(gates: Tensor) -> State:
    """The state after the first step, (A, R, 4 * D): nothing came before, so nothing is kept."""
    entering, _, new, out = gates.chunk(4, dim=-1)
    stabiliser = entering.detach()
    normaliser = torch.exp(entering - stabiliser)  # 1, whose gradient is the input gate's
    memory = normaliser * torch.tanh(new)
    return State(torch.sigmoid(out) * memory / normaliser, memory, normaliser, stabiliser)


def step(gates: Tensor, before: State) -> State:
    """The state after another step; `gates` (A, R, 4 * D) as in `slstm`, the last output added."""
    entering, forget, new, out = gates.chunk(4, dim=-1)
    kept = functional.logsigmoid(forget) + before.stabiliser
    stabiliser = torch.maximum(kept, entering).detach()
    keeps, adds = torch.exp(kept - stabiliser), torch.exp(entering - stabiliser)
    memory = keeps * before.memory + adds * torch.tanh(new)
    normaliser = keeps * before.normaliser + adds
    return State(torch.sigmoid(out) * memory / normaliser, memory, normaliser, stabiliser)


EPS = 1e-5
FORGET_BIAS = (3.0, 6.0)
"""Of the first head and the last: what they forget in a step is between 5 and 0.2 percent. The
authors begin so, too."""


class FlatLinear(nn.Linear):
    """A linear layer whose rows are one product, also where each group of detectors has a weight
    of its own: batched products would else copy that weight for every window.
    """

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 (the name nn.Linear gives it)
        rows = functional.linear(input.flatten(0, -2), self.weight, self.bias)
        return rows.view(*input.shape[:-1], -1)


class Encoder(nn.Module):
    """From histories to hidden states. One for all detectors, or one a detector.

    Args:
        n_covariates: beside the detector's own value, the same for all detectors.
        settings: of the variant.
    """

    def __init__(self, n_covariates: int, settings: VariantSettings) -> None:
        super().__init__()
        self.enter = FlatLinear(1, settings.hidden_size)
        self.covariates = (
            FlatLinear(n_covariates, settings.hidden_size, bias=False) if n_covariates else None
        )
        block = MatrixBlock if settings.kind is Kind.MLSTM else ScalarBlock
        self.blocks = nn.ModuleList(block(settings) for _ in range(settings.n_layers))
        self.norm = nn.LayerNorm(settings.hidden_size, eps=EPS)

    def forward(self, history: Tensor, covariates: Tensor | None) -> Tensor:
        """(B, N, S) values and (B, S, K) covariates -> (B, N, H)."""
        entered = self.enter(history.unsqueeze(-1))  # (B, N, S, H)
        if self.covariates is not None and covariates is not None:
            entered = entered + self.covariates(covariates).unsqueeze(1)
        rows = entered.flatten(0, 1)  # the centralised batch: (B * N, S, H)
        last = len(self.blocks) - 1
        for number, block in enumerate(self.blocks):
            rows = block(rows, last_only=number == last)
        state: Tensor = self.norm(rows.squeeze(1))
        return state.view(*history.shape[:2], -1)


class HeadNorm(nn.Module):
    """(..., A, D) of mean 0 and deviation 1 over D, times a weight for each number."""

    def __init__(self, n_heads: int, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n_heads, size))

    def forward(self, heads: Tensor) -> Tensor:
        normed = functional.layer_norm(heads, heads.shape[-1:], eps=EPS)
        return normed * self.weight


class MatrixBlock(nn.Module):
    """A residual block around an mLSTM: (R, S, H) -> the same, or its last step, (R, 1, H)."""

    def __init__(self, settings: VariantSettings) -> None:
        super().__init__()
        size, heads = settings.hidden_size, settings.n_heads
        self.heads = heads
        self.cell = matrix_cell(settings.cell)
        self.norm = nn.LayerNorm(size, eps=EPS)
        self.remembered = FlatLinear(size, 2 * size, bias=False)  # keys and values
        self.asked = FlatLinear(size, 2 * size, bias=False)  # queries and output gates
        self.gates = FlatLinear(size, 2 * heads)  # input and forget gates
        self.head_norm = HeadNorm(heads, size // heads)
        self.leave = FlatLinear(size, size)
        self.dropout = nn.Dropout(settings.dropout)
        with torch.no_grad():
            self.gates.weight.zero_()
            self.gates.bias[:heads].zero_()
            self.gates.bias[heads:] = torch.linspace(*FORGET_BIAS, heads)

    def forward(self, sequence: Tensor, *, last_only: bool) -> Tensor:
        normed = self.norm(sequence)
        asking = normed[:, -1:] if last_only else normed
        key, value = (self._by_head(each) for each in self.remembered(normed).chunk(2, dim=-1))
        query, out = self.asked(asking).chunk(2, dim=-1)
        retrieve = self.cell.last if last_only else self.cell.sequence
        found = retrieve(self._by_head(query), key, value, self._gates_of(normed))
        joined = self.head_norm(found.transpose(1, 2)).flatten(2)  # (R, S or 1, H)
        left = self.leave(joined * torch.sigmoid(out))
        residual = sequence[:, -1:] if last_only else sequence
        added: Tensor = residual + self.dropout(left)
        return added

    def _by_head(self, numbers: Tensor) -> Tensor:
        """(R, S, H) -> (R, A, S, D)."""
        return numbers.reshape(*numbers.shape[:2], self.heads, -1).transpose(1, 2)

    def _gates_of(self, normed: Tensor) -> Gates:
        """In fp32, whatever the products are in: their exponential is taken."""
        with torch.autocast(normed.device.type, enabled=False):
            gates = self.gates(single(normed))
        entering, forget = gates.transpose(1, 2).chunk(2, dim=1)  # (R, A, S) each
        return Gates(entering, forget)


class ScalarBlock(nn.Module):
    """A residual block around an sLSTM: (R, S, H) -> the same, or its last step, (R, 1, H)."""

    def __init__(self, settings: VariantSettings) -> None:
        super().__init__()
        size, heads = settings.hidden_size, settings.n_heads
        each = size // heads
        self.heads = heads
        self.norm = nn.LayerNorm(size, eps=EPS)
        self.gates = FlatLinear(size, 4 * size)  # by head: input, forget, memory input, output
        self.recurrent = nn.Parameter(torch.zeros(heads, each, 4 * each))
        self.head_norm = HeadNorm(heads, each)
        self.leave = FlatLinear(size, size)
        self.dropout = nn.Dropout(settings.dropout)
        with torch.no_grad():
            biases = self.gates.bias.view(heads, 4, each)
            biases.zero_()
            biases[:, 1] = torch.linspace(*FORGET_BIAS, heads).unsqueeze(-1)

    def forward(self, sequence: Tensor, *, last_only: bool) -> Tensor:
        gates = single(self.gates(self.norm(sequence)))
        gates = gates.reshape(*gates.shape[:2], self.heads, -1)  # (R, S, A, 4 * D)
        with torch.autocast(sequence.device.type, enabled=False):
            outputs = slstm(gates.permute(1, 2, 0, 3).contiguous(), self.recurrent)  # (S, A, R, D)
        found = (outputs[-1:] if last_only else outputs).permute(2, 0, 1, 3)
        left = self.leave(self.head_norm(found).flatten(2))
        residual = sequence[:, -1:] if last_only else sequence
        added: Tensor = residual + self.dropout(left)
        return added
