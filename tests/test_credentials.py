"""Credentials by reference: from a file or a variable, masked once given out."""

from __future__ import annotations

from pathlib import Path

import pytest

from rune.core.errors import NodeError
from rune.credentials import Credentials

TEXT = '{"mail": {"host": "smtp.example.org", "password": "hunter2"}, "api": {"token": "s3cret-token"}}'


async def refused(credentials: Credentials, reference: str = "mail") -> tuple[str, str]:
    with pytest.raises(NodeError) as raised:
        await credentials.resolve(reference)
    return raised.value.code, raised.value.message


@pytest.mark.parametrize("where", ["text", "file", "home"])
async def test_a_reference_is_resolved(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "keys.json").write_text(TEXT)
    monkeypatch.setenv("HOME", str(tmp_path))
    sources = {"text": f"\n {TEXT}", "file": str(tmp_path / "keys.json"), "home": "~/keys.json"}
    credential = await Credentials(sources[where]).resolve("mail")
    assert credential == {"host": "smtp.example.org", "password": "hunter2"}


async def test_what_was_given_out_is_masked_from_then_on() -> None:
    credentials = Credentials(TEXT)
    assert credentials.mask.text("hunter2 s3cret-token") == "hunter2 s3cret-token"
    await credentials.resolve("mail")
    assert credentials.mask.text("hunter2 at smtp.example.org") == "*** at smtp.example.org"


@pytest.mark.parametrize("source", [None, "", TEXT])
async def test_a_missing_one_says_where_it_belongs(source: str | None) -> None:
    code, message = await refused(Credentials(source), "other")
    assert code == "CREDENTIAL_MISSING"
    assert "'other'" in message
    assert "RUNE_CREDENTIALS" in message


async def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    code, message = await refused(Credentials(str(tmp_path / "nowhere.json")))
    assert code == "CREDENTIAL_UNREADABLE"
    assert "nowhere.json: No such file" in message


@pytest.mark.parametrize(
    "content", [b"[]", b'{"mail": "hunter2"}', b"{", b'{"mail": {"password": "hunter2"', b"\xff\xfe{"]
)
async def test_a_file_that_is_no_json_object_of_credentials_is_named(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.write_bytes(content)
    code, message = await refused(Credentials(str(file)))
    assert code == "CREDENTIAL_UNREADABLE"
    assert str(file) in message
    assert "hunter2" not in message


async def test_text_that_is_no_json_names_the_variable_and_not_the_text() -> None:
    code, message = await refused(Credentials('{"mail": {"password": "hunter2"'))
    assert code == "CREDENTIAL_UNREADABLE"
    assert message.startswith("RUNE_CREDENTIALS is not a JSON object")
    assert "hunter2" not in message


async def test_they_are_read_when_first_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    credentials = Credentials(str(file))
    file.write_text(TEXT)
    await credentials.resolve("mail")
    file.unlink()
    assert await credentials.resolve("api") == {"token": "s3cret-token"}
