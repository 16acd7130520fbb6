"""The smtp node: one mail."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta, Struct

from rune.core.errors import NodeError
from rune.core.node import NodeType, StepContext
from rune.core.outcome import Done, Outcome

if TYPE_CHECKING:
    from email.message import EmailMessage

    import aiosmtplib

    from rune.nodes._guard import Guard

__all__ = ["Smtp", "try_login"]

TIMEOUT = 60.0
"""Seconds for one mail, from the connection to the server's word for it."""

_UNSAFE = re.compile(r"[\x00-\x1f\x7f]")

Addresses = str | list[str] | None


class MailServer(Struct, frozen=True, kw_only=True):
    """The credential of an smtp node."""

    host: Annotated[str, Meta(min_length=1)]
    port: Annotated[int, Meta(ge=1, le=65535)] | None = None
    username: str | None = None
    password: str | None = None
    tls: Literal["starttls", "tls", "none"] | None = None
    ignore_ssl: bool = False

    @property
    def direct(self) -> bool:
        """TLS from the first byte on, rather than by STARTTLS."""
        return self.tls == "tls" or (self.tls is None and self.port == 465)

    @property
    def actual_port(self) -> int:
        """The port given, or the usual one."""
        return self.port or (465 if self.direct else 587)


class Smtp(NodeType, kw_only=True, rename={"from_": "from"}):
    """Send a mail.

    The credential is the mail server: `host`, `port` (587), `username`, `password`, and `tls`, which is
    `starttls` to ask for it, `tls` to speak it from the start, `none` to go without. Unsaid, STARTTLS is used
    where the server offers it, and no password is sent without it.
    """

    name: ClassVar = "smtp"
    trusted: ClassVar = True

    from_: Annotated[str, Meta(description="Sender, such as `Rune <rune@example.com>`.")]
    to: Annotated[str | list[str], Meta(description="Recipients: a list, or text with commas.")]
    subject: Annotated[str, Meta(description="Subject.")]
    body: Annotated[str, Meta(description="Text of the mail.")]
    cc: Annotated[Addresses, Meta(description="Recipients of a copy.")] = None
    bcc: Annotated[Addresses, Meta(description="Recipients that the others do not see.")] = None
    html: Annotated[str | None, Meta(description="The same as HTML, for programs that show it.")] = None

    async def run(self, context: StepContext) -> Outcome:
        mail = _Mail(self, context.key, context.now())
        server = _server(await context.credential())
        guard: Guard = context.service("guard")
        guard.check_mail(server.host, server.actual_port)
        started = time.perf_counter()
        refused = await _deliver(server, mail)
        output: dict[str, Any] = {
            "success": True,
            "message_id": mail.id,
            "from": self.from_,
            "to": mail.to,
            "cc": mail.cc,
            "bcc": mail.bcc,
            "subject": self.subject,
            "recipients": len(mail.recipients) - len(refused),
            "duration_ms": round((time.perf_counter() - started) * 1000),
        }
        return Done({**output, "refused": refused} if refused else output)


class _Mail:
    """A mail with its envelope. Its id follows from the step, so that a mail sent twice is known as one."""

    def __init__(self, node: Smtp, step: str, now: float) -> None:
        self._node = node
        sender = _addresses("from", node.from_)
        if len(sender) != 1:
            raise NodeError("a mail has one sender: give one address as `from`", "SMTP_ADDRESS")
        self.to, self.cc, self.bcc = _listed(node.to), _listed(node.cc), _listed(node.bcc)
        self.sender = sender[0]
        everyone = [a for name in ("to", "cc", "bcc") for a in _addresses(name, *getattr(self, name))]
        self.recipients = list(dict.fromkeys(everyone))
        if not self.recipients:
            raise NodeError("a mail needs a recipient: give one as `to`", "SMTP_ADDRESS")
        self.id = f"<{re.sub(r'[^A-Za-z0-9._-]', '-', step)}@{self.sender.rpartition('@')[2]}>"
        self._now = now

    def message(self) -> EmailMessage:
        """The mail as it is sent; hidden recipients are in the envelope only."""
        from email.message import EmailMessage
        from email.policy import SMTP
        from email.utils import formatdate

        message = EmailMessage(policy=SMTP)
        if _UNSAFE.search(self._node.subject):
            raise NodeError("the subject of a mail cannot have a line break in it", "SMTP_HEADER")
        message["From"] = self._node.from_
        for name, addresses in (("To", self.to), ("Cc", self.cc)):
            if addresses:
                message[name] = ", ".join(addresses)
        message["Subject"] = self._node.subject
        message["Date"] = formatdate(self._now, usegmt=True)
        message["Message-ID"] = self.id
        message.set_content(self._node.body)
        if self._node.html:
            message.add_alternative(self._node.html, subtype="html")
        return message


def _listed(given: Addresses) -> list[str]:
    return [] if not given else [given] if isinstance(given, str) else given


def _addresses(name: str, *texts: str) -> list[str]:
    """The bare addresses in a header's texts."""
    from email.errors import MessageError
    from email.policy import SMTP

    found: list[str] = []
    for text in texts:
        if _UNSAFE.search(text):
            raise NodeError(f"`{name}` has a line break or control character in it", "SMTP_HEADER")
        try:
            header = SMTP.header_factory("to", text)
            parsed = [a.addr_spec for a in header.addresses if a.username and a.domain]
        except (MessageError, ValueError, IndexError, AttributeError):
            parsed = []
        if not parsed or len(parsed) != len(header.addresses) or header.defects:
            raise NodeError(f"`{name}`: {text!r:.80} is not a mail address", "SMTP_ADDRESS")
        found += parsed
    return found


def _server(credential: Mapping[str, Any]) -> MailServer:
    if not credential:
        raise NodeError(
            "an smtp node needs a credential: the mail server's `host`, `port`, `username` and `password`",
            "SMTP_CREDENTIAL",
        )
    try:
        return msgspec.convert({k: v for k, v in credential.items() if v != ""}, MailServer, strict=False)
    except msgspec.ValidationError as error:
        raise NodeError(f"the credential is not that of a mail server: {error}", "SMTP_CREDENTIAL") from None


async def try_login(credential: Mapping[str, Any], guard: Guard) -> None:
    """Connect to a mail server and log in as a node would, and send nothing."""
    server = _server(credential)
    guard.check_mail(server.host, server.actual_port)
    await _deliver(server, None)


async def _deliver(server: MailServer, mail: _Mail | None) -> list[str]:
    """Send the mail, if there is one; the recipients that the server refused, if it took others."""
    import asyncio
    import ssl

    import aiosmtplib

    where = f"the mail server {server.host}"
    message = mail.message() if mail else None
    try:
        async with asyncio.timeout(TIMEOUT):
            return await _converse(server, mail, message)
    except TimeoutError:
        raise NodeError(f"{where} took longer than {TIMEOUT:g} s", "SMTP_TIMEOUT", retryable=True) from None
    except aiosmtplib.SMTPRecipientsRefused as error:
        answers = {r.recipient: f"{r.code} {r.message}" for r in error.recipients}
        passing = all(400 <= r.code < 500 for r in error.recipients)
        raise NodeError(
            f"{where} refused every recipient", "SMTP_RECIPIENTS", {"answers": answers}, retryable=passing
        ) from None
    except aiosmtplib.SMTPAuthenticationError as error:
        raise NodeError(
            f"{where} refused the user name or password ({error.code})",
            "SMTP_AUTH",
            retryable=error.code < 500,
        ) from None
    except aiosmtplib.SMTPResponseException as error:
        raise NodeError(
            f"{where} refused the mail: {error.code} {error.message}",
            "SMTP_REFUSED",
            {"status": error.code},
            retryable=400 <= error.code < 500,
        ) from None
    except (aiosmtplib.SMTPException, OSError) as error:
        if isinstance(error, ssl.SSLError) or isinstance(error.__cause__, ssl.SSLError):
            raise NodeError(f"no safe connection to {where}: {error}", "SMTP_TLS") from None
        raise NodeError(
            f"{where} cannot be reached: {error}; see if host and port are right",
            "SMTP_CONNECTION",
            retryable=True,
        ) from None


async def _converse(server: MailServer, mail: _Mail | None, message: EmailMessage | None) -> list[str]:
    import aiosmtplib

    client = aiosmtplib.SMTP(
        hostname=server.host,
        port=server.actual_port,
        use_tls=server.direct,
        start_tls=False,
        validate_certs=not server.ignore_ssl,
        timeout=TIMEOUT,
    )
    try:
        await client.connect()
        await _secure(client, server)
        if server.username:
            await client.login(server.username, server.password or "")
        refused: Iterable[str] = ()
        if mail and message:
            refused, _ = await client.send_message(message, sender=mail.sender, recipients=mail.recipients)
        with suppress(aiosmtplib.SMTPException, OSError):
            await client.quit()
        return list(refused)
    finally:
        client.close()


async def _secure(client: aiosmtplib.SMTP, server: MailServer) -> None:
    """Go over to TLS where that is asked for or offered; never send a password without it unless told to."""
    if server.direct or server.tls == "none":
        return
    await client.ehlo()
    if client.supports_extension("starttls"):
        await client.starttls(validate_certs=not server.ignore_ssl)
    elif server.tls == "starttls" or server.username:
        raise NodeError(
            f"the mail server {server.host} offers no STARTTLS, and no password is sent without it; "
            "set `tls: none` in the credential where that is safe",
            "SMTP_TLS",
        )
