"""Every setting, once: flags over `RUNE_*` variables over defaults."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from rune.core.errors import RuneError

__all__ = ["Settings", "SettingsError", "load_settings", "state_directory"]


class SettingsError(RuneError):
    """A setting that makes no sense."""


Count = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0, le=1e10)]
Rest = Annotated[float, Meta(ge=0, le=1e10)]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How this process runs; each field is also the variable `RUNE_<FIELD>`."""

    db: str | None = None
    """The SQLite file of the embedded engine; None is one in the user's state directory."""
    synchronous: Literal["normal", "full"] = "normal"
    """`normal` survives the death of the process, `full` also that of the machine."""
    modules: tuple[str, ...] = ()
    """Modules that define node types of your own."""
    credentials: str | None = None
    """JSON, or the path of a JSON file, with credentials by id."""
    artifacts: str | None = None
    """The directory of files that playbooks leave and sources read; None is one in the state directory."""
    concurrency: Count = 64
    """Tasks, and steps with effects, that run at the same time."""
    prefetch: Count = 128
    """Tasks a worker takes in advance."""
    lease: Seconds = 60.0
    """Seconds a running step is safe from being started elsewhere, renewed while it runs."""
    hold: Seconds = 300.0
    """Seconds after which a running step gives its delivery back and lives on its lease."""
    timeout: Seconds = 300.0
    """Seconds without progress after which a join that names no timeout gives up."""
    max_starts: Annotated[int, Meta(ge=0)] = 3
    """The start at which a step that keeps killing its worker fails."""
    max_value: Count = 64 * 1024 * 1024
    """Bytes a single value may have."""
    retention: Seconds = 7 * 24 * 3600.0
    """Seconds an ended execution is kept: in the history, and in State its tombstone and its result."""
    retry_delays: tuple[Rest, ...] = (5.0, 25.0, 125.0)
    """Rests before an unexpected error is tried again; after the last, the message is dead-lettered."""
    broker_url: str | None = None
    """Where RabbitMQ is, for `rune worker` and `rune scheduler`: `amqp://` or `amqps://`."""
    state_url: str | None = None
    """Where Redis is: `redis://`, `rediss://`, `unix://`, `redis+sentinel://` or `redis+cluster://`."""
    queues: tuple[str, ...] = ()
    """The queues a worker takes Tasks from, or the pools they belong to; none is everybody's queues."""
    quorum: bool = False
    """Declare quorum queues, which are replicated and have no priorities."""
    status_batch_ms: Rest = 0.0
    """Milliseconds for which statuses wait to travel together; 0 sends one a message."""
    grace: Rest = 30.0
    """Seconds a worker that is told to stop lets running steps go on before it gives them back."""
    log_format: Literal["plain", "json"] = "plain"
    """How a worker and a scheduler log: `json` is one object a line."""
    metrics_port: Annotated[int, Meta(ge=1, le=65535)] | None = None
    """The port at which a worker or a scheduler serves `/metrics` and `/health`; None serves none."""
    metrics_host: str = "127.0.0.1"
    """The address of that port."""
    host: str = "127.0.0.1"
    """The address that `rune dev` and `rune master` listen at; others than loopback need accounts."""
    port: Annotated[int, Meta(ge=0, le=65535)] = 8484
    """The port they listen at; 0 takes any that is free."""
    history_url: str | None = None
    """Where a master keeps its history: `postgresql://…`, or the path of a SQLite file."""
    max_body: Count = 16 * 1024 * 1024
    """Bytes that the body of a request may have."""
    http_allow: tuple[str, ...] = ()
    """What steps may call in a server's own network: hosts, `host:port`, addresses or networks."""
    key: str | None = None
    """The key of stored credentials: 32 bytes in base64 or hex; several, for rotation, the new one first."""
    key_file: str | None = None
    """A file with the key instead; without either, `rune dev` makes one beside its database."""
    credentials_dir: str | None = None
    """A directory with one file a credential, such as mounted secrets."""
    accounts: bool | None = None
    """Whether people have to log in; None is always but for `rune dev` on a loopback address."""
    admin_password: str | None = None
    """The password of the first account, `admin`, while there is none."""
    url: str = "http://127.0.0.1:8484"
    """Where the master is, for `rune executions`, `workflows`, `credentials` and `dlq`."""
    token: str | None = None
    """The API token that these commands use."""
    public_url: str | None = None
    """The address at which people and programs reach the master, such as `https://rune.example.org`."""
    streams: Count = 50
    """Live streams that one account, or without accounts one address, may have open at the same time."""
    session_idle: Seconds = 12 * 3600.0
    """Seconds without a request after which a session ends."""
    session_max: Seconds = 7 * 24 * 3600.0
    """Seconds after which a session ends in any case."""

    def __repr__(self) -> str:
        shown = ((name, getattr(self, name)) for name in self.__struct_fields__)
        parts = (f"{n}={'***' if n in _SECRET and v is not None else repr(v)}" for n, v in shown)
        return f"Settings({', '.join(parts)})"


def load_settings(
    flags: Mapping[str, Any] | None = None, environ: Mapping[str, str] | None = None
) -> Settings:
    """The settings of this process."""
    environ = os.environ if environ is None else environ
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(Settings):
        name = f"RUNE_{field.name.upper()}"
        name = name if name in environ else name.removesuffix("_URL")
        if name in environ:
            text = environ[name]
            parts = [part.strip() for part in text.split(",") if part.strip()]
            values[field.name] = parts if field.name in _LISTS else text
    values.update({k: v for k, v in (flags or {}).items() if v is not None})
    try:
        return msgspec.convert(values, Settings, strict=False)
    except msgspec.ValidationError as error:
        raise SettingsError(f"a setting is wrong: {error} (variables are called RUNE_<NAME>)") from error


_LISTS = ("http_allow", "modules", "queues", "retry_delays")
_SECRET = frozenset(
    {"admin_password", "broker_url", "credentials", "history_url", "key", "state_url", "token"}
)
"""What is never shown."""


def state_directory(environ: Mapping[str, str] | None = None) -> Path:
    """Where the user's databases live."""
    environ = os.environ if environ is None else environ
    base = environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "rune"
