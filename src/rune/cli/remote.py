"""The master as the command line sees it: one request at a time, errors as problem documents."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import wraps
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import click

from rune import __version__
from rune.cli.tables import plain
from rune.core.errors import InfrastructureError, RuneError
from rune.settings import load_settings

__all__ = ["Refused", "Remote", "path", "with_remote"]

_PAGE = 200
_TIMEOUT = 60.0
"""Seconds after which no answer is taken for none."""


class Refused(RuneError):
    """The master did not do what it was asked, and said why."""

    def __init__(self, problem: Mapping[str, Any]) -> None:
        self.problem = problem
        super().__init__(_told(problem))


class Remote:
    """Speaks to a master."""

    def __init__(self, url: str, token: str | None = None) -> None:
        parts = urlsplit(url if "//" in url else f"//{url}", scheme="http")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise RuneError(f"--url {url!r} is not the address of a master; write http://127.0.0.1:8484")
        self._address = f"{parts.scheme}://{parts.netloc}"
        self._prefix = parts.path.rstrip("/")
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(parts.hostname, parts.port, timeout=_TIMEOUT)
        self._token = token

    def close(self) -> None:
        """Hang up."""
        self._connection.close()

    def get(self, path: str, **query: Any) -> Any:
        """Read something."""
        return self._ask("GET", path, query)

    def post(self, path: str, body: Any = None, patience: float = 0.0) -> Any:
        """Do something for which the master may take `patience` seconds more than for anything else."""
        self._connection.timeout = _TIMEOUT + patience
        if self._connection.sock is not None:
            self._connection.sock.settimeout(self._connection.timeout)
        return self._ask("POST", path, {}, {} if body is None else body)

    def put(self, path: str, body: Any) -> Any:
        """Change something."""
        return self._ask("PUT", path, {}, body)

    def delete(self, path: str, **query: Any) -> Any:
        """Remove something."""
        return self._ask("DELETE", path, query)

    def pages(self, path: str, limit: int | None = None, **query: Any) -> Iterator[Any]:
        """What a list holds, page by page, up to `limit` entries."""
        after = None
        while limit is None or limit > 0:
            size = _PAGE if limit is None else min(limit, _PAGE)
            page = self.get(path, **query, limit=size, after=after)
            yield from page["items"]
            after = page["next"]
            if after is None:
                return
            limit = None if limit is None else limit - len(page["items"])

    def _ask(self, method: str, path: str, query: Mapping[str, Any], body: Any = None) -> Any:
        given = {key: value for key, value in query.items() if value is not None}
        target = f"{self._prefix}{path}" + (f"?{urlencode(given)}" if given else "")
        headers = {"Accept": "application/json", "User-Agent": f"rune/{__version__}"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        try:
            self._connection.request(method, target, data, headers)
            answer = self._connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise InfrastructureError(
                f"no master answers at {self._address}: {error}; start one with `rune dev`, or name it with "
                "--url or RUNE_URL"
            ) from error
        return _answered(answer.status, answer.reason, text)


def _answered(status: int, reason: str, text: bytes) -> Any:
    try:
        value = json.loads(text) if text else None
    except ValueError:
        value = {"status": status, "title": reason, "detail": text[:200].decode(errors="replace")}
    if status >= 400:
        raise Refused(value if isinstance(value, dict) else {"status": status, "title": reason})
    return value


def _told(problem: Mapping[str, Any]) -> str:
    lines = [str(problem.get("detail") or problem.get("title") or problem.get("status"))]
    if problem.get("status") == 401:
        lines[0] += "; give an API token with --token or RUNE_TOKEN"
    flaws = list(problem.get("errors") or ())
    # One that the first line has told in full is not told again.
    if len(flaws) == 1 and lines[0].endswith(flaws[0]["message"]):
        flaws.clear()
    for flaw in flaws:
        place = f"{flaw['line']}:{flaw['column']}" if flaw.get("line") else flaw.get("path") or "/"
        hint = f"; {flaw['hint']}" if flaw.get("hint") else ""
        lines.append(f"  {place} {flaw['code']}: {flaw['message']}{hint}")
    return plain("\n".join(lines))


def path(*parts: object) -> str:
    """A path of the API, each part escaped."""
    return "/api/" + "/".join(quote(str(part), safe="") for part in parts)


def with_remote(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a subcommand the options that say where the master is, and the master as its first argument."""

    @click.option("--url", metavar="URL", help="Where the master is; instead of $RUNE_URL.")
    @click.option("--token", metavar="TOKEN", help="An API token; instead of $RUNE_TOKEN.")
    @click.option(
        "-o", "--output", type=click.Choice(["table", "json"]), default="table", help="How to print."
    )
    @wraps(function)
    def command(*args: Any, url: str | None, token: str | None, output: str, **options: Any) -> Any:
        settings = load_settings({"url": url, "token": token})
        with closing(Remote(settings.url, settings.token)) as remote:
            return function(remote, output == "json", *args, **options)

    return command
