"""What the package offers, and what importing it costs."""

from __future__ import annotations

import subprocess
import sys

import rune.core.expressions as package


def test_all_is_exact() -> None:
    assert sorted(package.__all__) == sorted(
        [
            "COMPARISONS",
            "FUNCTIONS",
            "TESTS",
            "Expression",
            "ExpressionError",
            "ExpressionSyntaxError",
            "ExpressionTypeError",
            "Function",
            "LimitExceeded",
            "ReferenceMissing",
            "Scope",
            "Template",
            "compare",
            "compile_expression",
            "compile_template",
            "kind_of",
            "sort_key",
            "suggest",
            "to_text",
            "truth",
        ]
    )
    assert all(hasattr(package, name) for name in package.__all__)


def test_importing_it_imports_nothing_slow() -> None:
    slow = "typing re functools msgspec regex datetime decimal difflib hashlib urllib.parse uuid inspect"
    program = (
        "import sys; before = set(sys.modules); import rune.core.expressions as e\n"
        "e.compile_expression('$a.b | upper').evaluate\n"
        f"print(*sorted((set(sys.modules) - before) & set({slow.split()!r})))"
    )
    # -S: what `site` imports on its own is not ours. The path is what this process found the package by.
    path = package.__file__.removesuffix("rune/core/expressions/__init__.py")
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {path!r})\n{program}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.strip() == ""
