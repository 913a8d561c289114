"""What neuralforecast searches itself is read from its source, as Python reads it."""

from __future__ import annotations

from neuralforecast import auto

from tuner.models.of_neuralforecast.library_source import (
    Choice,
    Whole,
    model_names,
    searched_by_library,
)


def test_the_source_is_read_as_python_reads_it() -> None:
    """`library_source` on all `Auto` classes."""
    for name in model_names():
        config = getattr(getattr(auto, f"Auto{name}", None), "default_config", {})
        for argument, found in searched_by_library(name).items():
            theirs = config[argument]
            if isinstance(found, Choice):
                assert list(found.values) == theirs.categories
            elif isinstance(found, Whole):
                assert (found.low, found.high) == (theirs.lower, theirs.upper - 1)
            else:
                log = type(theirs.sampler).__name__ == "_LogUniform"
                assert (found.low, found.high, found.log) == (theirs.lower, theirs.upper, log)
