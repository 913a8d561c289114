"""What a class can be told is read from its constructor, however that is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.errors import UsageError
from tuner.models.constructor import Argument, Kind, constructor_of

NETWORKS = '''
from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Optional

from torch import nn

if TYPE_CHECKING:
    from nowhere import Shapes


class Annotated(nn.Module):
    """Mixes nothing. Or nearly so.

    It is small.
    """

    def __init__(self, shapes, *, hidden_size: int = 32, depth: int = 2, rate: float = 1,
                 gated: bool = False, norm: Literal["layer", "none", None] = "layer",
                 ff: Optional[int] = None, mixed: Literal[1, "a"] = 1, mode: str = "mean"):
        super().__init__()


class Plain(nn.Module):
    def __init__(self, shapes, depth=3, alpha=0.5, gated=True, mode="mean", what=None, *, needed):
        super().__init__()


class Unreadable(nn.Module):
    def __init__(self, shapes: Shapes, depth: int = 2, other: Shapes = None, **more) -> None:
        super().__init__()


class Base(nn.Module):
    def __init__(self, shapes, *, hidden_size=16, dropout=0.2, depth=1):
        super().__init__()


class Derived(Base):
    def __init__(self, shapes, width=8, **sizes):
        super().__init__(shapes, **sizes)


class Inheriting(Base):
    pass


class ForDarts(nn.Module):
    def __init__(self, input_dim, output_dim, past_cov_dim, future_cov_dim, static_cov_dim,
                 nr_params, hidden_size: int, dropout: float, num_blocks, norm_type: str,
                 own: int = 3):
        super().__init__()


class NoModule:
    pass
'''


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "nets.py"
    path.write_text(NETWORKS, encoding="utf-8")
    return path


def test_annotations_and_defaults_are_read(file: Path) -> None:
    found = constructor_of(f"{file}:Annotated")
    assert (found.class_name, found.about) == ("Annotated", "Mixes nothing")
    assert found.hidden_size == Argument(name="hidden_size", kind=Kind.INT, default=32)
    assert found.dropout is None
    assert found.arguments == (
        Argument(name="depth", kind=Kind.INT, default=2),
        Argument(name="rate", kind=Kind.FLOAT, default=1),
        Argument(name="gated", kind=Kind.BOOL, default=False),
        Argument(name="norm", kind=Kind.CHOICE, choices=("layer", "none"), default="layer"),
        Argument(name="ff", kind=Kind.INT, default=None),
        Argument(name="mixed", kind=Kind.OTHER, default=1),
        Argument(name="mode", kind=Kind.TEXT, default="mean"),
    )


def test_without_annotations_a_default_says_what_is_taken(file: Path) -> None:
    found = constructor_of(f"{file}:Plain")
    assert found.about == ""
    kinds = {each.name: each.kind for each in found.arguments}
    assert kinds == {
        "depth": Kind.INT,
        "alpha": Kind.FLOAT,
        "gated": Kind.BOOL,
        "mode": Kind.TEXT,
        "what": Kind.UNKNOWN,
        "needed": Kind.UNKNOWN,
    }
    assert [each.name for each in found.arguments if each.required] == ["needed"]


def test_an_annotation_that_names_nothing_hides_no_other(file: Path) -> None:
    found = constructor_of(f"{file}:Unreadable")
    assert [each.kind for each in found.arguments] == [Kind.INT, Kind.OTHER]


@pytest.mark.parametrize("name", ["Base", "Derived", "Inheriting"])
def test_sizes_are_found_where_a_class_hands_them_on(name: str, file: Path) -> None:
    found = constructor_of(f"{file}:{name}")
    assert found.hidden_size == Argument(name="hidden_size", kind=Kind.INT, default=16)
    assert found.dropout == Argument(name="dropout", kind=Kind.FLOAT, default=0.2)


def test_what_is_no_network_is_refused(file: Path) -> None:
    with pytest.raises(UsageError, match=r"NoModule is not a subclass of torch\.nn\.Module"):
        constructor_of(f"{file}:NoModule")
    with pytest.raises(UsageError, match=r"unknown class in .*did you mean 'Plain'"):
        constructor_of(f"{file}:Plane")


def test_a_class_written_for_darts_is_told_what_darts_tells_it(file: Path) -> None:
    found = constructor_of(f"{file}:ForDarts")
    assert found.arguments == (
        Argument(name="num_blocks", kind=Kind.INT, default=2),
        Argument(name="norm_type", kind=Kind.TEXT, default="LayerNorm"),
        Argument(name="own", kind=Kind.INT, default=3),
    )
    assert found.hidden_size == Argument(name="hidden_size", kind=Kind.INT)
    assert found.dropout == Argument(name="dropout", kind=Kind.FLOAT)
