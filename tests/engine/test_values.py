"""Large values: stored once, fetched when something reads them, forgotten by the cache when room is short."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from rune.backends.memory import MemoryState
from rune.core.context import Context, Layer, Ref
from rune.core.errors import EngineError
from rune.core.ids import content_hash
from rune.core.messages import Branch
from rune.core.workflow import Edge
from rune.engine.values import FAN_OUT_INLINE, INLINE, LARGE, Values, expand
from tests.core.graphs import plain, raw, raws
from tests.engine.bench import Spy

EDGE = Edge("e", "a", "b")


def text(size: int, letter: str = "x") -> str:
    """A text whose JSON has this many bytes."""
    return letter * (size - 2)


@pytest.fixture
def state() -> Spy:
    return Spy(MemoryState())


@pytest.fixture
def values(state: Spy) -> Values:
    return Values(state, cache_bytes=1000)


async def read(values: Values, context: Context) -> dict[str, Any]:
    """All that a context holds."""
    layers = await values.load("e", context.refs)
    return {name: context.value(name, layers.__getitem__) for name in set(context.names(layers.__getitem__))}


# --- folding ---


async def test_a_small_context_travels_as_it_is(values: Values, state: Spy) -> None:
    context = Context(raws({"$a": text(INLINE - 100)}))
    assert await values.fold("e", context) is context
    assert state.calls == []


async def test_many_values_become_one_stored_layer(values: Values, state: Spy) -> None:
    context = Context(raws({f"${i}": text(INLINE // 4) for i in range(5)}))
    folded = await values.fold("e", context)
    assert (folded.size, len(folded.refs), folded.refs[0].key) == (0, 1, "")
    assert await read(values, folded) == plain(context.inline())
    assert state.calls == ["put", "get"]


async def test_a_large_value_is_stored_by_itself(values: Values) -> None:
    context = Context(raws({"$big": text(LARGE + 1), "$edge": text(LARGE), "$small": 1}))
    folded = await values.fold("e", context)
    assert sorted(ref.key for ref in folded.refs) == ["", "$big"]
    assert {ref.size for ref in folded.refs if ref.key} == {LARGE + 1}
    assert await read(values, folded) == plain(context.inline())


async def test_the_limit_may_be_lower(values: Values) -> None:
    context = Context(raws({"$a": text(FAN_OUT_INLINE + 1)}))
    assert (await values.fold("e", context)).refs == ()
    assert len((await values.fold("e", context, FAN_OUT_INLINE)).refs) == 1


async def test_a_value_stored_anew_hides_the_older_one(values: Values) -> None:
    once = await values.fold("e", Context(raws({"$a": text(LARGE + 1, "x")})))
    again = await values.fold("e", once.having(raws({"$a": text(LARGE + 1, "y")})))
    assert len(again.refs) == 1
    assert await read(values, again) == {"$a": text(LARGE + 1, "y")}


async def test_a_small_value_hides_a_large_one_of_its_name(values: Values) -> None:
    large = await values.fold("e", Context(raws({"$a": text(LARGE + 1)})))
    filler = {f"${i}": text(INLINE // 4) for i in range(5)}
    folded = await values.fold("e", large.having(raws({"$a": "small", **filler})))
    assert (await read(values, folded))["$a"] == "small"


async def test_children_that_share_a_context_store_it_once(values: Values, state: Spy) -> None:
    shared = Context(raws({f"${i}": text(INLINE // 4) for i in range(5)}))
    small = Context(raws({"$a": 1}))
    children = [(EDGE, Branch(f"s{i}", (), shared)) for i in range(3)] + [(EDGE, Branch("s3", (), small))]
    folded = await values.fold_all("e", children)
    assert state.calls == ["put"]
    assert len({id(branch.context) for _, branch in folded[:3]}) == 1
    assert folded[3][1].context is small
    assert [branch.step for _, branch in folded] == ["s0", "s1", "s2", "s3"]


sizes = st.sampled_from([10, 1000, INLINE, LARGE - 1, LARGE + 1])
writes = st.lists(st.tuples(st.sampled_from("abc"), sizes, st.sampled_from("xyz")), max_size=8)


@given(writes, st.sampled_from([FAN_OUT_INLINE, INLINE]))
def test_folding_any_time_changes_nothing_that_is_read(
    writes: list[tuple[str, int, str]], limit: int
) -> None:
    async def go() -> None:
        values = Values(MemoryState())
        context = Context({})
        for name, size, letter in writes:
            context = await values.fold("e", context.having({f"${name}": raw(text(size, letter))}), limit)
            assert context.size <= limit
        expected = {f"${name}": text(size, letter) for name, size, letter in writes}
        assert await read(values, context) == expected

    asyncio.run(go())


# --- reading ---


async def put(values: Values, value: str, key: str = "$a") -> Ref:
    data = bytes(raw(value))
    return Ref(await values.store("e", data), len(data), key)


async def test_what_was_read_lately_is_not_fetched_again(values: Values, state: Spy) -> None:
    ref = await put(values, "value")
    assert await values.load("e", [ref]) == await values.load("e", [ref])
    assert state.calls.count("get") == 1


async def test_several_references_are_one_call(values: Values, state: Spy) -> None:
    refs = [await put(values, text(10, letter)) for letter in "abc"]
    layers = await values.load("e", refs)
    assert [layers[ref].value("$a") for ref in refs] == [text(10, letter) for letter in "abc"]
    assert state.calls.count("get") == 1


async def test_the_cache_forgets_what_was_used_longest_ago(values: Values, state: Spy) -> None:
    a, b, c = [await put(values, text(400, letter)) for letter in "abc"]
    await values.load("e", [a])
    await values.load("e", [b])
    await values.load("e", [a])
    await values.load("e", [c])
    state.calls.clear()
    await values.load("e", [a, c])
    assert state.calls == []
    await values.load("e", [b])
    assert state.calls == ["get"]


async def test_a_value_larger_than_the_cache_is_read_all_the_same(values: Values) -> None:
    ref = await put(values, text(5000))
    assert (await values.load("e", [ref]))[ref].value("$a") == text(5000)


async def test_two_who_read_the_same_value_at_once_take_its_room_once(values: Values, state: Spy) -> None:
    a, b = [await put(values, text(400, letter)) for letter in "ab"]
    both = asyncio.Event()

    async def until_both_ask(name: str) -> None:
        if state.calls.count("get") == 2:
            both.set()
        await both.wait()

    state.before = until_both_ask
    await asyncio.gather(values.load("e", [a]), values.load("e", [a]))
    state.before = None
    await values.load("e", [b])
    state.calls.clear()
    await values.load("e", [a, b])
    assert state.calls == []


async def test_a_value_that_is_gone_is_named(values: Values) -> None:
    with pytest.raises(EngineError, match=r"the stored value of '\$a' is gone") as raised:
        await values.load("e", [Ref("nowhere", 1, "$a")])
    assert raised.value.code == "VALUE_MISSING"
    with pytest.raises(EngineError, match="the context"):
        await values.load("e", [Ref("nowhere", 1)])
    with pytest.raises(EngineError) as raised:
        await values.fetch("e", "nowhere")
    assert (raised.value.code, raised.value.details) == ("VALUE_MISSING", {"hash": "nowhere"})


async def test_a_value_is_stored_under_the_hash_of_its_bytes(values: Values) -> None:
    assert await values.store("e", b"[1]") == content_hash(b"[1]")
    assert await values.fetch("e", content_hash(b"[1]")) == b"[1]"


def test_the_newest_of_each_name_is_what_expanding_gives() -> None:
    old, new = Ref("h1", 1), Ref("h2", 1, "$a")
    layers = {old: Layer(raws({"$a": 1, "$b": 1})), new: Layer(raws({"$a": 2}))}
    assert plain(expand([old, new], layers)) == {"$a": 2, "$b": 1}


def test_a_value_larger_than_any_may_be_is_refused_with_advice() -> None:
    values = Values(MemoryState(), max_value=1000)
    values.check(Raw(b"1" * 1000), "its output")
    with pytest.raises(
        EngineError, match=r"its output is 1,001 bytes, more than the limit of 1,000; split it"
    ) as raised:
        values.check(Raw(b"1" * 1001), "its output")
    assert (raised.value.code, raised.value.details) == ("VALUE_TOO_LARGE", {"bytes": 1001, "limit": 1000})
