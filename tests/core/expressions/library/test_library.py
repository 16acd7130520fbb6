"""The library as a whole: its reference is complete and says what is so."""

from __future__ import annotations

import pytest

from rune.core.expressions import FUNCTIONS, TESTS


@pytest.mark.parametrize(
    "function", [*FUNCTIONS.values(), *TESTS.values()], ids=lambda function: function.name
)
def test_has_a_line_of_documentation(function: object) -> None:
    doc = function.doc  # type: ignore[attr-defined]
    assert doc.endswith(".")
    assert "\n" not in doc


@pytest.mark.parametrize(
    ("name", "signature"),
    [
        ("upper", "upper(value)"),
        ("replace", "replace(value, old, new, count=-1)"),
        ("int", "int(value, default?)"),
        ("default", "default(value, fallback='', falsy=false)"),
        ("split", "split(value, separator=null, limit=-1)"),
        ("map", "map(value, function=null, ...arguments, attribute=null, default?)"),
        ("merge", "merge(value, ...others, deep=false)"),
        ("now", "now(format=null, timezone='UTC')"),
        ("coalesce", "coalesce(...values)"),
        ("uuid", "uuid()"),
    ],
)
def test_signatures_are_written_in_the_words_of_the_language(name: str, signature: str) -> None:
    assert FUNCTIONS[name].signature == signature


def test_only_the_clock_and_chance_are_not_deterministic() -> None:
    assert {name for name, function in FUNCTIONS.items() if not function.deterministic} == {"now", "uuid"}


def test_every_name_is_known_under_itself() -> None:
    for table in (FUNCTIONS, TESTS):
        assert all(function.name == name for name, function in table.items())


def test_the_library_has_what_the_format_promises() -> None:
    promised = """
        default length first last sum min max round int float string lower upper trim split join replace keys
        values items map select reject selectattr sort unique flatten slice range zip tojson fromjson
        b64encode b64decode urlencode hash now date datediff uuid regex_match regex_replace
        abs ceil floor reverse count avg mean group_by rejectattr merge get contains startswith endswith title
        capitalize any all urldecode timestamp regex_find regex_findall type
    """
    assert set(promised.split()) <= set(FUNCTIONS)
