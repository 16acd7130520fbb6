"""The guard of server roles: keeps steps from calling addresses that only the server's own network sees."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from msgspec import Struct

from rune.core.errors import NodeError

__all__ = ["Guard", "kind_of"]

_KINDS = [
    (ip_network(network), kind)
    for network, kind in (
        ("0.0.0.0/8", "an unspecified"),
        ("10.0.0.0/8", "a private"),
        ("100.64.0.0/10", "a provider's internal"),
        ("127.0.0.0/8", "a loopback"),
        ("168.63.129.16/32", "a cloud's metadata"),  # Azure's, though it lies among the public ones
        ("169.254.0.0/16", "a link-local or metadata"),
        ("172.16.0.0/12", "a private"),
        ("192.0.0.0/24", "a reserved"),
        ("192.0.2.0/24", "a reserved"),
        ("192.88.99.0/24", "a reserved"),
        ("192.168.0.0/16", "a private"),
        ("198.18.0.0/15", "a reserved"),
        ("198.51.100.0/24", "a reserved"),
        ("203.0.113.0/24", "a reserved"),
        ("224.0.0.0/4", "a multicast"),
        ("240.0.0.0/4", "a reserved"),
        ("::/128", "an unspecified"),
        ("::1/128", "a loopback"),
        ("fc00::/7", "a private"),
        ("fe80::/10", "a link-local"),
        ("ff00::/8", "a multicast"),
        ("2001::/23", "a reserved"),
        ("2001:db8::/32", "a reserved"),
        ("3fff::/20", "a reserved"),
    )
]
_PUBLIC = ip_network("2000::/3")
"""All of IPv6 that is given out for the public."""
_EMBEDDING = [
    (ip_network(network), shift)
    for network, shift in (
        ("::ffff:0:0/96", 0),  # mapped
        ("::ffff:0:0:0/96", 0),  # translated
        ("64:ff9b::/96", 0),  # NAT64
        ("2002::/16", 80),  # 6to4
    )
]
_ISATAP = (0x00005EFE, 0x02005EFE)
_MAIL = frozenset({25, 465, 587, 2525})
_NAME = re.compile(r"(\*\.)?[\w-]+(\.[\w-]+)*|\*", re.ASCII)

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


def kind_of(address: str) -> str | None:
    """What is not public about an address, however it is written; None where nothing is."""
    return next((kind for meant in _meant(ip_address(address)) if (kind := _kind(meant))), None)


def _kind(address: Address) -> str | None:
    for network, kind in _KINDS:
        if address in network:
            return kind
    return None if address.version == 4 or address in _PUBLIC else "a reserved"


def _meant(address: Address) -> Iterator[Address]:
    """The address that a packet ends at: the IPv4 address that an IPv6 one embeds, or the address itself."""
    if not isinstance(address, IPv6Address):
        yield address
        return
    number = int(address)
    for network, shift in _EMBEDDING:
        if address in network:
            yield IPv4Address(number >> shift & 0xFFFFFFFF)
            return
    if number >> 32 & 0xFFFFFFFF in _ISATAP:
        yield IPv4Address(number & 0xFFFFFFFF)
    yield IPv6Address(number)  # without its zone


class _Rule(Struct, frozen=True):
    """One entry of `RUNE_HTTP_ALLOW`: a name or a network, and perhaps a port."""

    name: str = ""
    network: Network | None = None
    port: int | None = None

    def allows_name(self, host: str, port: int) -> bool:
        if self.port not in (None, port) or not self.name:
            return False
        return self.name in ("*", host) or (self.name.startswith("*.") and host.endswith(self.name[1:]))

    def allows_address(self, address: Address, port: int) -> bool:
        return self.port in (None, port) and self.network is not None and address in self.network


class Guard:
    """Refuses what is not public, but for what `allow` names: hosts, `host:port`, addresses, networks."""

    def __init__(self, allow: Iterable[str] = ()) -> None:
        """ValueError if an entry is none of these."""
        self._rules = [_rule(entry) for entry in allow]

    def __call__(self, host: str, address: str, port: int) -> None:
        """Raise unless a connection to this very address, which `host` was resolved to, may be made."""
        if not self.allows(host, address, port):
            kind = kind_of(address)
            raise NodeError(
                f"{host} has {kind} address, which a server does not call unless it is told to; "
                f"name it in RUNE_HTTP_ALLOW, such as RUNE_HTTP_ALLOW={_shown(host)}:{port}",
                "HTTP_FORBIDDEN",
            )

    def allows(self, host: str, address: str, port: int) -> bool:
        """Whether a connection to this address may be made."""
        if any(rule.allows_name(_plain(host), port) for rule in self._rules):
            return True
        meant = list(_meant(ip_address(address)))
        if any(rule.allows_address(each, port) for rule in self._rules for each in meant):
            return True
        return kind_of(address) is None

    def check_host(self, host: str, port: int) -> None:
        """Raise for what can be told before a name is resolved, by a proxy perhaps."""
        name = _plain(host)
        address = "127.0.0.1" if name == "localhost" or name.endswith(".localhost") else host
        try:
            ip_address(address)
        except ValueError:
            return
        self(host, address, port)

    async def close(self) -> None:
        """It holds nothing."""

    def check_mail(self, host: str, port: int) -> None:
        """Raise if a mail server's port is not one of mail servers, which may well be private."""
        if port in _MAIL or any(rule.allows_name(_plain(host), port) for rule in self._rules):
            return
        try:
            allowed = any(rule.allows_address(ip_address(host), port) for rule in self._rules)
        except ValueError:
            allowed = False
        if not allowed:
            raise NodeError(
                "a server sends mail to the ports 25, 465, 587 and 2525 only, unless it is told otherwise; "
                f"name it in RUNE_HTTP_ALLOW, such as RUNE_HTTP_ALLOW={_shown(host)}:{port}",
                "SMTP_FORBIDDEN",
            )


def _plain(host: str) -> str:
    return host.lower().rstrip(".")


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _rule(entry: str) -> _Rule:
    host, port = _parted(entry.strip())
    try:
        return _Rule(network=ip_network(host, strict=False), port=port)
    except ValueError:
        pass
    name = _plain(host)
    if not _NAME.fullmatch(name) or name.rpartition(".")[2].isdecimal():
        raise ValueError(f"{entry!r} is not a host, host:port, address or network such as 10.0.0.0/8")
    return _Rule(name=name, port=port)


def _parted(entry: str) -> tuple[str, int | None]:
    if entry.startswith("["):
        host, _, rest = entry[1:].partition("]")
        text = rest.removeprefix(":")
        bad = bool(rest) and not rest.startswith(":")
    elif entry.count(":") == 1:
        host, _, text = entry.partition(":")
        bad = not text
    else:
        host, text, bad = entry, "", False
    if bad or (text and not (text.isdecimal() and 0 < int(text) < 65536)):
        raise ValueError(f"{entry!r} does not end in a port")
    return host, int(text) if text else None
