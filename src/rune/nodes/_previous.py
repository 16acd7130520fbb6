"""What a branch brings to a join: the output of the node it comes from."""

from __future__ import annotations

from functools import cache

from rune.core.expressions import Expression, compile_expression

__all__ = ["previous"]


@cache
def previous() -> Expression:
    """The output of the node before, or the working payload it left."""
    return compile_expression("$previous")
