"""Where Redis is: what a URL says, and how a connection to a server is made."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from typing import Any, Literal, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from rune.backends.redis.connection import Connection, ConnectionLost, ReplyError
from rune.core.errors import InfrastructureError

__all__ = ["Address", "Server", "ask_sentinels", "connect", "parse_url"]

_CONNECT = 5.0
"""Seconds a connection may take to be made."""
_PORTS = {"single": 6379, "cluster": 6379, "sentinel": 26379}
_REFUSED = ("WRONGPASS", "NOAUTH", "NOPERM", "ERR invalid password", "ERR AUTH")


class Server(NamedTuple):
    """One server; its port is 0 if its host is the path of a socket."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}" if self.port else self.host


class Address(NamedTuple):
    """What a URL says."""

    kind: Literal["single", "sentinel", "cluster"]
    servers: tuple[Server, ...]
    username: str | None = None
    password: str | None = None
    db: int = 0
    service: str = ""
    """The name by which sentinels know the server."""
    tls: ssl.SSLContext | None = None
    sentinel_password: str | None = None
    """What sentinels want to hear, if they have a password of their own."""

    def __str__(self) -> str:
        return ",".join(map(str, self.servers))


def parse_url(url: str) -> Address:
    """Read `redis://`, `rediss://`, `unix://`, `redis+sentinel://…/service` or `redis+cluster://…`."""
    try:
        return _parsed(url)
    except ValueError:
        # What it says may show a part of a password.
        raise InfrastructureError(
            "the URL of Redis is wrong: it should look like redis://user:password@host:6379/0, "
            "with what is special in a password written as %40 and the like"
        ) from None


def _parsed(url: str) -> Address:
    parts = urlsplit(url)
    scheme, _, kind = parts.scheme.partition("+")
    kind = kind or "single"
    if scheme not in ("redis", "rediss", "unix") or kind not in _PORTS:
        raise InfrastructureError(
            f"'{parts.scheme}://' is not a URL of Redis; "
            "use redis://, rediss://, unix://, redis+sentinel:// or redis+cluster://"
        )
    options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    login, _, hosts = parts.netloc.rpartition("@")
    username, _, password = login.partition(":")
    path = [unquote(part) for part in parts.path.split("/") if part]
    if scheme == "unix":
        servers: tuple[Server, ...] = (Server(unquote(parts.path), 0),)
        path = []
    else:
        servers = tuple(_server(host, _PORTS[kind]) for host in hosts.split(","))
    service = path.pop(0) if kind == "sentinel" and path else ""
    if kind == "sentinel" and not service:
        raise InfrastructureError(
            "a redis+sentinel:// URL names the service: redis+sentinel://host:26379/name"
        )
    db, ca = options.pop("db", path[0] if path else "0"), options.pop("ca", None)
    sentinel_password = options.pop("sentinel_password", None)
    if options:
        raise InfrastructureError(f"the URL of Redis has an unknown option: {', '.join(options)}")
    if not db.isdecimal():
        raise InfrastructureError(f"the database of a Redis URL is a number, not '{db}'")
    return Address(
        kind,  # type: ignore[arg-type]
        servers,
        unquote(username) or None,
        unquote(password) or None,
        int(db),
        service,
        _checking(ca) if scheme == "rediss" else None,
        sentinel_password,
    )


def _checking(ca: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca)
    except OSError as error:
        raise InfrastructureError(f"the certificates in {ca} cannot be read: {error}") from error


def _server(text: str, port: int) -> Server:
    parts = urlsplit(f"//{text}")
    host = parts.hostname or "127.0.0.1"
    host.encode("idna")  # or it is no name at all
    return Server(host, parts.port or port)


async def connect(
    server: Server,
    address: Address,
    *,
    scripts: tuple[str, ...] = (),
    sentinel: bool = False,
) -> Connection:
    """Connect, log in, choose the database, load the scripts; OSError or ConnectionLost if that fails."""
    loop = asyncio.get_running_loop()
    tls: dict[str, Any] = {"ssl": address.tls} if address.tls else {}
    async with asyncio.timeout(_CONNECT):
        if server.port:
            _, connection = await loop.create_connection(Connection, server.host, server.port, **tls)
        else:
            _, connection = await loop.create_unix_connection(Connection, server.host)
        try:
            await _greet(connection, address, scripts, sentinel)
        except BaseException:
            connection.close()
            raise
    return connection


async def _greet(connection: Connection, address: Address, scripts: tuple[str, ...], sentinel: bool) -> None:
    login: list[asyncio.Future[Any]] = []
    password = address.sentinel_password if sentinel else address.password
    if password is not None:
        user = (address.username,) if address.username and not sentinel else ()
        login.append(connection.send("AUTH", *user, password))
    if address.db and not sentinel:
        login.append(connection.send("SELECT", address.db))
    # Redis hangs up on strangers who send as much as a script.
    await _agreed(address, login or [connection.send("PING")])
    await _agreed(address, [connection.send("SCRIPT", "LOAD", text) for text in scripts])


async def _agreed(address: Address, asked: list[asyncio.Future[Any]]) -> None:
    for reply in await asyncio.gather(*asked):
        if isinstance(reply, ReplyError):
            message = str(reply)
            if message.startswith(_REFUSED):
                raise InfrastructureError(f"Redis at {address} refuses us: {message}")
            raise ConnectionLost(message)


async def ask_sentinels(address: Address) -> Server:
    """The server that the sentinels hold for the service's master."""
    trouble: Exception = ConnectionLost("no sentinel answers")
    for sentinel in address.servers:
        try:
            connection = await connect(sentinel, address, sentinel=True)
        except (OSError, TimeoutError, ConnectionLost) as error:
            trouble = error
            continue
        try:
            found = await connection.send("SENTINEL", "get-master-addr-by-name", address.service)
        except ConnectionLost as error:
            trouble = error
            continue
        finally:
            connection.close()
        if isinstance(found, list):
            with suppress(ValueError, IndexError):
                return Server(found[0].decode(), int(found[1]))
        trouble = ConnectionLost(f"no sentinel knows the service '{address.service}'")
    raise trouble
