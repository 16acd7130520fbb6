"""Whatever is sent, the API answers as its description says."""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from pathlib import Path

import pytest
from argon2 import PasswordHasher

from tests.master.client import Api

_LEFT_OUT = "/live"
"""Streams, which have no end."""
_CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
)


@pytest.fixture(autouse=True)
def quick_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hash passwords with less effort than is safe."""
    quick = partial(PasswordHasher, time_cost=1, memory_cost=1024, parallelism=1)
    monkeypatch.setattr("rune.master.security.passwords.PasswordHasher", quick)


@pytest.mark.timeout(300)
async def test_nothing_but_documented_answers(small: Api, tmp_path: Path) -> None:
    command = ["run", f"{small.address}/api/openapi.json", "--exclude-path-regex", _LEFT_OUT]
    command += ["--checks", ",".join(_CHECKS), "--phases", "coverage,fuzzing", "--continue-on-failure"]
    command += ["--max-examples", "3", "--seed", "1", "--no-color"]
    child = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).with_name("schemathesis")),
        *command,
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await child.communicate()
    assert child.returncode == 0, said.decode()[-6000:]
