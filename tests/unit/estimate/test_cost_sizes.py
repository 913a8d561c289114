"""The sizes of a space, and which of them are measured."""

from __future__ import annotations

from tuner.estimate.cost_model import (
    hyperparameters_of,
    key_of,
    largest_size,
    size_of,
    sizes_of,
    to_measure,
)
from tuner.spec.study_file import load_study_file


def test_rates_and_decays_are_no_sizes_and_each_size_occurs_once() -> None:
    file = load_study_file("original")
    sizes = sizes_of(file.space)
    assert len(sizes) == 20
    assert {name for size in sizes for name in size} == {"hidden_size", "batch_size"}
    assert len(set(map(key_of, sizes))) == 20
    assert largest_size(file.space) == {"hidden_size": 256, "batch_size": 1024}


def test_of_a_large_space_so_many_are_measured_the_default_and_the_corners_first() -> None:
    file = load_study_file("nf-tcn")
    defaults = file.default_hyperparameters()
    assert len(sizes_of(file.space)) == 720
    chosen = to_measure(file.space, defaults, most=40)
    assert len(chosen) == len(set(map(key_of, chosen))) == 40
    assert key_of(chosen[0]) == key_of(size_of(defaults.as_dict()))
    for corner, value in ((chosen[1], 32), (chosen[2], 512)):
        assert corner["batch_size"] == value
    assert {size["dilations"] for size in chosen} == set(file.space.ranges["dilations"].values())  # type: ignore[union-attr]
    assert {size["kernel_size"] for size in chosen} == {2, 3, 4, 5}


def test_a_space_that_is_too_large_to_list_is_drawn_from_evenly() -> None:
    file = load_study_file("nf-patchtst")
    drawn = sizes_of(file.space, most=200)
    assert 100 < len(drawn) <= 200
    assert {size["hidden_size"] for size in drawn} == {16, 32, 64, 128, 256}
    assert drawn == sizes_of(file.space, most=200)


def test_a_configuration_of_a_size_is_the_default_but_for_that() -> None:
    file = load_study_file("nf-patchtst")
    for size in sizes_of(file.space)[::97]:
        made = hyperparameters_of(size, file.space, file.default_hyperparameters())
        assert size_of(made.as_dict()) == dict(size)
        assert made.learning_rate == file.default_hyperparameters().learning_rate
