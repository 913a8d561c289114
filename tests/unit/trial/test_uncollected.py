from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from tuner.files.environment import nothing_collected


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    gc.enable()


def test_what_is_imported_is_looked_through_neither_then_nor_later() -> None:
    before = gc.get_freeze_count()
    with nothing_collected():
        assert not gc.isenabled()
        made: list[list[int]] = [[] for _ in range(1000)]
    assert gc.isenabled()
    assert gc.get_freeze_count() >= before + len(made)


def test_collecting_goes_on_after_an_import_that_failed_and_stays_off_where_it_was() -> None:
    with pytest.raises(ImportError), nothing_collected():
        raise ImportError
    assert gc.isenabled()
    gc.disable()
    with nothing_collected():
        pass
    assert not gc.isenabled()
