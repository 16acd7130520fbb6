"""The JSON Schema (2020-12) of playbooks, made from the tools, for editors."""

from __future__ import annotations

from typing import Any, get_args

from rune.core.playbook.program import Directive, Reducer, Written
from rune.formats.graph import Registry
from rune.formats.schema import parameters_schema, source_schema

__all__ = ["playbook_schema"]

_TEXT = {"type": "string"}
_OBJECT = {"type": "object"}
_COUNT = {"type": "integer", "minimum": 1}
_SECONDS = {"type": "number", "exclusiveMinimum": 0}
_GUARD = {"type": ["string", "boolean"], "description": "A template, such as `{{ workload.n > 3 }}`."}


def playbook_schema(registry: Registry) -> dict[str, Any]:
    """The schema of a whole playbook."""
    tools = {kind: type for kind in sorted(registry.family("tool")) if (type := registry.get(f"tool.{kind}"))}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Rune playbook",
        "type": "object",
        "required": ["apiVersion", "kind", "metadata", "workflow"],
        "properties": {
            "apiVersion": {"const": "noetl.io/v2"},
            "kind": {"const": "Playbook"},
            "metadata": {"type": "object", "required": ["name"], "properties": {"name": _TEXT}},
            "executor": _EXECUTOR,
            "workload": {**_OBJECT, "description": "Defaults; what the execution is started with wins."},
            "workflow": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/step"}},
            "workbook": {"type": "array", "items": {"type": "object", "required": ["name"]}},
            "workflows": {"type": "object", "additionalProperties": {"type": "object"}},
            "compatibility": {"type": "boolean", "description": "Accept the names of older playbooks."},
        },
        "$defs": {
            "step": _STEP,
            "rule": _RULE,
            "directive": _DIRECTIVE,
            "fanout": _FANOUT,
            "source": source_schema(),
            "task": _task(list(tools)),
            **{f"tool.{kind}": parameters_schema(type) for kind, type in tools.items()},
        },
    }


def _task(kinds: list[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["kind"],
        "properties": {
            "kind": {"enum": [*kinds, "workbook"]},
            "desc": _TEXT,
            "eval": {"type": "array", "items": {"$ref": "#/$defs/rule"}},
        },
        "allOf": [
            {
                "if": {"properties": {"kind": {"const": kind}}, "required": ["kind"]},
                "then": {"$ref": f"#/$defs/tool.{kind}"},
            }
            for kind in kinds
        ],
    }


_FANOUT = {
    "type": "object",
    "properties": {
        "allow_partial": {"type": "boolean", "default": False},
        "fail_fast": {"type": "boolean", "default": False},
        "max_job_retries": {"type": "integer", "minimum": 0, "default": 3},
        "max_shards": _COUNT,
        "max_concurrent": _COUNT,
        "queue_ttl": _SECONDS,
        "key": {**_TEXT, "description": "A template over the element: what it is."},
        "reducers": {"type": "object", "additionalProperties": {"enum": list(get_args(Reducer))}},
    },
    "additionalProperties": False,
}
_LOOP_MODE = {"enum": ["local", "fanout"], "default": "local"}
_EXECUTOR = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["local", "hybrid", "distributed"]},
        "spec": {
            "type": "object",
            "properties": {
                "entry_step": _TEXT,
                "final_step": _TEXT,
                "no_next_is_error": {"type": "boolean", "default": False},
                "pool": _TEXT,
                "loop_mode": _LOOP_MODE,
                "fanout": {"$ref": "#/$defs/fanout"},
            },
        },
    },
}
_ARC = {
    "type": "object",
    "required": ["step"],
    "properties": {"step": _TEXT, "when": _GUARD, "args": _OBJECT},
}
_STEP = {
    "type": "object",
    "required": ["step"],
    "anyOf": [{"required": ["tool"]}, {"required": ["next"]}],
    "properties": {
        "step": {"type": "string", "pattern": "^[a-zA-Z0-9_-]{1,200}$"},
        "desc": _TEXT,
        "when": _GUARD,
        "args": _OBJECT,
        "loop": {
            "type": "object",
            "required": ["in", "iterator"],
            "properties": {
                "in": {
                    "description": "A list, a template of one, or a source such as {jsonl: file}.",
                    "anyOf": [
                        {"type": "array"},
                        {"type": "string", "pattern": r"\{\{"},
                        {"$ref": "#/$defs/source"},
                    ],
                },
                "iterator": _TEXT,
                "spec": {
                    "type": "object",
                    "properties": {
                        "mode": {"enum": ["sequential", "parallel"], "default": "sequential"},
                        "max_in_flight": {**_COUNT, "default": 10},
                    },
                },
            },
        },
        "tool": {
            "anyOf": [
                {"$ref": "#/$defs/task"},
                {
                    "type": "array",
                    "minItems": 1,
                    "items": {
                        "type": "object",
                        "minProperties": 1,
                        "maxProperties": 1,
                        "additionalProperties": {"$ref": "#/$defs/task"},
                    },
                },
            ]
        },
        "next": {"anyOf": [_TEXT, _ARC, {"type": "array", "items": {"anyOf": [_TEXT, _ARC]}}]},
        "spec": {
            "type": "object",
            "properties": {
                "next_mode": {"enum": ["exclusive", "inclusive"], "default": "exclusive"},
                "timeout": _SECONDS,
                "lease": {"type": "object", "properties": {"ttl": _SECONDS}},
                "loop_mode": _LOOP_MODE,
                "fanout": {"$ref": "#/$defs/fanout"},
                "pool": _TEXT,
            },
        },
    },
}
_DIRECTIVE = {
    "type": "object",
    "properties": {
        "do": {"enum": list(get_args(Directive)), "default": "continue"},
        "to": {**_TEXT, "description": "The label that `jump` leads to."},
        "attempts": {**_COUNT, "default": 3},
        "backoff": {"enum": ["fixed", "linear", "exponential"], "default": "fixed"},
        "delay": {"type": "number", "minimum": 0, "default": 0},
        **{f"set_{where}": {} for where in get_args(Written)},
    },
}
_RULE = {
    "anyOf": [
        {"type": "object", "required": ["else"], "properties": {"else": {"$ref": "#/$defs/directive"}}},
        {
            "allOf": [
                {"$ref": "#/$defs/directive"},
                {"type": "object", "required": ["expr"], "properties": {"expr": _GUARD}},
            ]
        },
    ]
}
