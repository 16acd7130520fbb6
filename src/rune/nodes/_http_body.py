"""Bodies as they come in: unpacked in small pieces, up to a limit."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence

__all__ = ["TooLarge", "layers_of", "unpacked"]

_CODINGS = {"gzip": zlib.MAX_WBITS | 16, "x-gzip": zlib.MAX_WBITS | 16, "deflate": zlib.MAX_WBITS}
_MAX_CODINGS = 4
_PIECE = 256 * 1024


class TooLarge(Exception):
    """More came than the limit allows."""


class _Inflater:
    """Undoes one compression, in small pieces and up to a limit."""

    def __init__(self, coding: str, limit: int) -> None:
        self._zlib = zlib.decompressobj(_CODINGS[coding])
        # Some servers leave out the envelope that the standard asks for.
        self._may_be_bare = coding == "deflate"
        self._left = limit

    def feed(self, data: bytes) -> Iterator[bytes]:
        if self._zlib.eof:
            return
        while piece := self._inflated(data):
            self._left -= len(piece)
            if self._left < 0:
                raise TooLarge
            yield piece
            data = self._zlib.unconsumed_tail

    def _inflated(self, data: bytes) -> bytes:
        try:
            piece = self._zlib.decompress(data, _PIECE)
        except zlib.error:
            if not self._may_be_bare:
                raise
            self._zlib = zlib.decompressobj(-zlib.MAX_WBITS)
            piece = self._zlib.decompress(data, _PIECE)
        self._may_be_bare = False
        return piece


def layers_of(fields: Sequence[str], limit: int) -> list[_Inflater]:
    """What undoes the compressions that an answer's headers name, the last of them first."""
    codings = [coding.strip().lower() for field in fields for coding in field.split(",")]
    known = [coding for coding in codings if coding in _CODINGS]
    if len(known) > _MAX_CODINGS:
        raise zlib.error("it names too many codings")
    return [_Inflater(coding, limit) for coding in reversed(known)]


def unpacked(data: bytes, layers: Sequence[_Inflater]) -> Iterator[bytes]:
    if not layers:
        yield data
        return
    for piece in layers[0].feed(data):
        yield from unpacked(piece, layers[1:])
