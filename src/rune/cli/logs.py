"""How a worker and a scheduler log: lines to read, or an object a line for programs."""

from __future__ import annotations

import logging
import os
import sys
import time
from typing import Literal

import msgspec

__all__ = ["log_to_stderr"]


_TIME = "%Y-%m-%dT%H:%M:%S"


class _Plain(logging.Formatter):
    """Time, level, logger, message."""

    converter = staticmethod(time.gmtime)

    def __init__(self) -> None:
        super().__init__("%(asctime)s.%(msecs)03dZ %(levelname)-7s %(name)s: %(message)s", _TIME)


class _Json(_Plain):
    """One JSON object a record."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": f"{self.formatTime(record, _TIME)}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "pid": os.getpid(),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(fields).decode()


def log_to_stderr(style: Literal["plain", "json"]) -> None:
    """Send Rune's records, and other libraries' warnings, to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if style == "json" else _Plain())
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.getLogger("rune").setLevel(logging.INFO)
