"""Credentials by reference: from the environment, files or a store; never written anywhere, and masked."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import msgspec

from rune.core.errors import NodeError, RuneError
from rune.core.secrets import Mask

__all__ = ["Credentials", "CredentialsError", "Promised", "Source"]

_REFERENCE = re.compile(r"[\w-][\w.@:-]*", re.ASCII)
_LARGEST = 1024 * 1024


class CredentialsError(RuneError):
    """A source of credentials cannot be read."""

    retryable = False


class Source(Protocol):
    """Somewhere credentials are."""

    async def find(self, reference: str) -> Mapping[str, Any] | None:
        """The credential of this id, if it is here; CredentialsError if that cannot be told."""


class Credentials:
    """Resolves references by the first source that knows them; what was given out is masked from then on."""

    def __init__(
        self, source: str | None = None, directory: str | None = None, store: Source | None = None
    ) -> None:
        given: list[Source] = [_Given(source)]
        if directory:
            given.append(_Files(Path(directory).expanduser()))
        self._sources = [*given, store] if store else given
        self.mask = Mask()

    async def resolve(self, reference: str) -> Mapping[str, Any]:
        """The credential of this id."""
        for source in self._sources:
            try:
                credential = await source.find(reference)
            except CredentialsError as error:
                raise NodeError(str(error), "CREDENTIAL_UNREADABLE", retryable=error.retryable) from error
            if credential is not None:
                self.mask.learn(credential)
                return credential
        raise NodeError(
            f"there is no credential '{reference}'; store it with the master, put it into the JSON object "
            "(or file) that RUNE_CREDENTIALS names, or into a file of RUNE_CREDENTIALS_DIR",
            "CREDENTIAL_MISSING",
        )


class Promised:
    """A source that is there later, for those who work before the store is open; who asks before, waits."""

    def __init__(self) -> None:
        # Most processes have no use for it.
        from asyncio import Event

        self._kept = Event()
        self._source: Source | None = None

    def keep(self, source: Source | None) -> None:
        """Here it is, or there will be none."""
        self._source = source
        self._kept.set()

    async def find(self, reference: str) -> Mapping[str, Any] | None:
        """As the source says, once it is there."""
        await self._kept.wait()
        return await self._source.find(reference) if self._source else None


class _Given:
    """A JSON object of credentials by id, or the path of a file with one."""

    def __init__(self, source: str | None) -> None:
        self._source = source

    async def find(self, reference: str) -> Mapping[str, Any] | None:
        return self._known.get(reference)

    @cached_property
    def _known(self) -> Mapping[str, Mapping[str, Any]]:
        if not self._source:
            return {}
        text = self._source
        where = "RUNE_CREDENTIALS"
        if not text.lstrip().startswith("{"):
            where = text
            try:
                with open(os.path.expanduser(text), encoding="utf-8") as file:
                    text = file.read()
            except (OSError, UnicodeDecodeError) as error:
                raise CredentialsError(
                    f"cannot read the credentials file {where}: {getattr(error, 'strerror', None) or error}"
                ) from error
        try:
            return msgspec.json.decode(text, type=dict[str, dict[str, Any]])
        except msgspec.MsgspecError as error:
            raise CredentialsError(f"{where} is not a JSON object of credentials by id: {error}") from error


class _Files:
    """A directory with one file a credential, or one directory a credential with one file a field.

    A file holds a JSON object of fields, or plain text, which is a `token`. It is read at each use, so that
    what whoever mounts it changes is seen at once.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def find(self, reference: str) -> Mapping[str, Any] | None:
        if not _REFERENCE.fullmatch(reference):
            return None
        return self._read(self._directory / reference)

    def _read(self, place: Path) -> Mapping[str, Any] | None:
        try:
            if place.is_dir():
                # Kubernetes keeps what it mounts in hidden directories, with links to it.
                files = (file for file in place.iterdir() if file.name[0] != "." and file.is_file())
                return {file.name: self._text(file) for file in files}
            for file in (place, place.with_name(f"{place.name}.json")):
                if file.is_file():
                    return _fields(self._text(file), file)
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            raise CredentialsError(f"cannot read the credential file {place}: {reason}") from error
        return None

    def _text(self, file: Path) -> str:
        with file.open(encoding="utf-8") as opened:
            return opened.read(_LARGEST).removesuffix("\n").removesuffix("\r")


def _fields(text: str, file: Path) -> Mapping[str, Any]:
    if not text.lstrip().startswith("{"):
        return {"token": text}
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError:
        # What the decoder says may quote the text.
        raise CredentialsError(f"the credential file {file} begins like JSON, and is not") from None
