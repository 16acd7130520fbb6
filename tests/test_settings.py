"""Settings: flags over variables over defaults, and refused when they make no sense."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from rune.settings import Settings, SettingsError, load_settings, state_directory


def test_without_anything_they_are_the_defaults() -> None:
    assert load_settings(environ={}) == Settings()


def test_every_field_is_a_variable() -> None:
    texts = {
        "db": ("x.db", "x.db"),
        "synchronous": ("full", "full"),
        "modules": ("a,b.c", ("a", "b.c")),
        "credentials": ("{}", "{}"),
        "concurrency": ("3", 3),
        "prefetch": ("4", 4),
        "lease": ("1.5", 1.5),
        "hold": ("2", 2.0),
        "timeout": ("7", 7.0),
        "max_starts": ("5", 5),
        "max_value": ("1000", 1000),
        "retention": ("60", 60.0),
        "retry_delays": ("1,2.5", (1.0, 2.5)),
        "broker_url": ("amqp://there", "amqp://there"),
        "state_url": ("redis://there", "redis://there"),
        "queues": ("gpu, workflow.execution", ("gpu", "workflow.execution")),
        "quorum": ("true", True),
        "status_batch_ms": ("5", 5.0),
        "grace": ("0", 0.0),
        "log_format": ("json", "json"),
        "metrics_port": ("9100", 9100),
        "metrics_host": ("0.0.0.0", "0.0.0.0"),
        "http_allow": ("localhost:80, 10.0.0.0/8", ("localhost:80", "10.0.0.0/8")),
        "key": ("a,b", "a,b"),
        "key_file": ("x.key", "x.key"),
        "credentials_dir": ("/run/secrets", "/run/secrets"),
        "accounts": ("true", True),
        "admin_password": ("x", "x"),
        "public_url": ("https://there", "https://there"),
        "session_idle": ("60", 60.0),
        "session_max": ("600", 600.0),
        "host": ("0.0.0.0", "0.0.0.0"),
        "port": ("80", 80),
        "history_url": ("postgresql://there", "postgresql://there"),
        "max_body": ("1000", 1000),
        "artifacts": ("/files", "/files"),
        "streams": ("5", 5),
        "token": ("rune_x", "rune_x"),
        "url": ("http://there", "http://there"),
    }
    known = {field.name for field in msgspec.structs.fields(Settings)}
    assert known <= set(texts)
    environ = {f"RUNE_{name.upper()}": texts[name][0] for name in known}
    made = load_settings(environ=environ)
    assert {name: getattr(made, name) for name in known} == {name: texts[name][1] for name in known}


def test_a_flag_outweighs_a_variable_unless_it_was_not_given() -> None:
    environ = {"RUNE_CONCURRENCY": "3", "RUNE_DB": "env.db"}
    made = load_settings({"concurrency": 5, "db": None}, environ)
    assert (made.concurrency, made.db) == (5, "env.db")


def test_the_servers_also_go_by_their_short_names() -> None:
    environ = {"RUNE_BROKER": "amqp://short", "RUNE_STATE": "redis://short", "RUNE_STATE_URL": "redis://long"}
    made = load_settings(environ=environ)
    assert (made.broker_url, made.state_url) == ("amqp://short", "redis://long")


def test_they_are_read_from_the_process_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNE_CONCURRENCY", "7")
    assert load_settings().concurrency == 7


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("CONCURRENCY", "many"),
        ("CONCURRENCY", "1.5"),
        ("CONCURRENCY", "0"),
        ("PREFETCH", "0"),
        ("LEASE", "0"),
        ("LEASE", "-1"),
        ("TIMEOUT", "soon"),
        ("TIMEOUT", "nan"),
        ("SYNCHRONOUS", "off"),
        ("RETRY_DELAYS", "1,x"),
        ("MAX_VALUE", "-1"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(SettingsError) as raised:
        load_settings(environ={f"RUNE_{name}": text})
    assert name.lower() in str(raised.value).lower()


@pytest.mark.parametrize(
    ("text", "expected"), [("a, b", ("a", "b")), (" a ", ("a",)), ("a,,b,", ("a", "b")), ("", ())]
)
def test_a_list_may_have_spaces_and_gaps(text: str, expected: tuple[str, ...]) -> None:
    assert load_settings(environ={"RUNE_MODULES": text}).modules == expected


def test_they_cannot_be_changed() -> None:
    made: Any = Settings()
    with pytest.raises(AttributeError):
        made.concurrency = 1


def test_databases_live_in_the_users_state_directory() -> None:
    assert state_directory({"XDG_STATE_HOME": "/state"}) == Path("/state/rune")
    assert state_directory({}) == Path.home() / ".local" / "state" / "rune"
    assert state_directory({"XDG_STATE_HOME": ""}) == Path.home() / ".local" / "state" / "rune"


def test_what_is_secret_is_not_shown() -> None:
    shown = repr(Settings(key="k-secret", admin_password="p-secret", broker_url="amqp://me:u-secret@there"))
    assert "secret" not in shown
    assert "key=***" in shown
    assert "concurrency=64" in shown
