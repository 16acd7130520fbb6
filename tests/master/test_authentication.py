"""Who may call a webhook: signatures, secret headers, users with passwords."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode

import pytest
from pydantic import ValidationError
from starlette.datastructures import Headers

from rune.master.triggers.authentication import BasicAuth, HeaderAuth, HmacAuth, NoAuth, is_authentic

SECRET, BODY, NOW = "It's a Secret to Everybody", b"Hello, World!", 1_700_000_000.0


def asked(auth: HmacAuth | HeaderAuth | BasicAuth | NoAuth, body: bytes = BODY, **headers: str) -> bool:
    named = Headers({name.replace("_", "-"): value for name, value in headers.items()})
    return is_authentic(auth, SECRET, named, body, NOW)


def signature(message: bytes, algorithm: str = "sha256") -> bytes:
    return hmac.new(SECRET.encode(), message, algorithm).digest()


def test_without_authentication_everybody_may() -> None:
    assert asked(NoAuth())


def test_a_signature_as_github_makes_it() -> None:
    # The example of GitHub's documentation.
    known = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    auth = HmacAuth(kind="hmac")
    assert asked(auth, x_hub_signature_256=known)
    assert asked(auth, x_hub_signature_256=known.upper().replace("SHA256", "sha256"))
    assert not asked(auth, b"Hello, World", x_hub_signature_256=known)
    assert not asked(auth, x_hub_signature_256=known.removeprefix("sha256="))
    assert not asked(auth, x_hub_signature_256="sha256=")
    assert not asked(auth, x_hub_signature_256="sha256=é")
    assert not asked(auth)


def test_a_signature_in_base64_by_another_algorithm() -> None:
    auth = HmacAuth(kind="hmac", header="X-Sign", algorithm="sha512", prefix="", encoding="base64")
    assert asked(auth, x_sign=b64encode(signature(BODY, "sha512")).decode())
    assert not asked(auth, x_sign=signature(BODY, "sha512").hex())


def test_a_signature_with_a_time_is_good_for_a_while() -> None:
    auth = HmacAuth(kind="hmac", header="X-Sign", prefix="v1=", timestamp_header="X-Time", tolerance=60)

    def signed(at: str) -> bool:
        mac = hmac.new(SECRET.encode(), at.encode() + b"." + BODY, hashlib.sha256).hexdigest()
        return asked(auth, x_sign=f"v1={mac}", x_time=at)

    assert signed("1700000000")
    assert signed("1699999941")
    assert not signed("1699999939")
    assert not signed("1700000061")
    assert not signed("")
    assert not signed("-1")
    assert not signed("²")
    # The time of another message does not fit the signature.
    mac = hmac.new(SECRET.encode(), b"1699999990." + BODY, hashlib.sha256).hexdigest()
    assert not asked(auth, x_sign=f"v1={mac}", x_time="1699999991")


def test_a_signature_over_a_text_of_ones_own() -> None:
    auth = HmacAuth(
        kind="hmac", header="X-Sign", prefix="v0=", timestamp_header="X-Time", signed="v0:{timestamp}:{body}"
    )
    mac = signature(b"v0:1700000000:" + BODY).hex()
    assert asked(auth, x_sign=f"v0={mac}", x_time="1700000000")


@pytest.mark.parametrize("wrong", [{"signed": "no"}, {"signed": "{timestamp}{body}"}, {"header": "a b"}])
def test_what_makes_no_sense_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        HmacAuth(kind="hmac", **wrong)  # type: ignore[arg-type]


def test_a_secret_header() -> None:
    auth = HeaderAuth(kind="header", header="X-Api-Key")
    assert asked(auth, x_api_key=SECRET)
    assert not asked(auth, x_api_key=SECRET + "x")
    assert not asked(auth)


def test_a_user_and_a_password() -> None:
    auth = BasicAuth(kind="basic", username="ada")
    good = b64encode(f"ada:{SECRET}".encode()).decode()
    assert asked(auth, authorization=f"Basic {good}")
    assert asked(auth, authorization=f"basic {good}")
    assert not asked(auth, authorization=f"Bearer {good}")
    assert not asked(auth, authorization="Basic " + b64encode(b"ada:wrong").decode())
    assert not asked(auth, authorization="Basic ???")
    assert not asked(auth)
