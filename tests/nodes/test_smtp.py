"""The smtp node against a real mail server, with STARTTLS and AUTH."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

from rune.core.errors import DefinitionError, NodeError
from rune.nodes.smtp import Smtp
from tests.nodes.fakes import FakeContext, made, output

MAIL = {
    "from": "Rune <rune@example.com>",
    "to": "ada@example.org",
    "subject": "Hello",
    "body": "Good morning",
}


class Mailbox:
    """Keeps what was delivered, and refuses recipients by name."""

    def __init__(self) -> None:
        self.mails: list[tuple[Envelope, EmailMessage]] = []
        self.encrypted: list[bool] = []

    async def handle_RCPT(  # noqa: N802 - aiosmtpd's name
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if address.startswith("nobody"):
            return "550 no such user"
        if address.startswith("later"):
            return "451 try again later"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        content = envelope.content
        assert isinstance(content, bytes)
        if b"Subject: Full" in content:
            return "452 mailbox full"
        message = message_from_bytes(content, policy=default)
        assert isinstance(message, EmailMessage)
        self.mails.append((envelope, message))
        self.encrypted.append(session.ssl is not None)
        return "250 OK"


def authenticate(server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> AuthResult:
    assert isinstance(data, LoginPassword)
    return AuthResult(success=(data.login, data.password) == (b"rune", b"s3cr3t"), handled=False)


class Post(Controller):
    """A mail server on a free port."""

    def factory(self) -> SMTP:
        return SMTP(self.handler, **self.SMTP_kwargs)


@pytest.fixture
def mailbox() -> Mailbox:
    return Mailbox()


@pytest.fixture
def serve(mailbox: Mailbox) -> Iterator[Callable[..., dict[str, Any]]]:
    """Start mail servers; each gives the credential to reach it."""
    with ExitStack() as running:

        def start(**options: Any) -> dict[str, Any]:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            server = Post(mailbox, hostname="127.0.0.1", port=port, **options)
            server.start()
            running.callback(server.stop)
            return {"host": "localhost", "port": str(port)}

        yield start


@pytest.fixture
def secure(serve: Callable[..., dict[str, Any]], server_tls: ssl.SSLContext) -> dict[str, Any]:
    """The credential of a server that asks for STARTTLS and a password."""
    server = serve(tls_context=server_tls, auth_required=True, authenticator=authenticate)
    return {**server, "username": "rune", "password": "s3cr3t"}


async def send(credential: dict[str, Any], **changes: Any) -> Any:
    return await output(Smtp, FakeContext(credential=credential), **{**MAIL, **changes})


async def failure(credential: dict[str, Any], **changes: Any) -> NodeError:
    with pytest.raises(NodeError) as caught:
        await send(credential, **changes)
    assert "s3cr3t" not in caught.value.message
    return caught.value


@pytest.mark.usefixtures("trusted_authority")
async def test_mail_goes_out_by_starttls_with_a_password(secure: dict[str, Any], mailbox: Mailbox) -> None:
    result = await send(secure, cc=["Bob <bob@example.org>"], bcc="eve@example.org, mal@example.org")
    assert result.pop("duration_ms") >= 0
    assert result == {
        "success": True,
        "message_id": "<step-1@example.com>",
        "from": "Rune <rune@example.com>",
        "to": ["ada@example.org"],
        "cc": ["Bob <bob@example.org>"],
        "bcc": ["eve@example.org, mal@example.org"],
        "subject": "Hello",
        "recipients": 4,
    }
    envelope, message = mailbox.mails[0]
    assert mailbox.encrypted == [True]
    assert envelope.mail_from == "rune@example.com"
    assert envelope.rcpt_tos == ["ada@example.org", "bob@example.org", "eve@example.org", "mal@example.org"]
    assert message["From"] == "Rune <rune@example.com>"
    assert message["To"] == "ada@example.org"
    assert message["Cc"] == "Bob <bob@example.org>"
    assert message["Bcc"] is None
    assert message["Subject"] == "Hello"
    assert message["Message-ID"] == "<step-1@example.com>"
    assert message["Date"].datetime.isoformat() == "2026-01-01T00:00:00+00:00"
    assert message.get_content().strip() == "Good morning"


async def test_mail_in_text_and_html_and_any_language(serve: Callable[..., Any], mailbox: Mailbox) -> None:
    await send(serve(), subject="Grüße ✓", body="Schöne Grüße", html="<b>Schöne Grüße</b>")
    message = mailbox.mails[0][1]
    assert message["Subject"] == "Grüße ✓"
    plain, html = message.get_body(("plain",)), message.get_body(("html",))
    assert plain is not None
    assert html is not None
    assert plain.get_content().strip() == "Schöne Grüße"
    assert html.get_content().strip() == "<b>Schöne Grüße</b>"


async def test_two_runs_of_one_step_are_one_mail(serve: Callable[..., Any], mailbox: Mailbox) -> None:
    server = serve()
    await send(server)
    await send(server)
    assert len({message["Message-ID"] for _, message in mailbox.mails}) == 1


async def test_nobody_gets_a_mail_twice(serve: Callable[..., Any], mailbox: Mailbox) -> None:
    result = await send(serve(), to=["ada@example.org", "Ada <ada@example.org>"], cc="ada@example.org")
    assert result["recipients"] == 1
    assert mailbox.mails[0][0].rcpt_tos == ["ada@example.org"]


@pytest.mark.usefixtures("trusted_authority")
async def test_tls_from_the_start(
    serve: Callable[..., Any], server_tls: ssl.SSLContext, mailbox: Mailbox
) -> None:
    await send({**serve(ssl_context=server_tls), "tls": "tls"})
    assert len(mailbox.mails) == 1


async def test_unknown_authority_is_refused_unless_told(secure: dict[str, Any], mailbox: Mailbox) -> None:
    error = await failure(secure)
    assert (error.code, error.retryable) == ("SMTP_TLS", False)
    await send({**secure, "ignore_ssl": True})
    assert len(mailbox.mails) == 1


async def test_password_is_not_sent_in_the_clear(serve: Callable[..., Any], mailbox: Mailbox) -> None:
    server = serve(authenticator=authenticate, auth_require_tls=False)
    account = {**server, "username": "rune", "password": "s3cr3t"}
    assert (await failure(account)).code == "SMTP_TLS"
    assert (await failure({**server, "tls": "starttls"})).code == "SMTP_TLS"
    assert mailbox.mails == []
    await send({**account, "tls": "none"})
    assert len(mailbox.mails) == 1


@pytest.mark.usefixtures("trusted_authority")
async def test_wrong_password(secure: dict[str, Any]) -> None:
    error = await failure({**secure, "password": "wrong-one"})
    assert (error.code, error.retryable) == ("SMTP_AUTH", False)
    assert "wrong-one" not in error.message


async def test_refused_recipients(serve: Callable[..., Any], mailbox: Mailbox) -> None:
    server = serve()
    result = await send(server, to=["ada@example.org", "nobody@example.org"])
    assert (result["recipients"], result["refused"]) == (1, ["nobody@example.org"])
    error = await failure(server, to="nobody@example.org")
    assert (error.code, error.retryable) == ("SMTP_RECIPIENTS", False)
    assert (await failure(server, to="later@example.org")).retryable


async def test_refused_mail(serve: Callable[..., Any]) -> None:
    error = await failure(serve(), subject="Full")
    assert (error.code, error.retryable) == ("SMTP_REFUSED", True)
    assert "452" in error.message


async def test_nobody_listens() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        error = await failure({"host": "127.0.0.1", "port": unused.getsockname()[1]})
    assert (error.code, error.retryable) == ("SMTP_CONNECTION", True)


@pytest.mark.parametrize(
    "changes",
    [
        {"subject": "Hello\r\nBcc: evil@example.org"},
        {"to": "ada@example.org\nBcc: evil@example.org"},
        {"from": "rune@example.com\r\nX: y"},
        {"cc": ["bob@example.org\r"]},
    ],
)
async def test_headers_cannot_be_injected(changes: dict[str, Any]) -> None:
    assert (await failure({"host": "localhost"}, **changes)).code == "SMTP_HEADER"


@pytest.mark.parametrize(
    "changes",
    [
        {"to": "not an address"},
        {"to": "ada@"},
        {"to": []},
        {"to": ""},
        {"bcc": ["@example.org"]},
        {"from": "a@example.com, b@example.com"},
        {"from": ""},
    ],
)
async def test_wrong_addresses(changes: dict[str, Any]) -> None:
    assert (await failure({"host": "localhost"}, **changes)).code == "SMTP_ADDRESS"


@pytest.mark.parametrize(
    "credential", [{}, {"username": "u"}, {"host": "h", "port": "x"}, {"host": "h", "tls": "ssl3"}]
)
async def test_wrong_credentials(credential: dict[str, Any]) -> None:
    assert (await failure(credential)).code == "SMTP_CREDENTIAL"


def test_missing_parameters_are_refused() -> None:
    with pytest.raises(DefinitionError, match="'to'"):
        made(Smtp, FakeContext(), {"from": "a@example.com", "subject": "s", "body": "b"})
