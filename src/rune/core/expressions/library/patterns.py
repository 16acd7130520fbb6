"""Functions of regular expressions, bounded in time and in what a pattern unfolds to."""

from __future__ import annotations

from rune.core.expressions.cache import Cache
from rune.core.expressions.errors import ExpressionTypeError, LimitExceeded
from rune.core.expressions.library.arguments import integer, text
from rune.core.expressions.library.registry import function
from rune.core.expressions.limits import (
    MAX_PATTERN,
    MAX_PATTERN_WEIGHT,
    MAX_SUBJECT,
    REGEX_SECONDS,
    REGEX_SECONDS_IN_ALL,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from rune.core.expressions.limits import Budget

__all__: list[str] = []

_STEPS = 5  # what one use is worth, besides its time
_CACHED = 256
_cache = Cache(_CACHED)
_TIMEOUT = (
    f"a regular expression took longer than {REGEX_SECONDS * 1000:.0f} ms, "
    f"or all of the evaluation longer than {REGEX_SECONDS_IN_ALL * 1000:.0f} ms"
)


@function()
def regex_match(budget: Budget, value: Any, pattern: Any, ignore_case: Any = False) -> bool:
    """Whether a pattern is found anywhere in the text; anchor it with ^ and $."""
    compiled = _compiled(pattern, ignore_case, "regex_match")
    return _timed(budget, value, "regex_match", compiled.search) is not None


@function()
def regex_find(budget: Budget, value: Any, pattern: Any, group: Any = None, ignore_case: Any = False) -> Any:
    """The first match: its only group, else the whole, or the group that is named; null if there is none."""
    compiled = _compiled(pattern, ignore_case, "regex_find")
    found = _timed(budget, value, "regex_find", compiled.search)
    if found is None:
        return None
    if group is None:
        group = 1 if compiled.groups == 1 else 0
    try:
        return found[group if type(group) is str else integer(group, "regex_find", low=0)]
    except IndexError:
        raise ExpressionTypeError("`regex_find`: the pattern has no such group") from None


@function()
def regex_findall(budget: Budget, value: Any, pattern: Any, ignore_case: Any = False) -> list[Any]:
    """All matches: each as text, or as an array of its groups if the pattern has several."""
    compiled = _compiled(pattern, ignore_case, "regex_findall")
    found: list[Any] = []

    def collect(subject: str, timeout: float) -> None:
        for match in compiled.finditer(subject, timeout=timeout):
            result = list(match.groups()) if compiled.groups > 1 else match[compiled.groups]
            budget.collect(1 + compiled.groups)
            budget.grow(len(match[0]))
            found.append(result)

    _timed(budget, value, "regex_findall", collect)
    return found


@function()
def regex_replace(
    budget: Budget, value: Any, pattern: Any, replacement: Any, count: Any = 0, ignore_case: Any = False
) -> str:
    r"""The text with each match (or the first `count`) replaced; \1 or \g<name> stands for a group."""
    compiled = _compiled(pattern, ignore_case, "regex_replace")
    template = text(replacement, "regex_replace")
    times = integer(count, "regex_replace", low=0)
    references = template.count("\\")

    def expand(match: Any) -> str:
        budget.spend(1)
        if references * len(match.string) + len(template) > budget.size:
            budget.grow(budget.size + 1)
        written: str = match.expand(template) if references else template
        budget.grow(len(written))
        return written

    def replace(subject: str, timeout: float) -> Any:
        budget.grow(len(subject))
        return compiled.sub(expand, subject, times, timeout=timeout)

    return str(_timed(budget, value, "regex_replace", replace))


def _compiled(pattern: Any, ignore_case: Any, caller: str) -> Any:
    written = text(pattern, caller)
    key = (written, bool(ignore_case))
    found = _cache.get(key)
    if found is None:
        if len(written) > MAX_PATTERN:
            raise LimitExceeded(
                f"the pattern is longer than {MAX_PATTERN} characters", bound="pattern length"
            )
        _Weight(written, caller).check()
        found = _compile(*key, caller)
        _cache.put(key, found)
    return found


def _compile(pattern: str, ignore_case: bool, caller: str) -> Any:
    import regex

    try:
        return regex.compile(pattern, regex.VERSION0 | (regex.IGNORECASE if ignore_case else 0))
    except (regex.error, ValueError, KeyError, IndexError, OverflowError, RecursionError) as error:
        raise ExpressionTypeError(f"`{caller}`: the pattern is not a regular expression: {error}") from None


def _timed(budget: Budget, value: Any, caller: str, apply: Callable[..., Any]) -> Any:
    """Apply a pattern within its time and what is left of the time for all patterns of this evaluation."""
    from time import monotonic

    import regex

    budget.spend(_STEPS)
    subject = text(value, caller)
    if len(subject) > MAX_SUBJECT:
        raise LimitExceeded(f"the text is longer than {MAX_SUBJECT:,} characters", bound="regex input length")
    started, allowed = monotonic(), min(budget.regex_seconds, REGEX_SECONDS)
    try:
        if allowed <= 0:
            raise TimeoutError
        return apply(subject, timeout=allowed)
    except TimeoutError:
        raise LimitExceeded(_TIMEOUT, bound="regex time") from None
    except (regex.error, IndexError, KeyError, ValueError) as error:
        raise ExpressionTypeError(f"`{caller}`: {error}") from None
    finally:
        budget.regex_seconds -= monotonic() - started


class _Weight:
    """Counts the atoms of a pattern with its counted repeats written out.

    The regex package writes them out while compiling, where no timeout applies: ((a{999}){999}){999} takes
    all memory there is. For the same reason its recursive and fuzzy patterns are refused.
    """

    def __init__(self, pattern: str, caller: str) -> None:
        self.pattern = pattern
        self.caller = caller
        self.position = 0

    def check(self) -> None:
        sums, last = [0], 0  # the weight of each open group so far; the weight of the last atom
        while self.position < len(self.pattern):
            character = self.pattern[self.position]
            if character == "(":
                self._refuse_special()
                sums.append(0)
                last = 0
                self.position += 1
            elif character == ")" and len(sums) > 1:
                last = sums.pop() + 1
                sums[-1] += last
                self.position += 1
            elif character == "{":
                times = self._repeat()
                sums[-1] += last * (times - 1)
                last *= times
            else:
                last = self._atom(character)
                sums[-1] += last
            if sum(sums) > MAX_PATTERN_WEIGHT:
                raise LimitExceeded(
                    f"the pattern repeats more than {MAX_PATTERN_WEIGHT:,} parts", bound="pattern repeats"
                )

    def _refuse_special(self) -> None:
        """Refuse groups that recur, and those that would hide repeats from this count."""
        if not self.pattern.startswith("(?", self.position):
            return
        start = end = self.position + 2
        while end < len(self.pattern) and (self.pattern[end].isalnum() or self.pattern[end] in "+-"):
            end += 1
        word, following = self.pattern[start:end], self.pattern[end : end + 1]
        if following in (":", ")") and ("x" in word or "V" in word):
            raise ExpressionTypeError(f"`{self.caller}`: the flags x and V are not supported")
        if following == "#":
            raise ExpressionTypeError(f"`{self.caller}`: comments in a pattern are not supported")
        called = word + following
        if called in ("R)", "&", "P>") or (following == ")" and word[-1:].isdigit()):
            raise ExpressionTypeError(f"`{self.caller}`: recursive patterns are not supported")

    def _repeat(self) -> int:
        """Read `{n}`, `{n,}`, `{,m}` or `{n,m}`."""
        end = self.pattern.find("}", self.position)
        low, _, high = self.pattern[self.position + 1 : max(end, 0)].partition(",")
        if (
            end < 0
            or not (low or high)
            or not all(part.isascii() and (part.isdigit() or not part) for part in (low, high))
        ):
            raise ExpressionTypeError(
                f"`{self.caller}`: `{{` in a pattern begins a repeat such as {{2,5}}",
                hint="write \\{ for the character",
            )
        self.position = end + 1
        return max(int(low or 0), int(high or 0), 1)

    def _atom(self, character: str) -> int:
        """Read past a character, an escape or a class; return its weight."""
        start = self.position
        self.position += 1
        if character == "\\":
            letter = self.pattern[self.position : self.position + 1]
            self.position += 1
            if letter in ("p", "P", "N") and self.pattern.startswith("{", self.position):
                self.position = self._after("}")
        elif character == "[":
            if self.pattern.startswith("^", self.position):
                self.position += 1
            if self.pattern.startswith("]", self.position):
                self.position += 1  # a bracket that comes first is a member
            while self.position < len(self.pattern) and self.pattern[self.position] != "]":
                self.position += 2 if self.pattern[self.position] == "\\" else 1
            self.position += 1
        return 1 + (self.position - start) // 8

    def _after(self, character: str) -> int:
        found = self.pattern.find(character, self.position)
        return len(self.pattern) if found < 0 else found + 1
