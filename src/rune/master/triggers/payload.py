"""A request from outside as a value: its body by its content type, its headers and query as plain objects."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable
from email import policy
from email.message import Message
from email.parser import BytesParser
from typing import Any
from urllib.parse import parse_qsl

import msgspec

__all__ = ["BadPayload", "plain_headers", "plain_pairs", "read_body"]

_FIELDS = 1000
"""Fields a form may have."""
_CHARSET = re.compile(r";\s*charset\s*=\s*[\"']?([^\s\"';]+)", re.IGNORECASE)


class BadPayload(Exception):
    """A body that is not what its content type says."""


def read_body(body: bytes, content_type: str) -> Any:
    """A body as a value: JSON and forms as what they hold, text as text, anything else as base64."""
    if not body:
        return None
    kind = content_type.partition(";")[0].strip().lower() or "application/octet-stream"
    if kind == "application/json" or kind.endswith("+json"):
        return _json(body)
    if kind == "application/x-www-form-urlencoded":
        return _form(body)
    if kind == "multipart/form-data":
        return _multipart(body, content_type)
    if kind.startswith("text/") or kind in ("application/xml", "application/yaml"):
        charset = _CHARSET.search(content_type)
        return _text(body, charset[1] if charset else "utf-8")
    return _binary(body, kind)


def plain_pairs(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Pairs as an object; a name that comes several times has a list."""
    plain: dict[str, Any] = {}
    several: set[str] = set()
    for name, value in pairs:
        if name in several:
            plain[name].append(value)
        elif name in plain:
            several.add(name)
            plain[name] = [plain[name], value]
        else:
            plain[name] = value
    return plain


def plain_headers(headers: Iterable[tuple[str, str]], hidden: frozenset[str]) -> dict[str, str]:
    """Headers by their names in lower case, without the hidden ones."""
    plain: dict[str, str] = {}
    for name, value in headers:
        name = name.lower()
        if name not in hidden:
            plain[name] = f"{plain[name]}, {value}" if name in plain else value
    return plain


def _json(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadPayload(f"the body is not JSON: {error}") from None


def _text(body: bytes, charset: str) -> str:
    try:
        text = body.decode(charset)
        # Some encodings know halves of characters, which cannot be kept.
        text.encode()
    except (LookupError, ValueError):
        raise BadPayload(f"the body is not text in {charset[:40]!r}") from None
    return text


def _form(body: bytes) -> dict[str, Any]:
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, errors="strict", max_num_fields=_FIELDS)
    except ValueError as error:
        raise BadPayload(f"the body is not a form: {error}") from None
    return plain_pairs(pairs)


def _multipart(body: bytes, content_type: str) -> dict[str, Any]:
    head = f"Content-Type: {content_type}\r\nMIME-Version: 1.0\r\n\r\n".encode()
    try:
        message = BytesParser(policy=policy.HTTP).parsebytes(head + body)
        parts = message.get_payload()
        if not message.is_multipart() or not isinstance(parts, list) or message.defects:
            raise BadPayload("the body is not a form in parts")
        if len(parts) > _FIELDS:
            raise BadPayload(f"the form has more than {_FIELDS} fields")
        return plain_pairs(_field(part) for part in parts if isinstance(part, Message))
    except (AttributeError, LookupError, ValueError):
        # The parser reads headers lazily, and some that make no sense break it.
        raise BadPayload("the headers of the form's parts make no sense") from None


def _field(part: Message) -> tuple[str, Any]:
    name = part.get_param("name", header="content-disposition")
    if not isinstance(name, str):
        raise BadPayload("a part of the form has no name")
    data = part.get_payload(decode=True)
    if not isinstance(data, bytes):
        raise BadPayload("a part of the form has parts itself")
    filename = part.get_filename()
    if filename is None and part.get_content_maintype() == "text":
        return name, _text(data, part.get_content_charset() or "utf-8")
    return name, _binary(data, part.get_content_type()) | ({"filename": filename} if filename else {})


def _binary(data: bytes, kind: str) -> dict[str, Any]:
    return {"base64": b64encode(data).decode(), "content_type": kind, "size": len(data)}
