"""Guessing is slowed down, by account and by address."""

from __future__ import annotations

from rune.master.security.throttle import Throttle


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_after_ten_failures_an_account_rests() -> None:
    clock = Clock()
    throttle = Throttle(clock)
    assert [throttle.attempt("ada", f"10.0.0.{n}") for n in range(10)] == [0.0] * 10
    assert throttle.attempt("ada", "10.0.0.99") == 900.0
    assert throttle.attempt("eve", "10.0.0.99") == 0.0
    clock.now += 901
    assert throttle.attempt("ada", "10.0.0.99") == 0.0


def test_after_thirty_failures_an_address_rests() -> None:
    throttle = Throttle(Clock())
    assert [throttle.attempt(f"user{n}", "10.0.0.1") for n in range(30)] == [0.0] * 30
    assert throttle.attempt("ada", "10.0.0.1") > 0
    assert throttle.attempt("ada", "10.0.0.2") == 0.0


def test_an_ipv6_network_is_one_address() -> None:
    throttle = Throttle(Clock())
    for n in range(30):
        throttle.attempt(f"user{n}", f"2001:db8:0:1::{n:x}")
    assert throttle.attempt("ada", "2001:db8:0:1:ffff::1") > 0
    assert throttle.attempt("ada", "2001:db8:0:2::1") == 0.0


def test_whoever_gets_it_right_is_not_counted() -> None:
    throttle = Throttle(Clock())
    for _ in range(50):
        assert throttle.attempt("ada", "10.0.0.1") == 0.0
        throttle.succeeded("ada", "10.0.0.1")


def test_nobody_is_locked_out_by_strangers() -> None:
    throttle = Throttle(Clock())
    throttle.attempt("ada", "10.0.0.1")
    throttle.succeeded("ada", "10.0.0.1")
    for n in range(20):
        throttle.attempt("ada", f"10.9.0.{n}")
    assert throttle.attempt("ada", "10.9.0.99") > 0
    assert throttle.attempt("ada", "10.0.0.1") == 0.0


def test_its_memory_has_an_end() -> None:
    throttle = Throttle(Clock())
    for n in range(30_000):
        throttle.attempt(f"user{n}", f"host{n}")
    assert len(throttle._attempts) <= 10_000
