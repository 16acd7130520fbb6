"""The error tree: what a worker and the command line tell kinds apart by."""

from __future__ import annotations

from rune.core import errors
from rune.core.errors import DefinitionError, EngineError, ErrorInfo, NodeError, Problem, RuneError
from tests.core.graphs import plain


def test_everything_raised_on_purpose_is_a_rune_error() -> None:
    kinds = [getattr(errors, name) for name in errors.__all__]
    raised = [kind for kind in kinds if issubclass(kind, Exception)]
    assert len(raised) == 9
    assert all(issubclass(kind, RuneError) for kind in raised)


def test_the_engines_own_errors_are_node_errors_too() -> None:
    error = EngineError("timed out", "MERGE_TIMEOUT", {"arrived": 1})
    assert isinstance(error, NodeError)
    assert (str(error), error.code, error.details, error.retryable) == (
        "timed out",
        "MERGE_TIMEOUT",
        {"arrived": 1},
        False,
    )


def test_a_node_error_needs_only_a_message() -> None:
    error = NodeError("broken")
    assert (error.message, error.code, error.details, error.retryable) == (
        "broken",
        "NODE_ERROR",
        None,
        False,
    )


def test_a_definition_error_says_every_problem() -> None:
    error = DefinitionError([Problem("E010", "no nodes"), Problem("E011", "no edges")], "flow.json")
    assert str(error) == "E010: no nodes; E011: no edges"
    assert (len(error.problems), error.source) == (2, "flow.json")


def test_an_error_object_leaves_out_what_it_does_not_know() -> None:
    assert plain(ErrorInfo("no", "CODE")) == {"message": "no", "code": "CODE"}
    assert plain(ErrorInfo("no", "CODE", {"a": 1}, "fetch")) == {
        "message": "no",
        "code": "CODE",
        "details": {"a": 1},
        "node": "fetch",
    }
