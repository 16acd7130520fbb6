"""Credentials by reference: from a file or a variable, masked once given out."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rune.core.errors import NodeError
from rune.credentials import Credentials, Promised

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


# --- files -------------------------------------------------------------------------------------------------


@pytest.fixture
def mounted(tmp_path: Path) -> Path:
    """Secrets as Docker and Kubernetes mount them."""
    (tmp_path / "plain").write_text("s3cret-token\n")
    (tmp_path / "mail").write_text('{"host": "smtp.example.org", "password": "hunter2"}')
    (tmp_path / "other.json").write_text('{"token": "abc"}')
    (tmp_path / "..data").mkdir()
    (tmp_path / "kube").mkdir()
    (tmp_path / "kube" / "username").write_text("ada")
    (tmp_path / "kube" / "password").write_text("  hunter2  ")
    (tmp_path / "kube" / ".hidden").write_text("no")
    (tmp_path / "broken").write_text('{"password": "hunter2"')
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    return tmp_path


@pytest.mark.parametrize(
    ("reference", "fields"),
    [
        ("plain", {"token": "s3cret-token"}),
        ("mail", {"host": "smtp.example.org", "password": "hunter2"}),
        ("other", {"token": "abc"}),
        ("kube", {"username": "ada", "password": "  hunter2  "}),
    ],
)
async def test_a_file_or_a_directory_is_a_credential(
    mounted: Path, reference: str, fields: dict[str, str]
) -> None:
    assert await Credentials(directory=str(mounted)).resolve(reference) == fields


async def test_a_file_that_changes_is_seen_at_once(mounted: Path) -> None:
    credentials = Credentials(directory=str(mounted))
    await credentials.resolve("plain")
    (mounted / "plain").write_text("new-token")
    assert await credentials.resolve("plain") == {"token": "new-token"}
    assert credentials.mask.text("s3cret-token new-token") == "*** ***"


@pytest.mark.parametrize("reference", ["../outside", "..", ".", "a/b", "..data", "", "x\0y", "nothing"])
async def test_a_reference_stays_within_its_directory(mounted: Path, reference: str) -> None:
    (mounted.parent / "outside").write_text("not yours")
    assert (await refused(Credentials(directory=str(mounted)), reference))[0] == "CREDENTIAL_MISSING"


@pytest.mark.parametrize("reference", ["broken", "binary"])
async def test_a_file_that_cannot_be_read_is_named_and_not_shown(mounted: Path, reference: str) -> None:
    code, message = await refused(Credentials(directory=str(mounted)), reference)
    assert code == "CREDENTIAL_UNREADABLE"
    assert reference in message
    assert "hunter2" not in message


# --- a store, and the order of all -------------------------------------------------------------------------


class Store:
    """A store of two."""

    async def find(self, reference: str) -> dict[str, str] | None:
        return {"mail": {"from": "store"}, "own": {"from": "store"}}.get(reference)


async def test_what_is_given_comes_before_files_and_files_before_the_store(mounted: Path) -> None:
    credentials = Credentials('{"plain": {"from": "given"}}', str(mounted), Store())
    assert await credentials.resolve("plain") == {"from": "given"}
    assert "host" in await credentials.resolve("mail")
    assert await credentials.resolve("own") == {"from": "store"}


async def test_whoever_asks_before_the_store_is_open_waits() -> None:
    promised = Promised()
    asking = asyncio.create_task(Credentials(store=promised).resolve("own"))
    await asyncio.sleep(0)
    assert not asking.done()
    promised.keep(Store())
    assert await asking == {"from": "store"}
    none = Promised()
    none.keep(None)
    assert (await refused(Credentials(store=none), "own"))[0] == "CREDENTIAL_MISSING"
