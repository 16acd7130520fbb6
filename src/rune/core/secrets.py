"""Secrets never leave the worker: every form of their values is masked where text goes out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["MASK", "Mask"]

MASK = "***"
_SHORTEST = 4
"""Shorter values would mask half of every text."""


class Mask:
    """Replaces known secret values, also base64-, URL- and JSON-escaped."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._text: re.Pattern[str] | None = None
        self._bytes: re.Pattern[bytes] | None = None

    def learn(self, credential: Mapping[str, Any]) -> None:
        """Mask every secret of this credential from now on."""
        fresh = {s for s in _secrets(credential) if len(s) >= _SHORTEST} - self._known
        if not fresh:
            return
        self._known |= fresh
        forms = sorted({form for secret in self._known for form in _forms(secret)}, key=len, reverse=True)
        pattern = "|".join(map(re.escape, forms))
        self._text = re.compile(pattern)
        self._bytes = re.compile(pattern.encode())

    def text(self, text: str) -> str:
        """The text without secrets."""
        return self._text.sub(MASK, text) if self._text else text

    def data(self, data: bytes) -> bytes:
        """JSON without secrets, and JSON still: a number that is one becomes text."""
        if self._bytes is None or not self._bytes.search(data):
            return data
        return _TOKEN.sub(self._token, data)

    def _token(self, match: re.Match[bytes]) -> bytes:
        token = match[0]
        if token.startswith(b'"') and self._bytes is not None:
            return b'"' + self._bytes.sub(MASK.encode(), token[1:-1]) + b'"'
        return b'"' + MASK.encode() + b'"' if token.decode() in self._known else token


_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[^\s\[\]{},:"]+')


_PUBLIC = frozenset({"host", "port", "tls", "type", "name", "id", "header", "username", "user"})
"""Fields of a credential that are no secret, and whose values are common words."""
_USERS = ("username", "user")
_LINE = 16
_NESTED = 4
"""How deep JSON in JSON is looked for, and one."""


def _secrets(value: Any, key: str = "") -> Iterable[str]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _secrets(inner, str(name).lower())
        # What HTTP's Basic encodes as one.
        yield from (f"{value[user]}:{value['password']}" for user in _USERS if {user, "password"} <= {*value})
    elif isinstance(value, list):
        for inner in value:
            yield from _secrets(inner, key)
    elif isinstance(value, str) and key not in _PUBLIC:
        yield value
        # A private key may be told line by line.
        yield from (line for line in value.splitlines() if len(line) >= _LINE)
    elif isinstance(value, int) and not isinstance(value, bool) and key not in _PUBLIC:
        yield str(value)


_ESCAPE = re.compile("%[0-9A-F]{2}")


def _forms(secret: str) -> Iterable[str]:
    # Most processes never see a secret, and these take long to load.
    import base64
    import json
    from urllib.parse import quote, quote_plus

    raw = secret.encode()
    yield secret
    # As text, and as whoever takes UTF-8 for Latin-1 reads it; the same in JSON, and in JSON in text in JSON.
    for text in {secret, raw.decode("latin-1")}:
        for ascii in (False, True):
            escaped = text
            for _ in range(_NESTED):
                yield from (escaped, escaped.replace("/", r"\/"))
                escaped = json.dumps(escaped, ensure_ascii=ascii)[1:-1]
    for quoted in (quote(secret, safe=""), quote(secret), quote_plus(secret)):
        yield from (quoted, _ESCAPE.sub(lambda found: found[0].lower(), quoted))
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        whole = encode(raw).decode()
        yield from (whole, whole.rstrip("="))
        # Base64 of a longer text that contains the secret shows one of three alignments.
        for shift in range(3):
            text = encode(b"\0" * shift + raw).decode().rstrip("=")
            start = (shift * 8 + 5) // 6
            stop = (shift + len(raw)) * 8 // 6
            if stop - start >= _SHORTEST:
                yield text[start:stop]
