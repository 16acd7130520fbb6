"""The JSON Schema (2020-12) of playbooks, made from the tools, for editors."""

from __future__ import annotations

from typing import Any, get_args

from rune.core.playbook.program import Directive, Reducer, Written
from rune.formats.graph import Registry
from rune.formats.schema import POOL_NAME, parameters_schema, source_schema

__all__ = ["playbook_schema"]

_TEXT = {"type": "string"}
_NAME = {"type": "string", "minLength": 1}
_OBJECT = {"type": "object"}
_COUNT = {"type": "integer", "minimum": 1}
_SECONDS = {"type": "number", "exclusiveMinimum": 0}
_GUARD = {
    "type": ["string", "boolean", "number"],
    "description": "A template, such as `{{ workload.n > 3 }}`.",
}


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
            "metadata": {"type": "object", "required": ["name"], "properties": {"name": _NAME}},
            "executor": _EXECUTOR,
            "workload": {
                "type": ["object", "null"],
                "description": "Defaults; what the execution is started with wins.",
            },
            "workflow": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/step"}},
            "workbook": {"type": "array", "items": _named(list(tools))},
            "workflows": {"type": "object", "additionalProperties": {"type": "object"}},
            "compatibility": {"type": "boolean", "description": "Accept the names of older playbooks."},
        },
        "$defs": {
            "step": _STEP,
            "rule": _RULE,
            "fanout": _FANOUT,
            "source": source_schema(),
            "task": _task(list(tools)),
            **{f"tool.{kind}": {**parameters_schema(type), **_asked(kind)} for kind, type in tools.items()},
        },
    }


_EITHER = {
    "http": ("url", "endpoint"),
    "postgres": ("command", "query"),
    "duckdb": ("command", "query"),
    "artifact": ("key", "ref"),
}
"""Parameters of which a tool needs one."""


def _asked(kind: str) -> dict[str, Any]:
    return {"anyOf": [{"required": [name]} for name in _EITHER[kind]]} if kind in _EITHER else {}


def _task(kinds: list[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["kind"],
        "properties": {
            "kind": {"enum": [*kinds, "workbook"]},
            "desc": _TEXT,
            "eval": _RULES,
            "case": False,
        },
        "allOf": [
            *(_of_kind(kind, {"$ref": f"#/$defs/tool.{kind}"}) for kind in kinds),
            _of_kind("workbook", {"required": ["name"]}),
        ],
    }


def _of_kind(kind: str, then: dict[str, Any]) -> dict[str, Any]:
    return {"if": {"properties": {"kind": {"const": kind}}, "required": ["kind"]}, "then": then}


def _named(kinds: list[str]) -> dict[str, Any]:
    """A task of the workbook: some of its parameters may be given where it is used."""
    tool = {
        "type": "object",
        "required": ["kind"],
        "properties": {"kind": {"enum": kinds}, "eval": _RULES, "case": False},
    }
    return {
        "type": "object",
        "required": ["name"],
        "properties": {"name": _NAME},
        "anyOf": [{"required": ["tool"], "properties": {"tool": tool}}, tool],
    }


_RULES = {"type": "array", "items": {"$ref": "#/$defs/rule"}}


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
    "not": {
        "required": ["allow_partial", "fail_fast"],
        "properties": {"allow_partial": {"const": True}, "fail_fast": {"const": True}},
    },
}
_LOOP_MODE = {"enum": ["local", "fanout"], "default": "local"}
_WHERE = {"enum": ["local", "hybrid", "distributed"]}
_EXECUTOR = {
    "type": "object",
    "properties": {
        "kind": _WHERE,
        "profile": _WHERE,
        "spec": {
            "type": "object",
            "properties": {
                "entry_step": _TEXT,
                "final_step": _TEXT,
                "no_next_is_error": {"type": "boolean", "default": False},
                "pool": POOL_NAME,
                "loop_mode": _LOOP_MODE,
                "fanout": {"$ref": "#/$defs/fanout"},
            },
        },
    },
}
_ARC = {
    "type": "object",
    "required": ["step"],
    "properties": {"step": _NAME, "when": _GUARD, "args": _OBJECT},
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
        "next": {
            "anyOf": [_NAME, _ARC, {"type": "array", "items": {"anyOf": [_NAME, _ARC]}}, {"type": "null"}]
        },
        "case": False,
        "spec": {
            "type": "object",
            "properties": {
                "next_mode": {"enum": ["exclusive", "inclusive"], "default": "exclusive"},
                "timeout": _SECONDS,
                "lease": {"type": "object", "properties": {"ttl": _SECONDS}},
                "loop_mode": _LOOP_MODE,
                "fanout": {"$ref": "#/$defs/fanout"},
                "pool": POOL_NAME,
            },
        },
    },
}
_VALUES = {"anyOf": [_OBJECT, {"type": "string", "pattern": r"\{\{"}]}
_DIRECTIVE = {
    "do": {"enum": list(get_args(Directive)), "default": "continue"},
    "to": {**_TEXT, "description": "The label that `jump` leads to."},
    "attempts": {**_COUNT, "default": 3},
    "backoff": {"enum": ["fixed", "linear", "exponential"], "default": "fixed"},
    "delay": {"type": "number", "minimum": 0, "default": 0},
    **{f"set_{where}": {} if where == "prev" else _VALUES for where in get_args(Written)},
}
_JUMP = {
    "if": {"properties": {"do": {"const": "jump"}}, "required": ["do"]},
    "then": {"required": ["to"]},
}
_RULE = {
    "anyOf": [
        {
            "type": "object",
            "required": ["else"],
            "properties": {
                "else": {
                    "type": "object",
                    "properties": _DIRECTIVE,
                    "additionalProperties": False,
                    **_JUMP,
                }
            },
            "additionalProperties": False,
        },
        {
            "type": "object",
            "required": ["expr"],
            "properties": {"expr": _GUARD, **_DIRECTIVE},
            "additionalProperties": False,
            **_JUMP,
        },
    ]
}
