"""What a branch knows: values by name, the newest of each name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from rune.core.context import Context, Layer, Ref, weight
from tests.core.graphs import raw, raws

LARGE = Ref("h1", 100_000, "$big")
OLD = Ref("h2", 20_000)
NEW = Ref("h3", 20_000)
STORED = {
    LARGE: Layer(raws({"$big": "large"})),
    OLD: Layer(raws({"$a": "old", "$b": "old"})),
    NEW: Layer(raws({"$a": "new"})),
}


def value(context: Context, key: str) -> object:
    """A value, read both ways."""
    found = context.value(key, STORED.__getitem__)
    assert raw(found) == context.raw(key, STORED.__getitem__)
    return found


def test_its_own_values_hide_the_shared_ones_which_hide_the_stored_ones() -> None:
    context = Context(raws({"$x": "own"}), Layer(raws({"$x": "shared", "$a": "shared"})), (OLD, NEW))
    assert [value(context, key) for key in ("$x", "$a", "$b")] == ["own", "shared", "old"]


def test_a_layer_stored_later_hides_one_stored_earlier() -> None:
    assert value(Context({}, refs=(OLD, NEW)), "$a") == "new"
    assert value(Context({}, refs=(NEW, OLD)), "$a") == "old"


def test_what_it_does_not_know_is_a_key_error() -> None:
    context = Context(raws({"$x": 1}), refs=(LARGE, OLD))
    with pytest.raises(KeyError, match="nothing"):
        context.value("$nothing", STORED.__getitem__)
    with pytest.raises(KeyError, match="nothing"):
        context.raw("$nothing", STORED.__getitem__)


def test_having_adds_without_changing_what_others_hold() -> None:
    before = Context(raws({"$a": 1}), Layer(raws({"$s": 1})), (OLD,))
    after = before.having(raws({"$a": 2, "$c": 3}))
    assert (value(before, "$a"), value(after, "$a"), value(after, "$c")) == (1, 2, 3)
    assert after.shared is before.shared
    assert after.refs == before.refs
    with pytest.raises(KeyError):
        value(before, "$c")


def test_referring_hides_the_inline_values_of_those_names() -> None:
    before = Context(raws({"$big": 1, "$a": 1}), Layer(raws({"$big": 2, "$s": 3})))
    after = before.referring((LARGE,))
    assert (value(after, "$big"), value(after, "$a"), value(after, "$s")) == ("large", 1, 3)
    assert value(before, "$big") == 1


def test_a_value_set_after_a_reference_is_the_newer_one() -> None:
    assert value(Context({}).referring((LARGE,)).having(raws({"$big": "newer"})), "$big") == "newer"


def test_it_needs_only_the_references_that_may_hold_what_is_asked_for() -> None:
    context = Context(raws({"$x": 1}), Layer(raws({"$y": 1})), (LARGE, OLD))
    assert context.needs(frozenset({"$x", "$y"})) == []
    assert context.needs(frozenset({"$x", "$a"})) == [OLD]
    assert context.needs(frozenset({"$big"})) == [LARGE, OLD]
    assert Context({}).needs(frozenset({"$a"})) == []


def test_a_value_is_decoded_once() -> None:
    context = Context(raws({"$own": [1]}), Layer(raws({"$shared": [2]})))
    for key in ("$own", "$shared"):
        assert value(context, key) is value(context, key)


def test_values_that_nobody_reads_are_never_decoded() -> None:
    context = Context({"$broken": Raw(b"{"), "$fine": Raw(b"1")})
    assert value(context, "$fine") == 1
    assert context.inline()["$broken"] == Raw(b"{")


def test_names_are_those_of_every_layer() -> None:
    context = Context(raws({"$x": 1}), Layer(raws({"$y": 1})), (LARGE, OLD))
    assert sorted(context.names(STORED.__getitem__)) == ["$a", "$b", "$big", "$x", "$y"]


def test_size_counts_what_travels_inline() -> None:
    context = Context(raws({"$x": "1234"}), Layer(raws({"$y": 1})), (LARGE,))
    assert weight(raw("1234")) == 6
    assert context.size == len('"$x":"1234",') - 2 + len('"$y":1,') - 2 + 4
    assert Context({}, refs=(LARGE,)).size == 0


names = st.sampled_from(["$a", "$b", "$c"])
writes = st.lists(st.tuples(st.sampled_from(["inline", "stored", "layer"]), names, st.integers()), max_size=8)


@given(writes)
def test_the_last_value_written_is_the_one_that_is_read(writes: list[tuple[str, str, int]]) -> None:
    context, stored, expected = Context({}), {}, {}
    for number, (how, key, value) in enumerate(writes):
        expected[key] = value
        if how == "inline":
            context = context.having({key: raw(value)})
            continue
        ref = Ref(f"h{number}", 1, key if how == "stored" else "")
        stored[ref] = Layer({key: raw(value)})
        if how == "stored":
            context = context.referring((ref,))
        else:
            # A layer is what the engine makes of all inline values together.
            stored[ref] = Layer({**context.inline(), key: raw(value)})
            context = Context({}, refs=(*context.refs, ref))
    assert {key: context.value(key, stored.__getitem__) for key in expected} == expected
    assert set(context.names(stored.__getitem__)) == set(expected)
