"""The check around every test here (see `conftest.py`) notices what it is for."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.runtime.errors import InterpreterError


class Pair(NamedTuple):
    """Two tensors as one argument."""

    first: Tensor
    second: Tensor


@triton.jit
def copy(pair, n, first, BLOCK: tl.constexpr):  # noqa: N803 (a constant)
    at = first + tl.arange(0, BLOCK)
    values = tl.load(pair.first + at, mask=at < n, other=0.0)
    tl.store(pair.second + at, values, mask=at < n)


@triton.jit
def copy_words(source, target, BLOCK: tl.constexpr):  # noqa: N803 (a constant)
    at = tl.arange(0, BLOCK)
    words = tl.load(source.to(tl.pointer_type(tl.int32)) + at)
    tl.store(target.to(tl.pointer_type(tl.int32)) + at, words)


@triton.jit
def promise(at, out, MULTIPLE: tl.constexpr, CONTIGUOUS: tl.constexpr, CONSTANT: tl.constexpr):  # noqa: N803 (constants)
    n = tl.arange(0, 4)
    at = tl.load(at + n)
    at = tl.max_contiguous(tl.multiple_of(at, MULTIPLE), CONTIGUOUS)
    tl.store(out + n, tl.max_constancy(at // 4, CONSTANT))


def pair_of(n_first: int, n_second: int) -> Pair:
    return Pair(torch.ones(n_first), torch.zeros(n_second))


def test_masked_elements_may_lie_anywhere() -> None:
    pair = pair_of(5, 5)
    copy[(1,)](pair, 5, 0, BLOCK=8)
    assert torch.equal(*pair)


@pytest.mark.parametrize(
    ("sizes", "first", "says"),
    [
        ((5, 8), 0, "copy reads pair.first, 1 after the last"),
        ((8, 3), 0, "copy writes pair.second, 3 after the last"),
        ((8, 8), -2, "copy reads pair.first, 2 before the first"),
    ],
)
def test_reads_and_writes_beside_a_tensor_are_named(
    sizes: tuple[int, int], first: int, says: str
) -> None:
    with pytest.raises(InterpreterError, match=says):
        copy[(1,)](pair_of(*sizes), 6, first, BLOCK=8)


def test_a_neighbour_in_memory_is_beside_it_too() -> None:
    """As parameters that are views of one buffer."""
    whole = torch.ones(16)
    with pytest.raises(InterpreterError, match=r"copy reads pair\.first, 8 after the last"):
        copy[(1,)](Pair(whole[:8], whole[8:]), 16, 0, BLOCK=16)


def test_words_lie_where_words_can_and_end_where_the_bytes_do() -> None:
    whole = torch.zeros(20, dtype=torch.uint8)
    copy_words[(1,)](whole[:16], whole[4:], BLOCK=4)
    with pytest.raises(
        InterpreterError, match="reads source 4 bytes at once where that is not aligned"
    ):
        copy_words[(1,)](whole[1:], whole, BLOCK=4)
    with pytest.raises(InterpreterError, match="reads source, 1 after the last"):
        copy_words[(1,)](whole[:15], whole, BLOCK=4)


@pytest.mark.parametrize(
    ("at", "sizes", "says"),
    [
        ([4, 5, 6, 7], (1, 4, 4), None),
        ([4, 8, 12, 16], (4, 1, 1), None),
        ([4, 8, 12, 18], (4, 1, 1), "multiples of 4, and one is 18"),
        ([4, 5, 6, 8], (1, 4, 1), "groups of 4 numbers 1 apart"),
        ([4, 5, 6, 7], (1, 8, 1), "groups of 8 among 4"),
        ([6, 7, 8, 9], (1, 4, 4), "groups of 4 numbers 0 apart"),
    ],
)
def test_promises_are_held_against_the_numbers(
    at: list[int], sizes: tuple[int, int, int], says: str | None
) -> None:
    given, out = torch.tensor(at), torch.zeros(4, dtype=torch.int64)
    if says is None:
        promise[(1,)](given, out, *sizes)
        assert out.tolist() == [n // 4 for n in at]
        return
    with pytest.raises(InterpreterError, match=says):
        promise[(1,)](given, out, *sizes)


def test_new_memory_shows() -> None:
    assert torch.empty(2).isnan().all()
    assert (torch.empty_like(torch.zeros(2, dtype=torch.uint8)) == 255).all()
