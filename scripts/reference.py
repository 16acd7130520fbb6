"""Write the pages of docs/reference that are made from the code; with --check, say which are out of date."""

from __future__ import annotations

import ast
import inspect
import json
import sys
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path

import msgspec

from rune.cli.describe import Parameter, documentation, parameters_of, ports_of
from rune.core.expressions import FUNCTIONS, TESTS, Function
from rune.core.node import NodeType
from rune.nodes import load_builtin
from rune.settings import Settings

DOCS = Path(__file__).parent.parent / "docs" / "reference"
NOTE = "<!-- Written by scripts/reference.py: change the code, then run it. -->"


def nodes_page() -> str:
    """The reference of the node types."""
    types = sorted(load_builtin(), key=lambda type: type.name.lower())
    index = ", ".join(f"[`{type.name}`](#{type.name.lower()})" for type in types)
    head = (
        "# Node types\n\n"
        f"{NOTE}\n\n"
        "What each type takes and where it leads; `rune nodes TYPE` shows the same, of your own types too.\n"
        "A parameter is a value, or a template that gives one: `$fetch.body`, `{{ $item.price * 2 }}`;\n"
        "where its type is *an expression*, it needs no braces. Every node may also have\n"
        "`error`, `retry`, `credentials` and `pool`.\n\n"
        f"{index}\n"
    )
    return "\n".join([head, *map(_node, types)])


def _node(type: type[NodeType]) -> str:
    first, _, rest = documentation(type).partition("\n")
    lines = [f"## {type.name}", "", first, ""]
    if rest.strip():
        lines += [rest.strip(), ""]
    parameters = parameters_of(type)
    if parameters:
        lines += ["| parameter | type | default | |", "| --- | --- | --- | --- |", *map(_row, parameters), ""]
    lines += [f"Ports: {ports_of(type)}.", ""]
    return "\n".join(lines)


def _row(parameter: Parameter) -> str:
    default = f"`{parameter.default}`" if parameter.default is not None else ""
    cells = [f"`{parameter.name}`", parameter.type, "required" if parameter.required else default]
    return "| " + " | ".join(_cell(cell) for cell in (*cells, parameter.description)) + " |"


def expressions_page() -> str:
    """The reference of the functions and tests of expressions."""
    return "\n".join(
        [
            "# Functions of expressions",
            "",
            NOTE,
            "",
            "Each is also a filter: `round(x, 2)` and `x | round(2)` are the same. `name?` may be left out.",
            "",
            *_functions(FUNCTIONS.values()),
            "",
            "## Tests",
            "",
            "As in `x is number`, `x is not defined`; by name in `select`, `reject`, `selectattr` …",
            "",
            *_functions(TESTS.values()),
            "",
        ]
    )


def _functions(functions: Iterable[Function]) -> list[str]:
    rows = [f"| `{_cell(f.signature)}` | {_cell(f.doc)} |" for f in sorted(functions, key=lambda f: f.name)]
    return ["| | |", "| --- | --- |", *rows]


def settings_page() -> str:
    """The reference of the settings."""
    about = dict(_field_docs())
    rows = []
    for field in msgspec.structs.fields(Settings):
        default = "" if field.default in (None, ()) else f"`{_shown(field.default)}`"
        rows.append(f"| `RUNE_{field.name.upper()}` | {default} | {_cell(about.get(field.name, ''))} |")
    return "\n".join(
        [
            "# Settings",
            "",
            NOTE,
            "",
            "Each is an environment variable; a flag of the command comes first. Commas part lists.",
            "",
            "| variable | default | |",
            "| --- | --- | --- |",
            *rows,
            "",
        ]
    )


def _field_docs() -> Iterator[tuple[str, str]]:
    """The sentences under the fields, which Python itself does not keep."""
    (definition,) = ast.parse(inspect.getsource(Settings)).body
    assert isinstance(definition, ast.ClassDef)
    for field, after in pairwise(definition.body):
        if isinstance(field, ast.AnnAssign) and isinstance(after, ast.Expr):
            yield ast.unparse(field.target), ast.literal_eval(after.value)


def _shown(default: object) -> str:
    return ",".join(f"{part:g}" for part in default) if isinstance(default, tuple) else str(default)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def openapi_page() -> str:
    """The description of the API."""
    from rune.master.app import routed

    return json.dumps(routed().openapi(), indent=1, ensure_ascii=False) + "\n"


PAGES = {
    "nodes.md": nodes_page,
    "expressions.md": expressions_page,
    "settings.md": settings_page,
    "openapi.json": openapi_page,
}


def main() -> int:
    """Write the pages, or with --check name those that are out of date."""
    check = "--check" in sys.argv[1:]
    stale = 0
    for name, page in PAGES.items():
        path = DOCS / name
        text = page()
        if path.exists() and path.read_text() == text:
            continue
        if check:
            stale += 1
            print(f"{path} is out of date: run scripts/reference.py")
        else:
            path.write_text(text)
            print(f"wrote {path}")
    return min(stale, 1)


if __name__ == "__main__":
    sys.exit(main())
