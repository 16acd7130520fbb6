"""Numbers are counted by the bounds they do not exceed."""

from __future__ import annotations

import math

from rune.core.histogram import Histogram


def test_a_number_counts_at_every_bound_that_it_does_not_exceed() -> None:
    histogram = Histogram((1, 10))
    for number in (0.5, 1, 1.5, 10, 11, 1000):
        histogram.add(number)
    assert list(histogram.buckets()) == [(1, 2), (10, 4), (math.inf, 6)]
    assert (histogram.count, histogram.total) == (6, 1024)
