"""A door with TLS before a server that speaks plain, and the certificate by which it is known."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

__all__ = ["Door", "encrypted"]


class Door(NamedTuple):
    """Where TLS is spoken, and the file that clients check it with."""

    port: int
    ca: Path


def _certificate(directory: Path) -> tuple[Path, Path]:
    """A key, and a certificate for 127.0.0.1 that it signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tests")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .sign(key, hashes.SHA256())
    )
    keys, ca = directory / "key.pem", directory / "ca.pem"
    keys.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    ca.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    return keys, ca


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


@asynccontextmanager
async def encrypted(port: int, directory: Path) -> AsyncIterator[Door]:
    """A door to the server at a port of this machine."""
    keys, ca = _certificate(directory)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(ca, keys)
    carrying: set[asyncio.Task[None]] = set()

    async def let_in(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)
        for each in (_carry(reader, inner_writer), _carry(inner_reader, writer)):
            carrying.add(asyncio.create_task(each))

    server = await asyncio.start_server(let_in, "127.0.0.1", 0, ssl=context)
    try:
        yield Door(server.sockets[0].getsockname()[1], ca)
    finally:
        server.close()
        for task in carrying:
            task.cancel()
        await asyncio.gather(*carrying, return_exceptions=True)
