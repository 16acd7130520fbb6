"""The guard of server roles: what only the server's own network sees is not called, in no form."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from ipaddress import IPv4Address, IPv6Address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rune.core.errors import NodeError
from rune.nodes import guarded_services
from rune.nodes._guard import Guard, kind_of
from rune.nodes._http_client import HttpClient
from rune.nodes.http import Http
from rune.nodes.smtp import Smtp
from rune.settings import SettingsError
from tests.nodes.fakes import FakeContext, output
from tests.nodes.web import Answer, Web

HIDDEN = {
    "127.0.0.1": "loopback",
    "127.255.0.3": "loopback",
    "0.0.0.0": "unspecified",
    "10.1.2.3": "private",
    "172.16.0.1": "private",
    "172.31.255.255": "private",
    "192.168.1.1": "private",
    "100.64.0.1": "internal",
    "100.100.100.200": "internal",
    "169.254.169.254": "metadata",
    "168.63.129.16": "metadata",
    "192.0.0.192": "reserved",
    "198.18.0.1": "reserved",
    "224.0.0.1": "multicast",
    "255.255.255.255": "reserved",
    "::": "unspecified",
    "::1": "loopback",
    "::127.0.0.1": "reserved",
    "fe80::1": "link-local",
    "fe80::1%eth0": "link-local",
    "fec0::1": "reserved",
    "fd00:ec2::254": "private",
    "ff02::1": "multicast",
    "2001:db8::1": "reserved",
    "2001:0:4136:e378::1": "reserved",
    "64:ff9b:1::1": "reserved",
    "::ffff:169.254.169.254": "metadata",
    "::ffff:0:10.0.0.1": "private",
    "64:ff9b::10.0.0.1": "private",
    "2002:7f00:1::": "loopback",
    "2600:1::5efe:192.168.0.1": "private",
}
PUBLIC = ["1.1.1.1", "93.184.215.14", "172.32.0.1", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"]


def embedded(address: IPv4Address) -> list[IPv6Address]:
    """The forms of an IPv4 address within IPv6, as their standards write them."""
    number = int(address)
    return [
        IPv6Address(f"::ffff:{address}"),
        IPv6Address(f"64:ff9b::{address}"),
        IPv6Address(f"::ffff:0:{address}"),
        IPv6Address(0x2002 << 112 | number << 80 | 0x1234),
        IPv6Address(0x2606_4700 << 96 | 0x5EFE << 32 | number),
    ]


@pytest.mark.parametrize(("address", "kind"), HIDDEN.items())
def test_what_is_not_public_is_known(address: str, kind: str) -> None:
    assert kind in str(kind_of(address))


@pytest.mark.parametrize("address", PUBLIC)
def test_what_is_public_is_left_alone(address: str) -> None:
    assert kind_of(address) is None
    Guard()("example.org", address, 443)


@given(st.ip_addresses())
def test_nothing_that_the_registry_calls_private_is_public(address: IPv4Address | IPv6Address) -> None:
    if kind_of(str(address)) is None:
        assert address.is_global
        assert not address.is_multicast


@given(st.ip_addresses(v=4), st.sampled_from(sorted(a for a in HIDDEN if ":" not in a)), st.booleans())
def test_an_embedded_address_is_judged_as_itself(drawn: IPv4Address, known: str, either: bool) -> None:
    address = drawn if either else IPv4Address(known)
    for form in embedded(address):
        assert (kind_of(str(form)) is None) == (kind_of(str(address)) is None), form


# --- what RUNE_HTTP_ALLOW opens ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("allow", "host", "address", "port", "open"),
    [
        ("127.0.0.1", "127.0.0.1", "127.0.0.1", 80, True),
        ("127.0.0.1", "anything.example", "127.0.0.1", 80, True),
        ("127.0.0.1", "127.0.0.2", "127.0.0.2", 80, False),
        ("127.0.0.1:8080", "127.0.0.1", "127.0.0.1", 8080, True),
        ("127.0.0.1:8080", "127.0.0.1", "127.0.0.1", 22, False),
        ("10.0.0.0/8", "db.internal", "10.9.8.7", 80, True),
        ("10.0.0.0/8", "::ffff:10.9.8.7", "::ffff:10.9.8.7", 80, True),
        ("10.0.0.0/8", "db.internal", "172.16.0.1", 80, False),
        ("10.0.0.0/8:443", "db.internal", "10.9.8.7", 443, True),
        ("10.0.0.0/8:443", "db.internal", "10.9.8.7", 80, False),
        ("db.internal", "DB.internal.", "10.9.8.7", 80, True),
        ("db.internal", "evil-db.internal", "10.9.8.7", 80, False),
        ("db.internal:80", "db.internal", "10.9.8.7", 81, False),
        ("*.internal", "a.b.internal", "10.9.8.7", 80, True),
        ("*.internal", "internal", "10.9.8.7", 80, False),
        ("[::1]:8080", "::1", "::1", 8080, True),
        ("::1", "::1", "::1", 99, True),
        ("fd00::/8", "fd00::1", "fd00::1", 99, True),
        ("*", "x", "169.254.169.254", 80, True),
    ],
)
def test_what_is_named_is_open(allow: str, host: str, address: str, port: int, open: bool) -> None:
    assert Guard([allow]).allows(host, address, port) is open


@pytest.mark.parametrize(
    "entry", ["http://x", "10.0.0.0/99", "x:port", "x:0", "x:", "[::1]8", "a b", "1.2.3", ""]
)
def test_an_entry_that_means_nothing_is_refused(entry: str) -> None:
    with pytest.raises(SettingsError, match=r"is not a host|does not end in a port"):
        guarded_services([entry])


# --- the http node behind it -------------------------------------------------------------------------------


@pytest.fixture
async def guarded() -> AsyncIterator[Callable[..., FakeContext]]:
    """Make the context of a server role that allows these entries."""
    clients: list[HttpClient] = []

    def make(*allow: str) -> FakeContext:
        services = {name: factory() for name, factory in guarded_services(allow).items()}
        clients.append(services["http"])
        return FakeContext(services=services)

    yield make
    for client in clients:
        await client.close()


async def refusal(context: FakeContext, url: str) -> NodeError:
    with pytest.raises(NodeError) as raised:
        await output(Http, context, url=url, timeout=5)
    return raised.value


FORMS = [
    "127.0.0.1",
    "localhost",
    "LOCALHOST",
    "2130706433",
    "0x7f000001",
    "0x7f.1",
    "017700000001",
    "0177.0.0.1",
    "127.1",
    "0",
    "0.0.0.0",
    "[::1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[0:0:0:0:0:ffff:127.0.0.1]",
    "%31%32%37.0.0.1",
    "１２７.0.0.1",
]


@pytest.mark.parametrize("host", FORMS)
async def test_no_form_of_loopback_gets_through(
    host: str, web: Web, guarded: Callable[..., FakeContext]
) -> None:
    web.answer("/", Answer())
    port = web.url.rpartition(":")[2]
    error = await refusal(guarded(), f"http://{host}:{port}/")
    assert error.code in ("HTTP_FORBIDDEN", "HTTP_URL")
    assert web.connections == 0


async def test_the_message_says_what_to_do(web: Web, guarded: Callable[..., FakeContext]) -> None:
    error = await refusal(guarded(), f"{web.url}/")
    port = web.url.rpartition(":")[2]
    assert (error.code, error.retryable) == ("HTTP_FORBIDDEN", False)
    assert f"RUNE_HTTP_ALLOW=127.0.0.1:{port}" in error.message
    assert "a loopback address" in error.message


async def test_what_is_allowed_is_called(web: Web, guarded: Callable[..., FakeContext]) -> None:
    web.answer("/", Answer())
    context = guarded("127.0.0.0/8")
    assert (await output(Http, context, url=f"{web.url}/"))["status"] == 200


@pytest.mark.parametrize(
    "location", ["http://169.254.169.254/latest", "http://[::1]:{port}/", "file:///etc/passwd"]
)
async def test_a_redirect_is_a_hop_like_any_other(
    location: str, web: Web, elsewhere: Web, guarded: Callable[..., FakeContext]
) -> None:
    port = elsewhere.url.rpartition(":")[2]
    web.answer("/", Answer("302 Found", (("Location", location.format(port=port)),)))
    error = await refusal(guarded(web.url.removeprefix("http://")), f"{web.url}/")
    assert error.code == ("HTTP_URL" if location.startswith("file") else "HTTP_FORBIDDEN")
    assert elsewhere.connections == 0


async def test_a_name_is_resolved_once_and_that_address_is_the_one(
    web: Web, guarded: Callable[..., FakeContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that changes its meaning between the check and the connection gains nothing."""
    answers = iter(["10.0.0.1", "127.0.0.1", "127.0.0.1"])

    async def getaddrinfo(host: str, port: int, **options: Any) -> Any:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (next(answers), port))]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
    port = web.url.rpartition(":")[2]
    error = await refusal(guarded(), f"http://rebinding.example:{port}/")
    assert error.code == "HTTP_FORBIDDEN"
    assert "private" in error.message
    assert web.connections == 0


async def test_an_open_connection_is_not_lent_to_another_name(
    web: Web, guarded: Callable[..., FakeContext]
) -> None:
    """What is open for one name stays closed for others of the same address."""
    web.answer("/", Answer())
    port = web.url.rpartition(":")[2]
    context = guarded(f"localhost:{port}")
    assert (await output(Http, context, url=f"http://localhost:{port}/"))["status"] == 200
    assert (await refusal(context, f"{web.url}/")).code == "HTTP_FORBIDDEN"
    assert web.connections == 1


async def test_a_proxy_of_the_environment_may_be_private_but_not_asked_for_what_is(
    web: Web, guarded: Callable[..., FakeContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_PROXY")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("http_proxy", web.url)
    web.answer("http://far.example/", Answer())
    assert (await output(Http, guarded(), url="http://far.example/"))["status"] == 200
    for host in ("169.254.169.254", "localhost", "[::ffff:10.0.0.1]", "a.localhost"):
        assert (await refusal(guarded(), f"http://{host}/")).code == "HTTP_FORBIDDEN"
    assert len(web.seen) == 1


# --- the smtp node -----------------------------------------------------------------------------------------

MAIL = {"from": "a@example.org", "to": "b@example.org", "subject": "Hi", "body": "Hi"}


async def test_mail_goes_to_ports_of_mail_servers_only() -> None:
    services = {name: factory() for name, factory in guarded_services(["mail.internal:4025"]).items()}
    context = FakeContext(services=services, credential={"host": "127.0.0.1", "port": 6379})
    with pytest.raises(NodeError, match=r"RUNE_HTTP_ALLOW=127\.0\.0\.1:6379") as raised:
        await output(Smtp, context, **MAIL)
    assert raised.value.code == "SMTP_FORBIDDEN"
    Guard().check_mail("10.0.0.1", 587)
    services["guard"].check_mail("mail.internal", 4025)
    Guard(["10.0.0.0/8"]).check_mail("10.0.0.1", 4025)
