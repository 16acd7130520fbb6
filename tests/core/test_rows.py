"""Folding numbers at a barrier: exact, whatever order the items arrive in."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from rune.core.rows import BarrierRow, Fold

floats = st.floats(-1e300, 1e300)
numbers = st.integers(-(2**70), 2**70) | floats | st.sampled_from([0, 0.0, -0.0, 1, 1.0, 0.1, 1e-320])


def folded(values: list[Any]) -> Fold:
    fold = Fold()
    for value in values:
        fold.add(value)
    return fold


@given(st.lists(st.integers(), min_size=1))
def test_whole_numbers_fold_to_whole_numbers(values: list[int]) -> None:
    total, count, least, greatest = folded(values).result()
    assert (total, count, least, greatest) == (sum(values), len(values), min(values), max(values))
    assert isinstance(total, int)


@given(st.lists(numbers, min_size=1, max_size=30))
def test_the_sum_is_exact_and_rounded_once(values: list[float]) -> None:
    total, count, least, greatest = folded(values).result()
    exact = sum(map(Fraction, values), Fraction(0))
    assert Fraction(total) == (exact if all(isinstance(v, int) for v in values) else Fraction(float(exact)))
    assert (count, least, greatest) == (len(values), min(values), max(values))


def test_a_sum_that_plain_addition_gets_wrong() -> None:
    assert folded([1e16, 1.0, -1e16]).result()[0] == 1.0
    assert folded([0.1] * 10).result()[0] == 1.0


@given(
    st.lists(numbers, min_size=1, max_size=12).flatmap(lambda v: st.tuples(st.just(v), st.permutations(v)))
)
def test_the_order_of_arrival_shows_nowhere(orders: tuple[list[float], list[float]]) -> None:
    one, other = (msgspec.json.encode(folded(order).result()) for order in orders)
    assert one == other


@given(st.lists(numbers, max_size=8), st.lists(numbers, max_size=8))
def test_a_fold_goes_on_after_it_was_stored(before: list[float], after: list[float]) -> None:
    stored = msgspec.convert(msgspec.to_builtins(folded(before)), Fold)
    for value in after:
        stored.add(value)
    assert stored == folded(before + after)


@settings(max_examples=20)
@given(st.lists(floats, min_size=50, max_size=100))
def test_its_size_does_not_grow_with_the_number_of_items(values: list[float]) -> None:
    """A double spans 2**-1074 to 2**1024: no sum of doubles needs more bits than that, and a few."""
    fold = folded(values)
    assert fold.denominator.bit_length() <= 1075
    assert fold.numerator.bit_length() <= 2100 + len(values)


def test_nothing_folded_is_nothing() -> None:
    assert Fold().result() == (0, 0, 0, 0)


def test_a_sum_beyond_the_largest_number_does_not_raise() -> None:
    assert folded([1.7e308, 1.7e308]).result()[1:] == (2, 1.7e308, 1.7e308)


def test_a_barrier_counts_what_has_ended() -> None:
    row = BarrierRow("b", "", 10, 1, b"", succeeded=2, failed=3, skipped=4)
    assert row.done == 9
