"""The JSON Schema (2020-12) of the workflow format, made from the node types, for editors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Union

import msgspec

from rune.core.expressions import Expression
from rune.core.fitting import members, plain
from rune.core.ids import POOL
from rune.core.node import NodeType, Role
from rune.core.sources import Descriptor
from rune.formats.graph import Registry

__all__ = ["POOL_NAME", "parameters_schema", "source_schema", "workflow_schema"]

_ID = {"type": "string", "pattern": "^[a-zA-Z0-9_-]{1,200}$"}
_TEXT = {"type": "string"}
POOL_NAME = {"type": "string", "pattern": rf"^({POOL})?$".replace(r"\Z", "$")}
_ABOUT = ("title", "description", "default", "examples")
_TEMPLATE = r"\$|\{\{"
_NUMBER = r"^\s*[-+]?[0-9.]+([eE][-+]?[0-9]+)?\s*$"


def workflow_schema(registry: Registry) -> dict[str, Any]:
    """The schema of a whole workflow."""
    names = sorted(registry.names())
    types = {name: type for name in names if (type := registry.get(name)) is not None}
    definitions: dict[str, Any] = {name: parameters_schema(type) for name, type in types.items()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Rune workflow",
        "type": "object",
        "required": ["nodes"],
        "properties": {
            "workflow_id": {**_ID, "description": "Identifies the definition."},
            "execution_id": _TEXT,
            "name": _TEXT,
            "pool": {
                **POOL_NAME,
                "description": "The workers that run the nodes which name none themselves.",
            },
            "nodes": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/node"}},
            "edges": {"type": "array", "items": {"$ref": "#/$defs/edge"}},
            "notes": {"description": "Ignored."},
            "workflows": {
                "type": "object",
                "additionalProperties": {"type": "object"},
                "description": "The definitions of workflows that it calls, by name; Rune fills them in.",
            },
        },
        "$defs": {
            "node": _node(types),
            "edge": _EDGE,
            **{f"parameters.{name}": schema for name, schema in definitions.items()},
        },
    }


_EDGE = {
    "type": "object",
    "required": ["id", "src", "dst"],
    "properties": {
        "id": _ID,
        "src": {**_ID, "description": "The node it leaves."},
        "dst": {**_ID, "description": "The node it leads to."},
        "port": {
            **_TEXT,
            "description": "Where it leaves the node: out, true, false, 0, 1, fallback, error …",
        },
        "is_error": {"enum": [True, False, "error"], "description": "Followed only when the node failed."},
        "label": _TEXT,
    },
}


def _node(types: Mapping[str, type[NodeType]]) -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["id", "type"],
        "properties": {
            "id": _ID,
            "name": {**_TEXT, "description": "What people call it; expressions may too."},
            "type": {"enum": list(types)},
            "trigger": {"type": "boolean"},
            "parameters": {"type": "object"},
            "credentials": {
                "type": "object",
                "required": ["id"],
                "properties": {
                    "id": {"type": ["string", "integer"]},
                    "name": _TEXT,
                    "type": _TEXT,
                    "values": False,
                },
            },
            "error": {
                "type": "object",
                "properties": {
                    "type": {"enum": ["halt", "ignore", "branch"], "default": "halt"},
                    "error_edge": {"type": ["string", "null"]},
                },
            },
            "retry": {
                "type": "object",
                "properties": {
                    "attempts": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 1},
                    "delay": {"type": "number", "minimum": 0, "default": 0},
                    "backoff": {"enum": ["fixed", "linear", "exponential"], "default": "fixed"},
                    "max_delay": {"type": "number", "minimum": 0, "default": 3600},
                },
            },
            "pool": {**POOL_NAME, "description": "The workers that run it: `rune worker --queues NAME`."},
            "output": True,
            "position": True,
        },
        "allOf": [_parameters_of(name, type) for name, type in types.items()],
    }


def _parameters_of(name: str, type: type[NodeType]) -> dict[str, Any]:
    needs = any(field.required for field in msgspec.structs.fields(type))
    then: dict[str, Any] = {"properties": {"parameters": {"$ref": f"#/$defs/parameters.{name}"}}}
    if needs:
        then["required"] = ["parameters"]
    return {"if": {"properties": {"type": {"const": name}}, "required": ["type"]}, "then": then}


def parameters_schema(type: type[NodeType]) -> dict[str, Any]:
    """The schema of one node type's parameters, where a template may stand for any value."""
    fields = msgspec.structs.fields(type)
    shape = msgspec.defstruct(
        type.__name__,
        [_field(field) for field in fields],
        rename={field.name: field.encode_name for field in fields},
        kw_only=True,
    )
    (outer,), inner = msgspec.json.schema_components([shape], schema_hook=_custom, ref_template="{name}")
    made: dict[str, Any] = _inline(outer, inner)
    # Joins are counted before anything runs, so that nothing there can be a template.
    templates = type.role not in (Role.GATHER, Role.MERGE)
    made["properties"] = {name: _loosen(part, templates) for name, part in made["properties"].items()}
    made["title"] = type.name
    made["description"] = (type.__doc__ or "").strip().partition("\n")[0]
    return made


def source_schema() -> dict[str, Any]:
    """The schema of a source that items are made or read from."""
    (outer,), inner = msgspec.json.schema_components([Descriptor], ref_template="{name}")
    return _loosen(_inline(outer, inner), templates=True)


def _field(field: msgspec.structs.FieldInfo) -> tuple[str, Any, Any] | tuple[str, Any]:
    options = members(field.type)
    hint = plain(field.type)
    if Expression in options and hint is not Expression and Expression not in members(hint):
        hint = Union[str, hint]  # noqa: UP007  # made of values
    about = [extra for extra in getattr(field.type, "__metadata__", ()) if isinstance(extra, msgspec.Meta)]
    if about and about[0].description:
        hint = Annotated[hint, msgspec.Meta(description=about[0].description)]
    if field.required:
        return field.name, hint
    if field.default is msgspec.NODEFAULT:
        return field.name, hint, msgspec.field(default_factory=field.default_factory)
    return field.name, hint, field.default


def _custom(type: Any) -> dict[str, Any]:
    if type is Expression:
        return {"type": ["string", "number", "boolean"], "x-expression": True}
    raise NotImplementedError


def _inline(schema: Any, inner: Mapping[str, Any]) -> Any:
    """The schema with what it refers to put in its place."""
    if isinstance(schema, list):
        return [_inline(part, inner) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        rest = {key: part for key, part in schema.items() if key != "$ref"}
        return {**_inline(inner[schema["$ref"]], inner), **rest}
    return {key: part if key == "default" else _inline(part, inner) for key, part in schema.items()}


def _loosen(schema: dict[str, Any], templates: bool) -> dict[str, Any]:
    """The schema with numbers also as text, text also as numbers, and templates for anything."""
    about = {key: schema[key] for key in _ABOUT if key in schema}
    core = {key: part for key, part in schema.items() if key not in _ABOUT}
    if not core or core.get("x-expression"):
        return schema
    for key in ("items", "additionalProperties"):
        if isinstance(core.get(key), dict):
            core[key] = _loosen(core[key], templates)
    if isinstance(core.get("properties"), dict):
        core["properties"] = {name: _loosen(part, templates) for name, part in core["properties"].items()}
    options = [_loosen(part, templates) for part in core["anyOf"]] if "anyOf" in core else [core]
    return {**about, "anyOf": [*options, *_also(core, templates)]}


def _also(core: dict[str, Any], templates: bool) -> list[dict[str, Any]]:
    """What may stand where `core` is asked for."""
    kind = core.get("type")
    also: list[dict[str, Any]] = [{"type": "string", "pattern": _TEMPLATE}] if templates else []
    if kind in ("integer", "number"):
        also.append({"type": "string", "pattern": _NUMBER})
    if kind == "boolean":
        also.append({"enum": ["true", "false"]})
    if kind == "string" and "enum" not in core:
        also.append({"type": ["number", "boolean"]})
    return also
