"""The vault: seals values under a key that is not in the database, each for one purpose."""

from __future__ import annotations

import binascii
import os
from base64 import b64encode, urlsafe_b64decode
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from rune.core.errors import RuneError
from rune.settings import Settings, SettingsError

__all__ = ["Vault", "WrongKey", "load_vault"]

_KEY = 32
_NAME = 4
"""Bytes of a key's name, which stands before what it has sealed."""
_NONCE = 12


class WrongKey(RuneError):
    """What is sealed was sealed under another key, for another purpose, or changed since."""


class Vault:
    """AES-256-GCM: the first key seals, any of them opens."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        if not keys or any(len(key) != _KEY for key in keys):
            raise ValueError(f"a vault needs keys of {_KEY} bytes")
        self._ciphers = {_name(key): AESGCM(key) for key in reversed(keys)}
        self._first = _name(keys[0])

    def seal(self, plain: bytes, purpose: str) -> bytes:
        """Encrypt; it opens again for the same purpose only."""
        nonce = os.urandom(_NONCE)
        return self._first + nonce + self._ciphers[self._first].encrypt(nonce, plain, purpose.encode())

    def open(self, sealed: bytes, purpose: str) -> bytes:
        """Decrypt, or raise WrongKey."""
        cipher = self._ciphers.get(sealed[:_NAME])
        if cipher is None:
            raise WrongKey("it was sealed under a key that is not among those given")
        nonce, rest = sealed[_NAME : _NAME + _NONCE], sealed[_NAME + _NONCE :]
        try:
            return cipher.decrypt(nonce, rest, purpose.encode())
        except (InvalidTag, ValueError):
            raise WrongKey("it was changed, or sealed for something else") from None

    def is_current(self, sealed: bytes) -> bool:
        """Whether it was sealed under the first key."""
        return sealed[:_NAME] == self._first


def _name(key: bytes) -> bytes:
    return sha256(b"rune key name\0" + key).digest()[:_NAME]


def load_vault(settings: Settings, file: Path | None = None) -> Vault | None:
    """The vault whose key the settings name, else one of `file`, which is made if it is missing."""
    if settings.key:
        return Vault(_keys(settings.key, "RUNE_KEY"))
    if settings.key_file:
        return Vault(_keys(_read(Path(settings.key_file).expanduser()), settings.key_file))
    if file is None:
        return None
    _make(file)
    return Vault(_keys(_read(file), str(file)))


def _read(file: Path) -> str:
    try:
        return file.read_text("ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"cannot read the key file {file}: {error}") from error


def _make(file: Path) -> None:
    """Make a key file that nobody else can read; the one that is there stays."""
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_name(f"{file.name}.{os.getpid()}")
    if file.exists():
        return
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(handle, "wb") as out:
        out.write(b64encode(os.urandom(_KEY)) + b"\n")
        out.flush()
        os.fsync(out.fileno())
    try:
        # Whole or not at all, and never in place of another's.
        os.link(fresh, file)
    except FileExistsError:
        pass
    finally:
        fresh.unlink()


def _keys(text: str, where: str) -> list[bytes]:
    keys = [_key(part) for part in text.replace(",", " ").split()]
    if not keys or None in keys:
        raise SettingsError(
            f"{where} is not a key: {_KEY} bytes in base64 or hex, as `openssl rand -base64 {_KEY}` gives; "
            "several, with commas between, for rotation, the new one first"
        )
    return [key for key in keys if key is not None]


def _key(text: str) -> bytes | None:
    try:
        if len(text) == 2 * _KEY:
            return bytes.fromhex(text)
        plain = text.rstrip("=").replace("+", "-").replace("/", "_")
        key = urlsafe_b64decode(plain + "=" * (-len(plain) % 4))
    except (ValueError, binascii.Error):
        return None
    return key if len(key) == _KEY else None
