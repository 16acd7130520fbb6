"""Rune: a workflow engine that runs one node at a time, each as a message."""

__version__ = "0.1.0"

__all__ = [
    "Arrive",
    "Call",
    "Done",
    "Expression",
    "Failed",
    "FanOut",
    "Join",
    "NodeError",
    "NodeType",
    "Outcome",
    "Retry",
    "RuneError",
    "Sleep",
    "StepContext",
    "__version__",
    "node",
]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rune.core.errors import NodeError, RuneError
    from rune.core.expressions import Expression
    from rune.core.node import NodeType, StepContext
    from rune.core.outcome import Arrive, Call, Done, Failed, FanOut, Join, Outcome, Sleep
    from rune.core.registry import node
    from rune.core.workflow import Retry

_HOMES = {
    "errors": ("NodeError", "RuneError"),
    "expressions": ("Expression",),
    "node": ("NodeType", "StepContext"),
    "outcome": ("Arrive", "Call", "Done", "Failed", "FanOut", "Join", "Outcome", "Sleep"),
    "registry": ("node",),
    "workflow": ("Retry",),
}


def __getattr__(name: str) -> object:
    """Import what is asked for when it is asked for: `import rune` alone costs nothing."""
    for home, names in _HOMES.items():
        if name in names:
            from importlib import import_module

            value = globals()[name] = getattr(import_module(f"rune.core.{home}"), name)
            return value
    raise AttributeError(f"module 'rune' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
