"""The sLSTM: scalar memories with exponential gates, whose heads see their own last outputs.

Source: Beck et al., "xLSTM: Extended Long Short-Term Memory", NeurIPS 2024 (arXiv:2405.04517):
equations 8 to 18, stabilised as in equations 15 to 17. Written from the paper.

It has no parallel form: a step needs the one before it. The states are in fp32 whatever the
products are in. The normaliser is never below 1, because one of the two gates is 1 after the
stabiliser is taken off, so nothing is divided by a small number.

Legend: R rows, A heads, S time steps, D numbers a head.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional


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
