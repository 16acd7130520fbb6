"""The description of the API: complete, and the one that is committed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rune.master.app import routed
from rune.master.problems import MEDIA_TYPE
from tests.master.client import Api

_COMMITTED = Path(__file__).parents[2] / "docs/reference/openapi.json"


def _operations() -> list[tuple[str, str, dict[str, Any]]]:
    document = routed().openapi()
    return [(m, path, op) for path, ops in document["paths"].items() for m, op in ops.items()]


def test_the_committed_description_is_the_one_that_is_served() -> None:
    assert json.loads(_COMMITTED.read_text()) == routed().openapi(), "run scripts/reference.py"


async def test_it_is_served(small: Api) -> None:
    found = (await small.get("/api/openapi.json")).json
    assert found == json.loads(_COMMITTED.read_text())
    assert found["openapi"].startswith("3.1")


def test_every_operation_says_what_it_answers() -> None:
    for method, path, operation in _operations():
        where = f"{method} {path}"
        assert operation.get("summary"), where
        assert operation.get("description"), where
        assert operation.get("tags"), where
        good = [response for status, response in operation["responses"].items() if status < "300"]
        assert good, where
        for response in good:
            content = response.get("content", {})
            schemas = [each.get("schema") for each in content.values()]
            assert all(schemas), f"{where} does not say what it answers"


def test_every_refusal_is_a_problem_document() -> None:
    document = routed().openapi()
    for method, path, operation in _operations():
        if not path.startswith("/api/"):
            continue
        for status, response in operation["responses"].items():
            if status >= "400":
                name = response.get("$ref", "").rpartition("/")[2]
                resolved = document["components"]["responses"][name] if name else response
                assert MEDIA_TYPE in resolved["content"], f"{method} {path} {status}"


def test_operation_ids_are_unique_and_references_lead_somewhere() -> None:
    document = routed().openapi()
    names = [operation["operationId"] for _, _, operation in _operations()]
    assert len(names) == len(set(names))
    text = json.dumps(document)
    for kind in ("schemas", "responses"):
        for name in {part.split('"')[0] for part in text.split(f"#/components/{kind}/")[1:]}:
            assert name in document["components"][kind]
    assert "HTTPValidationError" not in text
