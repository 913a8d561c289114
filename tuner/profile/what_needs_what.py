"""Which calls of a forward pass need what others of them gave, by the graph that autograd keeps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor
from torch.autograd.graph import Node
from torch.utils._pytree import tree_leaves


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """Where in the graph a call stands."""

    came: Node | None
    """What gave its input; None where no gradient flows there."""
    made: tuple[Node, ...]
    """What gave its outputs."""


def made_by(output: object) -> tuple[Node, ...]:
    """What gave these outputs, of which some may be no tensors."""
    tensors = [each for each in tree_leaves(output) if isinstance(each, Tensor)]
    return tuple(each.grad_fn for each in tensors if each.grad_fn is not None)


def most_apart(calls: Sequence[Traced]) -> list[int]:
    """The places of the most calls that could be made at once: none needs what another gave,
    directly or through others.

    Args:
        calls: in the order in which they were made.
    """
    depths: dict[Node, int] = {}
    by_depth: dict[int, list[int]] = defaultdict(list)
    for place, call in enumerate(calls):
        depth = _depth(call.came, depths)
        by_depth[depth].append(place)
        for node in call.made:
            depths[node] = max(depth, depths.get(node, 0))
    return max(by_depth.values(), key=len, default=[])


def _depth(came: Node | None, depths: dict[Node, int]) -> int:
    """How many calls, each of which needs the one before, lead to what came from there."""
    seen: set[Node] = set()
    deepest, ahead = 0, [came]
    while ahead:
        node = ahead.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if node in depths:  # what lies behind a call is less deep than the call
            deepest = max(deepest, 1 + depths[node])
            continue
        ahead += [each for each, _ in node.next_functions]
    return deepest
