"""No form of a secret leaves the worker."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import quote, quote_plus, urlencode

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rune.core.secrets import MASK, Mask

SECRETS = [
    "hunter2",
    'pass"word\\',
    "päss wörd",
    "a/b+c d&e=f",
    "line one\nline two",
    "tab\tand \U0001f511",
    "{}$^.*",
]


def knowing(*secrets: str) -> Mask:
    mask = Mask()
    mask.learn({"password": list(secrets)})
    return mask


forms = pytest.mark.parametrize(
    "form",
    [
        str,
        lambda secret: json.dumps({"auth": secret}, ensure_ascii=False),
        lambda secret: msgspec.json.encode(secret).decode(),
        lambda secret: f"https://example.org/?key={quote(secret, safe='')}&x=1",
        lambda secret: f"https://example.org/{quote(secret)}/x",
        lambda secret: f"https://example.org/?key={quote_plus(secret)}",
        lambda secret: urlencode({"key": secret}),
        lambda secret: base64.b64encode(secret.encode()).decode(),
        lambda secret: base64.urlsafe_b64encode(secret.encode()).decode(),
    ],
    ids=["plain", "json", "msgspec", "url", "path", "plus", "form", "base64", "urlsafe"],
)


@pytest.mark.parametrize("secret", SECRETS)
@forms
def test_a_secret_is_masked_in_every_form(secret: str, form: Any) -> None:
    text = f"before {form(secret)} after"
    masked = knowing(secret).text(text)
    assert MASK in masked
    assert secret not in masked
    assert (masked.startswith("before "), masked.endswith(" after")) == (True, True)


@pytest.mark.parametrize("secret", SECRETS)
@forms
def test_a_secret_is_masked_in_json_too(secret: str, form: Any) -> None:
    """Such as a response that echoes it: its body may be JSON as text, inside the JSON of the output."""
    data = knowing(secret).data(msgspec.json.encode({"body": f"before {form(secret)} after"}))
    body = msgspec.json.decode(data)["body"]
    assert MASK in body
    assert secret not in body
    assert (body.startswith("before "), body.endswith(" after")) == (True, True)


@given(
    st.sampled_from(SECRETS),
    st.binary(max_size=7),
    st.binary(max_size=7),
    st.sampled_from([base64.b64encode, base64.urlsafe_b64encode]),
)
def test_base64_of_a_longer_text_hides_the_secret_at_every_alignment(
    secret: str, before: bytes, after: bytes, encode: Any
) -> None:
    """Such as `Basic` credentials: what is left must not give back more than the secret's edges."""
    raw = secret.encode()
    masked = knowing(secret).text(encode(before + raw + after).decode())
    assert MASK in masked
    kept = masked.replace(MASK, "").rstrip("=")
    # Letters that the secret shares with its neighbours may stay: at most one on each side.
    shown = len(encode(before + raw + after).decode().rstrip("="))
    assert len(kept) <= shown - (len(raw) * 8 // 6 - 1)


def test_basic_authentication_is_masked() -> None:
    header = base64.b64encode(b"someone:hunter2").decode()
    assert base64.b64decode(knowing("hunter2").text(header).replace(MASK, "") + "==")[:8] == b"someone:"


def test_the_longer_of_two_secrets_is_masked_whole() -> None:
    assert knowing("abcd", "abcdefgh").text("abcdefgh abcd") == f"{MASK} {MASK}"


def test_secrets_are_found_anywhere_in_a_credential() -> None:
    mask = Mask()
    mask.learn({"oauth": {"tokens": ["token-1", {"refresh": "token-2"}]}, "password": "token-3"})
    assert mask.text("token-1 token-2 token-3 token-4") == f"{MASK} {MASK} {MASK} token-4"


def test_what_is_no_secret_stays_readable() -> None:
    mask = Mask()
    mask.learn({"host": "smtp.example.org", "Username": "someone", "port": 2525, "password": "abc"})
    text = "someone at smtp.example.org:2525 says abc"
    assert mask.text(text) == text


def test_it_learns_more_as_it_goes() -> None:
    mask = Mask()
    assert mask.text("first second") == "first second"
    mask.learn({"token": "first"})
    mask.learn({"token": "second"})
    mask.learn({"token": "second"})
    assert mask.text("first second third") == f"{MASK} {MASK} third"


# What it masks is JSON, and stays JSON.


@pytest.mark.parametrize(
    "value",
    [
        {"count": 1234},
        {"count": 91234.5},
        [True, None],
        {"1234": 1},
        {"a": "1234", "b": "true"},
        1234,
        "1234",
    ],
)
def test_masked_json_is_json(value: Any) -> None:
    masked = knowing("1234", "true", "null", '":"').data(msgspec.json.encode(value))
    shape = type(msgspec.json.decode(masked))
    assert shape in (type(value), str)


atoms = st.sampled_from([1000, 12.5, True, None, "1000", "true", 'a"b\\c', "a:\n1000"])
secrets = st.sampled_from(["1000", "12.5", "true", "null", 'a"b\\c', '":1000', "\\\\u00"])


@settings(max_examples=50)
@given(
    st.lists(secrets, min_size=1, max_size=3),
    st.recursive(
        atoms, lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["a", "1000"]), inner)
    ),
)
def test_masking_keeps_any_json_readable(secrets: list[str], value: Any) -> None:
    msgspec.json.decode(knowing(*secrets).data(msgspec.json.encode(value)))


@pytest.mark.parametrize("secret", SECRETS)
def test_what_basic_encodes_is_masked_whole(secret: str) -> None:
    mask = Mask()
    mask.learn({"username": "ada", "password": secret})
    basic = base64.b64encode(f"ada:{secret}".encode()).decode()
    assert mask.text(f"Authorization: Basic {basic}.") == f"Authorization: Basic {MASK}."
    assert mask.text("ada says hello") == "ada says hello"


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("ascii", [True, False])
def test_a_secret_is_masked_in_json_in_json(secret: str, ascii: bool) -> None:
    text = secret
    for _ in range(3):
        text = json.dumps({"inner": text}, ensure_ascii=ascii)
    masked = knowing(secret).text(text)
    for _ in range(3):
        masked = json.loads(masked)["inner"]
    assert masked == MASK


def test_other_spellings_are_masked() -> None:
    mask = knowing("pass/wörd&more")
    for text in ("pass%2fw%c3%b6rd%26more", r"pass\/wörd&more", r"pass\/w\u00f6rd&more", "pass/wÃ¶rd&more"):
        assert mask.text(text) == MASK


def test_a_private_key_is_masked_line_by_line() -> None:
    mask = knowing("-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0B\nAQEFAASCBKcwggSjAgEAAoIB\n")
    assert "MIIEvQIBADANBgkqhkiG9w0B" not in mask.text("line 2: MIIEvQIBADANBgkqhkiG9w0B is wrong")


def test_a_number_may_be_secret() -> None:
    mask = Mask()
    mask.learn({"pin": 48151623, "port": 587, "retries": True})
    assert mask.data(b'{"pin":48151623,"text":"48151623","port":587,"on":true}') == (
        b'{"pin":"***","text":"***","port":587,"on":true}'
    )
