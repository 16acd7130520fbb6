"""Servers that node tests talk to."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trustme

from rune.nodes._http_client import HttpClient
from rune.nodes._sql import Databases
from rune.nodes._threads import Threads
from tests.nodes.fakes import FakeContext
from tests.nodes.web import Web
from tests.servers.postgres import shared_postgres


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reach the test's servers directly, whatever the machine is set up for."""
    monkeypatch.setenv("NO_PROXY", "*")


@pytest.fixture
async def web() -> AsyncIterator[Web]:
    async with Web().running() as running:
        yield running


@pytest.fixture
async def elsewhere() -> AsyncIterator[Web]:
    """A second server: another origin."""
    async with Web().running() as running:
        yield running


@pytest.fixture
async def client() -> AsyncIterator[HttpClient]:
    client = HttpClient()
    yield client
    await client.close()


@pytest.fixture
async def sql() -> AsyncIterator[FakeContext]:
    """A step that reaches a PostgreSQL database of its own, and DuckDB."""
    server = shared_postgres()
    url = server.new_database()
    databases, threads = Databases(), Threads()
    yield FakeContext({}, credential={"dsn": url}, services={"sql": databases, "threads": threads})
    await databases.close()
    await threads.close()
    server.drop_database(url)


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def server_tls(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost", "127.0.0.1").configure_cert(context)
    return context


@pytest.fixture
def trusted_authority(authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process trust the test's certificates, as an administrator would."""
    file = tmp_path / "authority.pem"
    authority.cert_pem.write_to_path(str(file))
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
