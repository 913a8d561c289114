"""The order of windows: the same permutations, whether or not one is drawn ahead of its time."""

from __future__ import annotations

import torch

from tuner.training.batching import Shuffles

CPU = torch.device("cpu")


def shuffles(seed: int = 5) -> Shuffles:
    return Shuffles(torch.Generator().manual_seed(seed), 50, CPU)


def test_what_is_drawn_ahead_is_what_comes_next_and_the_order_is_that_of_the_generator() -> None:
    generator = torch.Generator().manual_seed(5)
    expected = [torch.randperm(50, generator=generator) for _ in range(3)]
    ahead = shuffles()
    found = []
    for _ in range(3):
        found.append(ahead.next())
        ahead.draw_ahead()
        ahead.draw_ahead()
    assert all(torch.equal(p, q) for p, q in zip(found, expected, strict=True))


def test_a_state_is_that_of_before_what_was_drawn_ahead() -> None:
    ahead, other = shuffles(), shuffles(seed=6)
    ahead.next()
    ahead.draw_ahead()
    other.draw_ahead()
    other.set_state(ahead.get_state())
    assert torch.equal(other.next(), ahead.next())
    assert torch.equal(other.get_state(), ahead.get_state())
