"""Credentials by reference: read from a file or the environment, never written anywhere."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import msgspec

from rune.core.errors import NodeError, RuneError
from rune.core.secrets import Mask

__all__ = ["Credentials", "CredentialsError"]


class CredentialsError(RuneError):
    """`RUNE_CREDENTIALS` cannot be read."""


class Credentials:
    """Resolves references; what it has given out is masked from then on."""

    def __init__(self, source: str | None = None) -> None:
        self._source = source
        self.mask = Mask()

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

    async def resolve(self, reference: str) -> Mapping[str, Any]:
        """The credential of this id."""
        try:
            credential = self._known.get(reference)
        except CredentialsError as error:
            raise NodeError(str(error), "CREDENTIAL_UNREADABLE") from error
        if credential is None:
            raise NodeError(
                f"there is no credential '{reference}'; put it into the JSON object (or file) that "
                "RUNE_CREDENTIALS names",
                "CREDENTIAL_MISSING",
            )
        self.mask.learn(credential)
        return credential
