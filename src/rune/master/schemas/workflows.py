"""Workflows, their versions, and what moves them from one place to another."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from rune.master.schemas import EXAMPLE, Body, Format, Id, LongText, Moment, SourceText, Text, VersionNumber

__all__ = [
    "Bundle",
    "BundledWorkflow",
    "Change",
    "Diff",
    "Flaw",
    "Graph",
    "GraphEdge",
    "GraphNode",
    "Imported",
    "NewWorkflow",
    "NodeKind",
    "Publish",
    "Source",
    "Validation",
    "Version",
    "VersionDetail",
    "Workflow",
    "WorkflowChange",
    "WorkflowSummary",
]


class Source(Body):
    """A workflow, as an object or as a text."""

    definition: dict[str, Any] | None = Field(None, description="The graph as an object.")
    source: SourceText | None = Field(None, description="The workflow as text: JSON, YAML or a playbook.")
    format: Format | None = Field(None, description="What it is written in; it shows by itself.")

    @model_validator(mode="after")
    def _one_of_both(self) -> Source:
        if (self.definition is None) == (self.source is None):
            raise ValueError("give either `definition` or `source`")
        return self


class NewWorkflow(Source):
    """A workflow to keep."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"definition": EXAMPLE, "publish": True}]}
    )

    name: Text | None = Field(None, description="Instead of the definition's own.")
    description: LongText | None = None
    publish: bool = Field(False, description="Make this the version that triggers start.")
    note: LongText | None = Field(None, description="What is new, for the list of versions.")


class WorkflowChange(NewWorkflow):
    """The next version of a workflow."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"definition": EXAMPLE, "version": 1}]}
    )

    version: VersionNumber | None = Field(
        None, description="The version that is being changed; or send it as `If-Match`."
    )


class Publish(Body):
    """Which version triggers start."""

    version: VersionNumber | None = Field(None, description="null takes it back.")


class WorkflowSummary(BaseModel):
    """A workflow in a list."""

    id: str
    name: str
    description: str | None
    format: Format
    version: int = Field(description="The latest version.")
    published: int | None = Field(description="The version that triggers start.")
    created_at: Moment
    updated_at: Moment


class Workflow(WorkflowSummary):
    """A workflow with its latest definition."""

    definition: dict[str, Any]
    source: str | None = Field(None, description="The text it was given as, if it was.")


class Version(BaseModel):
    """One version of a workflow; it never changes."""

    workflow_id: str
    version: int
    hash: str
    note: str | None
    author: str | None
    created_at: Moment


class VersionDetail(Version):
    """One version with its definition."""

    definition: dict[str, Any]
    source: str | None = None


class Change(BaseModel):
    """One difference between two versions."""

    op: Literal["add", "remove", "replace"]
    path: str = Field(
        description="JSON Pointer; nodes and edges stand under their ids: `/nodes/fetch/parameters/url`."
    )
    before: Any = None
    after: Any = None


class Diff(BaseModel):
    """What changed between two versions."""

    model_config = ConfigDict(populate_by_name=True)

    from_: int = Field(alias="from")
    to: int
    changes: list[Change]


class Flaw(BaseModel):
    """One thing that is wrong with a definition."""

    path: str
    code: str
    message: str
    severity: Literal["error", "warning"]
    hint: str | None = None
    line: int | None = None
    column: int | None = None


class GraphNode(BaseModel):
    """A node to draw."""

    id: str
    name: str
    type: str
    role: Literal["plain", "split", "gather", "merge"]
    trigger: bool
    x: float | None
    y: float | None
    parameters: Any


class GraphEdge(BaseModel):
    """An edge to draw."""

    id: str
    source: str
    target: str
    port: str
    label: str


class Graph(BaseModel):
    """A workflow as something to draw."""

    nodes: list[GraphNode]
    edges: list[GraphEdge]


class Validation(BaseModel):
    """What is to be said of a definition."""

    valid: bool
    problems: list[Flaw]
    graph: Graph


class BundledWorkflow(Body):
    """A workflow in a bundle."""

    id: Id
    name: Text | None = None
    description: LongText | None = None
    format: Format | None = None
    definition: dict[str, Any]
    source: SourceText | None = None
    published: bool = False


class Bundle(Body):
    """Workflows, to be moved from one place to another. Credentials travel as references only."""

    format: Literal["rune-workflows"] = "rune-workflows"
    version: Literal[1] = 1
    workflows: Annotated[list[BundledWorkflow], Field(max_length=1000)]


class Imported(BaseModel):
    """What became of a bundle."""

    created: list[str]
    updated: list[str]
    unchanged: list[str]


class NodeKind(BaseModel):
    """A node type there is."""

    name: str
    summary: str
    role: Literal["plain", "split", "gather", "merge"]
    trigger: bool
    ports: list[str] = Field(description="Where it may end, besides `error`; empty when parameters decide.")
    parameters: dict[str, Any] = Field(description="JSON Schema of its parameters.")
