"""The graph: where it starts, which way a node's port leads, how long a retry rests."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rune.core.node import Role
from rune.core.workflow import Retry
from tests.core.graphs import Choice, Scatter, Start, graph, node


def test_without_a_trigger_it_starts_where_nothing_leads_to() -> None:
    assert graph("a > c", "b > c > d").entries == ("a", "b")


def test_with_a_trigger_it_starts_with_what_follows_it() -> None:
    flow = graph("t > a > b", "t > b", "x > b", nodes=(node("t", Start),))
    assert flow.entries == ("a", "b")


def test_a_node_that_two_triggers_lead_to_starts_once() -> None:
    flow = graph("t > a", "u > a", "u > b", nodes=(node("t", Start), node("u", Start)))
    assert flow.entries == ("a", "b")


def test_a_port_leads_along_its_edges_and_leaves_the_others() -> None:
    flow = graph("c:true > a", "c:true > b", "c:false > d", "c:error > e", nodes=(node("c", Choice),))

    def routed(port: str | None) -> tuple[list[str], list[str]]:
        taken, dead = flow.route("c", port)
        return [edge.dst for edge in taken], [edge.dst for edge in dead]

    assert routed("true") == (["a", "b"], ["d", "e"])
    assert routed("false") == (["d"], ["a", "b", "e"])
    assert routed("error") == (["e"], ["a", "b", "d"])
    assert routed("elsewhere") == ([], ["a", "b", "d", "e"])
    assert routed(None) == ([], ["a", "b", "d", "e"])
    assert routed("true") == (["a", "b"], ["d", "e"])


def test_edges_are_kept_in_the_order_they_are_written_in() -> None:
    flow = graph("a > c", "a > b", "x > c")
    assert [edge.dst for edge in flow.outgoing["a"]] == ["c", "b"]
    assert [edge.src for edge in flow.incoming["c"]] == ["a", "x"]
    assert flow.incoming["a"] == []


def test_its_name_is_its_id_unless_it_has_one() -> None:
    flow = graph("a > b")
    assert (flow.id, flow.name) == ("wf", "wf")


def test_paths_are_worked_out_once_for_each_entry() -> None:
    flow = graph("a > b > c")
    assert flow.paths() is flow.paths()
    assert flow.paths("b") is flow.paths("b") is not flow.paths()


def test_a_node_has_the_role_of_its_type() -> None:
    assert (node("s", Scatter).role, node("a").role) == (Role.SPLIT, Role.PLAIN)


@pytest.mark.parametrize(
    ("retry", "rests"),
    [
        (Retry(5, 2.0), [2, 2, 2, 2]),
        (Retry(5, 2.0, "linear"), [2, 4, 6, 8]),
        (Retry(5, 2.0, "exponential"), [2, 4, 8, 16]),
        (Retry(5, 2.0, "exponential", max_delay=5), [2, 4, 5, 5]),
        (Retry(5), [0, 0, 0, 0]),
    ],
)
def test_a_retry_rests_as_it_was_told_to(retry: Retry, rests: list[float]) -> None:
    assert [retry.rest(attempt) for attempt in range(1, 5)] == rests


@given(
    st.builds(
        Retry,
        st.just(1000),
        st.floats(0, 1e6),
        st.sampled_from(["fixed", "linear", "exponential"]),
        st.floats(0, 1e6),
    ),
    st.integers(1, 1000),
)
def test_a_rest_never_shrinks_nor_passes_its_bound(retry: Retry, attempt: int) -> None:
    assert 0 <= retry.rest(attempt) <= retry.rest(attempt + 1) <= retry.max_delay
