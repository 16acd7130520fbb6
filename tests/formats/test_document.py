"""Texts that load, texts that do not, and where the trouble stands."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rune.core.errors import DefinitionError, Problem
from rune.formats.document import MAX_DEPTH, Document, load


def refusal(text: str | bytes, name: str) -> Problem:
    """The one problem that a text is refused for."""
    with pytest.raises(DefinitionError) as caught:
        load(text, name)
    assert caught.value.source == name
    [problem] = caught.value.problems
    return problem


def refused(text: str | bytes, name: str) -> tuple[str, int | None, int | None]:
    problem = refusal(text, name)
    return problem.code, problem.line, problem.column


# What loads


def test_json_and_yaml_say_the_same() -> None:
    value = {"nodes": [{"id": "a", "n": 1, "f": 1.5, "t": True, "z": None}], "text": "grüße"}
    as_json = load(json.dumps(value), "flow.json")
    as_yaml = load("nodes:\n- {id: a, n: 1, f: 1.5, t: true, z: null}\ntext: grüße\n", "flow.yaml")
    assert as_json.value == as_yaml.value == value


@pytest.mark.parametrize("name", ["flow.yaml", "flow.YML", "-"])
def test_yaml_is_known_by_its_suffix_or_its_content(name: str) -> None:
    assert load("a: 1\n", name).value == {"a": 1}


def test_json_without_a_suffix_is_known_by_its_brace() -> None:
    assert load(' {"a": 1}', "-").value == {"a": 1}


def test_a_byte_order_mark_is_no_part_of_the_text() -> None:
    assert load('\ufeff{"a": 1}'.encode(), "flow.json").value == {"a": 1}


def test_words_that_yaml_1_1_takes_for_something_else_stay_text() -> None:
    text = "on: yes\noff: [no, y, 12:30, 2024-01-31, 0b1, 1_000, '5', \"true\", 1e3x]\n"
    assert load(text, "f.yaml").value == {
        "on": "yes",
        "off": ["no", "y", "12:30", "2024-01-31", "0b1", "1_000", "5", "true", "1e3x"],
    }


def test_yaml_numbers_words_and_tags() -> None:
    text = "v: [0x1f, 0o17, -3, +4, .5, 1e3, ~, null, True, FALSE, !!str 5, !!int '5', ! 7, !!float 2]\n"
    assert load(text, "f.yaml").value == {
        "v": [31, 15, -3, 4, 0.5, 1000.0, None, None, True, False, "5", 5, "7", 2]
    }


def test_yaml_anchors_and_merges() -> None:
    text = (
        "base: &b {a: 1, b: 2}\none: {<<: *b, b: 3}\ntwo: {<<: [*b, {c: 4}]}\nlist: *b\nquoted: {'<<': 1}\n"
    )
    assert load(text, "f.yaml").value == {
        "base": {"a": 1, "b": 2},
        "one": {"a": 1, "b": 3},
        "two": {"a": 1, "b": 2, "c": 4},
        "list": {"a": 1, "b": 2},
        "quoted": {"<<": 1},
    }


def test_json_does_not_import_yaml() -> None:
    code = (
        "import sys; from rune.formats.graph import load_workflow; from rune.formats.document import load;"
        "load('{}', 'f.json'); sys.exit('yaml' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# What does not


@pytest.mark.parametrize(
    ("text", "line", "column", "said"),
    [
        ('{"a": 1,}', 1, 8, "a comma before '}'; remove the comma"),
        ('{"a": [1, 2,\n]}', 1, 12, "a comma before ']'; remove the comma"),
        ('{"a": 1\n "b": 2}', 2, 2, "a comma or a closing bracket should stand before '\"'"),
        ('{"a" 1}', 1, 6, "a colon should stand before '1'"),
        ("{'a': 1}", 1, 2, "a single quote; JSON text stands in double quotes"),
        ("{a: 1}", 1, 2, "'a' needs double quotes"),
        ('{"a": True}', 1, 7, "'True' is written true in JSON"),
        ('{"a": yes}', 1, 7, "'yes' needs double quotes"),
        ('{\n  // why\n  "a": 1}', 2, 3, "a comment; JSON has no comments"),
        ('{"a": "b\n"}', 1, 9, "a line break or another control character inside a text"),
        ('{"a": "b', 1, 7, "a text that is not closed"),
        ('{"a": "\\x"}', 1, 8, "a backslash that begins no escape"),
        ('{"a": [1, {"b": 2}', 1, 19, "the '[' of line 1, column 7 is not closed"),
        ('{"a":', 1, 6, "the '{' of line 1, column 1 is not closed"),
        ('{"a": 1} {"b": 2}', 1, 10, "more text after the end"),
        ('{"a": "\\ud800"}', 1, 7, "half of a surrogate pair"),
    ],
)
def test_broken_json(text: str, line: int, column: int, said: str) -> None:
    problem = refusal(text, "flow.json")
    assert (problem.code, problem.line, problem.column) == ("E002", line, column)
    assert said in f"{problem.message}; {problem.hint}"


@pytest.mark.parametrize(
    ("text", "line", "column", "said"),
    [
        ("a: [1, 2\nb: 3\n", 2, 2, "flow sequence"),
        ("a: 1\n\tb: 2\n", 2, 1, "indented with spaces"),
        ("a: b: c\n", 1, 5, "needs quotes"),
        ("a: @b\n", 1, 4, "needs quotes"),
        ("a: 'b\n", 2, 1, "end of stream"),
        ("a: *b\n", 1, 4, "*b names an anchor"),
        ("a: &x [*x]\n", 1, 8, "not finished"),
        ("a: \x01\n", 1, 4, "does not allow"),
    ],
)
def test_broken_yaml(text: str, line: int, column: int, said: str) -> None:
    problem = refusal(text, "flow.yaml")
    assert (problem.code, problem.line, problem.column) == ("E003", line, column)
    assert said in f"{problem.message}; {problem.hint}"


@pytest.mark.parametrize(
    ("text", "line", "column", "said"),
    [
        ("a: !!python/object/apply:os.system ['x']\n", 1, 4, "!!python/object/apply:os.system"),
        ("a: !mine x\n", 1, 4, "!mine"),
        ("a: !!binary aGk=\n", 1, 4, "!!binary"),
        ("a: !!int x\n", 1, 4, "is not what !!int says"),
        ("a:\n  1: x\n", 2, 3, "write '1' in quotes"),
        ("a:\n  true: x\n", 2, 3, "'true' is not text"),
        ("? [a]\n: x\n", 1, 3, "as a key"),
        ("a: &x k\n*x : 1\n", 2, 1, "alias as a key"),
        ("a: 1\n---\nb: 2\n", 2, 1, "second YAML document"),
        ("a: {<<: 1}\n", 1, 9, "merges objects only"),
    ],
)
def test_yaml_that_is_not_accepted(text: str, line: int, column: int, said: str) -> None:
    problem = refusal(text, "flow.yaml")
    assert (problem.code, problem.line, problem.column) == ("E009", line, column)
    assert said in f"{problem.message}; {problem.hint}"


def test_aliases_cannot_grow_without_bound() -> None:
    levels = "".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]\n" for n in range(1, 12))
    problem = refusal(f"l0: &l0 [1, 2, 3]\n{levels}", "f.yaml")
    assert problem.code == "E009"
    assert "100000" in problem.message


@pytest.mark.parametrize(
    ("text", "name"),
    [('{"a": {"b": 1,\n "b": 2}}', "f.json"), ("a:\n  b: 1\n  b: 2\n", "f.yaml")],
)
def test_a_key_twice(text: str, name: str) -> None:
    problem = refusal(text, name)
    assert problem.code == "E004"
    assert problem.path == ("a", "b")
    assert problem.line == (2 if name == "f.json" else 3)
    assert "'b' stands twice" in problem.message


def test_every_key_that_stands_twice_is_named() -> None:
    with pytest.raises(DefinitionError) as caught:
        load('{"a": 1, "a": 2, "b": [{"c": 1, "c": 2}]}', "f.json")
    assert [problem.path for problem in caught.value.problems] == [("a",), ("b", 0, "c")]


@pytest.mark.parametrize(
    ("text", "name", "line", "column"),
    [
        ('{"a": NaN}', "f.json", 1, 7),
        ('{"a": [1,\n -Infinity]}', "f.json", 2, 2),
        ('{"a": 1e999}', "f.json", 1, 7),
        ('{"a": ' + "9" * 5000 + "}", "f.json", 1, 7),
        ("a: .inf\n", "f.yaml", 1, 4),
        ("a: .NaN\n", "f.yaml", 1, 4),
        ("a: 1e999\n", "f.yaml", 1, 4),
    ],
)
def test_numbers_that_json_cannot_hold(text: str, name: str, line: int, column: int) -> None:
    assert refused(text, name) == ("E008", line, column)


def test_large_integers_are_numbers() -> None:
    digits = "9" * 400
    assert load(f'{{"a": {digits}, "b": true}}', "f.json").value["a"] == int(digits)


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 900, 100_000])
def test_nesting_has_a_bound(depth: int) -> None:
    assert refusal('{"a": ' + "[" * depth + "]" * depth + "}", "f.json").code == "E007"
    assert refusal("a: " + "[" * depth + "]" * depth, "f.yaml").code == "E007"


def test_nesting_up_to_the_bound_loads() -> None:
    inner = MAX_DEPTH - 1
    for text, name in (
        ('{"a": ' + "[" * inner + "]" * inner + "}", "f.json"),
        ("a: " + "[" * inner + "]" * inner, "f.yaml"),
    ):
        assert load(text, name).value


@pytest.mark.parametrize("text", ["", " \n\t", "\ufeff"])
@pytest.mark.parametrize("name", ["f.json", "f.yaml", "-"])
def test_an_empty_document(text: str, name: str) -> None:
    assert refused(text, name) == ("E005", 1, 1)


@pytest.mark.parametrize(
    ("text", "name"),
    [("[1]", "f.json"), ("5", "f.json"), ("null", "f.json"), ("- a", "f.yaml"), ("just text", "-")],
)
def test_a_top_level_that_is_no_object(text: str, name: str) -> None:
    assert refused(text, name) == ("E006", 1, 1)


def test_text_that_is_not_utf8() -> None:
    assert refused(b'{"a":\n "gr' + b"\xfc" + b'n"}', "f.json") == ("E001", 2, 5)
    problem = refusal('{"a": 1}'.encode("utf-16"), "f.json")
    assert problem.code == "E001"
    assert "UTF-16" in str(problem.hint)


# Places


JSON = """{
  "nodes": [
    {"id": "a", "parameters": {"url": "x{{ $b }}"}},
    {"id": "b\\n\\u00e9\\ud83d\\ude00!"}
  ]
}"""

YAML = """nodes:
  - id: a
    parameters:
      url: x{{ $b }}
      quoted: 'it''s {{ $b }}'
      double: "a\\tb"
      block: |
        first
        second
      folded: >
        text
      marked: &m !!str plain
"""


@pytest.mark.parametrize(
    ("path", "offset", "key", "place"),
    [
        ((), 0, False, (1, 1)),
        (("nodes",), 0, False, (2, 12)),
        (("nodes",), 0, True, (2, 3)),
        (("nodes", 0), 0, False, (3, 5)),
        (("nodes", 0, "parameters", "url"), 0, False, (3, 39)),
        (("nodes", 0, "parameters", "url"), 0, True, (3, 32)),
        (("nodes", 0, "parameters", "url"), 4, False, (3, 44)),
        (("nodes", 1, "id"), 1, False, (4, 14)),
        (("nodes", 1, "id"), 4, False, (4, 34)),
        (("nodes", 0, "parameters", "nothing", 5), 3, False, (3, 31)),
        (("nodes", 9), 0, False, (2, 12)),
    ],
)
def test_places_in_json(path: tuple[str | int, ...], offset: int, key: bool, place: tuple[int, int]) -> None:
    assert load(JSON, "f.json").locate(path, offset, key) == place


@pytest.mark.parametrize(
    ("name", "offset", "place"),
    [
        ("url", 0, (4, 12)),
        ("url", 4, (4, 16)),
        ("quoted", 8, (5, 25)),
        ("double", 2, (6, 19)),
        ("block", 2, (8, 11)),
        ("block", 8, (9, 11)),
        ("folded", 3, (10, 15)),
        ("marked", 2, (12, 26)),
    ],
)
def test_places_in_yaml(name: str, offset: int, place: tuple[int, int]) -> None:
    document = load(YAML, "f.yaml")
    path = ("nodes", 0, "parameters", name)
    assert document.locate(path, offset) == place
    assert document.text.splitlines()[document.locate(path, 0, True)[0] - 1].lstrip().startswith(name)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(
    value=st.dictionaries(st.text(), values, max_size=4),
    indent=st.none() | st.integers(0, 3),
    ascii=st.booleans(),
)
def test_every_value_is_found_where_it_stands(value: dict[str, Any], indent: int | None, ascii: bool) -> None:
    document = load(json.dumps(value, indent=indent, ensure_ascii=ascii), "f.json")
    assert document.value == value
    check_places(document, value, ())


def check_places(document: Document, value: Any, path: tuple[str | int, ...]) -> None:
    """The text at a value's place begins with that value."""
    line, column = document.locate(path)
    rest = "\n".join(document.text.split("\n")[line - 1 :])[column - 1 :]
    assert json.JSONDecoder().raw_decode(rest)[0] == value
    members = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, member in members:
        check_places(document, member, (*path, key))
