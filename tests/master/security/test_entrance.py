"""Logging in and out, as people and as other sites' pages try it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from argon2 import PasswordHasher

from rune.history.audit import AuditLog
from rune.master.security.bearers import digest
from rune.master.security.beginning import first_admin, require_accounts
from rune.master.security.gate import Gate
from rune.master.security.passwords import Passwords
from rune.master.security.roles import Role
from rune.settings import Settings, SettingsError
from tests.master.client import Api, open_api
from tests.master.security.people import PASSWORD, Person, with_accounts

COOKIE = "rune_session"


async def actions(api: Api) -> list[tuple[str, str]]:
    found = await AuditLog(api.master.history.database).list(50)
    return [(entry.action, entry.outcome) for entry in found.items]


async def test_a_login_gives_a_cookie_that_scripts_cannot_read(strict: Api) -> None:
    person = Person(strict)
    answer = await person.log_in()
    assert answer.json["name"] == "admin"
    assert (answer.json["role"], answer.json["via"], answer.json["accounts"]) == ("admin", "session", True)
    cookie = answer.headers["set-cookie"].lower()
    assert all(word in cookie for word in ("httponly", "samesite=strict", "path=/"))
    assert "secure" not in cookie
    assert "expires" not in cookie
    assert (await person.ask("GET", "/api/auth/me")).json["name"] == "admin"
    assert ("login", "ok") in await actions(strict)


async def test_behind_https_the_cookie_is_bound_to_the_host(tmp_path: Path) -> None:
    async with with_accounts(tmp_path / "rune.db", public_url="https://rune.example.org") as api:
        person = Person(api)
        person.headers = {"Origin": "https://rune.example.org"}
        cookie = (await person.log_in()).headers["set-cookie"]
        assert cookie.startswith("__Host-rune_session=")
        assert "Secure" in cookie
        answer = await person.ask("GET", "/api/auth/me")
        assert answer.status == 200
        assert "max-age" in answer.headers["strict-transport-security"]


async def test_a_wrong_name_and_a_wrong_password_look_the_same(strict: Api) -> None:
    for name, password in (("admin", "wrong password"), ("nobody", PASSWORD), ("", "")):
        answer = await Person(strict).log_in(name, password)
        assert answer.problem(401, "WRONG_PASSWORD")["detail"] == "the name or the password is wrong"
        assert "set-cookie" not in answer.headers
        assert (await actions(strict))[0] == ("login", "denied")


async def test_guessing_is_slowed_down_but_not_for_the_owner(strict: Api, admin: Person) -> None:
    stranger = Person(strict)
    statuses = [(await stranger.log_in("ada", f"guess number {n}")).status for n in range(12)]
    assert statuses == [401] * 10 + [429] * 2
    refused = await stranger.log_in("ada", "guess")
    refused.problem(429, "TOO_MANY_ATTEMPTS")
    assert 0 < int(refused.headers["retry-after"]) <= 901
    assert (await Person(strict).log_in()).status == 200


async def test_each_login_is_a_new_session_and_ends_the_old_one(strict: Api, admin: Person) -> None:
    old = Person(strict)
    old.cookies = dict(admin.cookies)
    await admin.log_in()
    assert admin.cookies != old.cookies
    assert (await admin.ask("GET", "/api/auth/me")).status == 200
    assert (await old.ask("GET", "/api/auth/me")).status == 401


async def test_what_is_stored_is_not_what_is_shown(strict: Api, admin: Person) -> None:
    token = (await admin.ask("POST", "/api/tokens", {"name": "ci"})).json["token"]
    database = strict.master.history.database
    (session,) = await database.fetch("SELECT hash FROM session")
    (stored,) = await database.fetch("SELECT hash FROM token")
    assert session["hash"] == digest(admin.cookies[COOKIE])
    assert stored["hash"] == digest(token)


async def test_a_session_that_was_made_up_is_none(strict: Api) -> None:
    eve = Person(strict)
    eve.cookies = {COOKIE: "made-up"}
    (await eve.ask("GET", "/api/auth/me")).problem(401, "UNAUTHENTICATED")


async def test_logging_out_ends_the_session_here_or_everywhere(strict: Api, admin: Person) -> None:
    elsewhere, third = Person(strict), Person(strict)
    await elsewhere.log_in()
    await third.log_in()
    program = await admin.token(Role.VIEWER)
    answer = await admin.ask("POST", "/api/auth/logout")
    assert (answer.status, 'rune_session=""' in answer.headers["set-cookie"]) == (204, True)
    assert (await elsewhere.ask("GET", "/api/auth/me")).status == 200
    assert (await elsewhere.ask("POST", "/api/auth/logout", {"everywhere": True})).status == 204
    assert (await third.ask("GET", "/api/auth/me")).status == 401
    assert (await program.ask("GET", "/api/auth/me")).status == 200


async def test_a_new_password_ends_the_other_sessions(strict: Api, admin: Person) -> None:
    elsewhere = Person(strict)
    await elsewhere.log_in()
    new = "another horse battery"
    wrong = await admin.ask("POST", "/api/auth/password", {"old": "wrong", "new": new})
    wrong.problem(403, "WRONG_PASSWORD")
    short = await admin.ask("POST", "/api/auth/password", {"old": PASSWORD, "new": "short"})
    assert short.status == 422
    assert (await admin.ask("POST", "/api/auth/password", {"old": PASSWORD, "new": new})).status == 204
    assert (await admin.ask("GET", "/api/auth/me")).status == 200
    assert (await elsewhere.ask("GET", "/api/auth/me")).status == 401
    assert (await elsewhere.log_in()).status == 401
    assert (await elsewhere.log_in(password=new)).status == 200


# --- other sites' pages ------------------------------------------------------------------------------------


async def test_another_site_s_page_changes_nothing(admin: Person) -> None:
    admin.headers = {}
    for origin in ("https://evil.example", "null", "http://127.0.0.1:1", ""):
        for path in ("/api/users", "/api/auth/logout"):
            (await admin.ask("POST", path, {}, Origin=origin)).problem(403, "CROSS_ORIGIN")
    for site in ("cross-site", "same-site"):
        (await admin.ask("POST", "/api/users", {}, Sec_Fetch_Site=site)).problem(403, "CROSS_ORIGIN")
        (await admin.ask("GET", "/api/users", Sec_Fetch_Site=site)).problem(403, "CROSS_ORIGIN")
    assert (await admin.ask("GET", "/api/auth/me")).status == 200


async def test_a_cookie_without_a_word_of_where_it_comes_from_changes_nothing(admin: Person) -> None:
    admin.headers = {}
    assert (await admin.ask("GET", "/api/users")).status == 200
    (await admin.ask("POST", "/api/users", {})).problem(403, "CROSS_ORIGIN")
    assert (await admin.ask("POST", "/api/users", {}, X_Rune_Request="1")).status == 422
    assert (await admin.ask("POST", "/api/users", {}, Sec_Fetch_Site="same-origin")).status == 422


async def test_a_token_needs_no_origin(admin: Person) -> None:
    program = await admin.token(Role.ADMIN)
    assert (await program.ask("POST", "/api/users", {}, Origin="https://elsewhere.example")).status == 422


async def test_another_site_s_page_cannot_log_anybody_in(strict: Api) -> None:
    body = {"name": "admin", "password": PASSWORD}
    answer = await Person(strict).ask("POST", "/api/auth/login", body, Origin="https://evil.example")
    answer.problem(403, "CROSS_ORIGIN")


async def test_a_program_without_a_browser_can_log_in(strict: Api) -> None:
    program = Person(strict)
    program.headers = {}
    assert (await program.log_in()).status == 200


# --- without accounts --------------------------------------------------------------------------------------


async def test_without_accounts_everybody_on_this_machine_is_an_admin(small: Api) -> None:
    me = (await small.get("/api/auth/me")).json
    assert (me["role"], me["via"], me["accounts"]) == ("admin", "open", False)
    assert (await small.get("/api/users")).json == {"items": [], "next": None}
    (await small.post("/api/auth/login", {"name": "a", "password": "b"})).problem(409, "NO_ACCOUNTS")
    (await small.post("/api/tokens", {"name": "a"})).problem(409, "NO_SESSION")


async def test_a_name_bent_to_this_machine_is_not_answered(small: Api) -> None:
    for host in ("evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "10.0.0.1", "[::2]"):
        answer = await small.ask("GET", "/api/executions", headers={"Host": host})
        answer.problem(403, "FOREIGN_HOST")
    for host in ("localhost:1", "127.0.0.1", "rune.localhost", "[::1]:8484", "LOCALHOST"):
        assert (await small.ask("GET", "/api/executions", headers={"Host": host})).status == 200


async def test_without_accounts_other_pages_change_nothing_either(small: Api) -> None:
    for header in ({"Origin": "http://localhost:3000"}, {"Sec-Fetch-Site": "same-site"}):
        answer = await small.ask("POST", "/api/executions", json={}, headers=header)
        answer.problem(403, "CROSS_ORIGIN")


# --- how accounts begin ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "dev", "accounts"),
    [
        (Settings(), True, False),
        (Settings(host="localhost"), True, False),
        (Settings(host="::1"), True, False),
        (Settings(accounts=True), True, True),
        (Settings(host="0.0.0.0"), True, True),
        (Settings(public_url="https://rune.example.org"), True, True),
        (Settings(), False, True),
        (Settings(accounts=False), False, False),
        (Settings(host="0.0.0.0", accounts=False), True, None),
        (Settings(host="192.168.0.1", accounts=False), False, None),
        (Settings(public_url="https://rune.example.org", accounts=False), True, None),
    ],
)
def test_whoever_can_be_reached_needs_accounts(settings: Settings, dev: bool, accounts: bool | None) -> None:
    if accounts is None:
        with pytest.raises(SettingsError, match="accounts are needed"):
            require_accounts(settings, dev=dev)
    else:
        assert require_accounts(settings, dev=dev) is accounts


async def test_the_first_account_is_made_by_the_link_once(tmp_path: Path) -> None:
    async with open_api(tmp_path / "rune.db", accounts=True) as api:
        database, settings = api.master.history.database, api.master.settings
        gate = Gate(database, settings, accounts=True)
        link = await first_admin(gate, settings, api.address)
        assert link is not None
        token = link.partition("token=")[2]
        assert link == f"{api.address}/setup?token={token}"
        page = await api.get("/setup", token=token)
        assert "Create the first account" in page.data.decode()
        people = [Person(api), Person(api)]
        body = {"token": token, "name": "Ada", "password": PASSWORD}
        wrong = await people[0].ask("POST", "/api/auth/setup", {**body, "token": "x"})
        wrong.problem(403, "WRONG_SETUP_TOKEN")
        answers = await asyncio.gather(
            *(
                person.ask("POST", "/api/auth/setup", {**body, "name": f"ada{n}"})
                for n, person in enumerate(people)
            )
        )
        assert sorted(answer.status for answer in answers) == [201, 403]
        first = next(person for person in people if person.cookies)
        assert (await first.ask("GET", "/api/auth/me")).json["role"] == "admin"
        (await people[0].ask("POST", "/api/auth/setup", body)).problem(403, "WRONG_SETUP_TOKEN")
        assert await first_admin(gate, settings, api.address) is None


async def test_a_password_that_is_too_short_makes_no_admin(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="RUNE_ADMIN_PASSWORD needs at least 12"):
        async with open_api(tmp_path / "rune.db", accounts=True, admin_password="short"):
            pass


# --- the plain pages ---------------------------------------------------------------------------------------


async def form(person: Person, path: str, **fields: str) -> tuple[int, str, str]:
    from urllib.parse import urlencode

    api = person._api
    async with api._session.post(
        api.address + path, data=urlencode(fields), headers=person.headers, allow_redirects=False
    ) as response:
        person.cookies.update({name: morsel.value for name, morsel in response.cookies.items()})
        return response.status, response.headers.get("Location", ""), await response.text()


async def test_the_page_to_log_in_needs_no_script(strict: Api) -> None:
    next = "/executions"
    page = await strict.get("/login", next=next)
    assert "<script" not in page.data.decode()
    assert "style-src 'sha256-" in page.headers["content-security-policy"]
    person = Person(strict)
    status, _, text = await form(person, "/login", name="admin", password='wrong"><b>', next=next)
    assert (status, "the name or the password is wrong" in text) == (401, True)
    assert await form(person, "/login", name="admin", password=PASSWORD, next=next) == (303, next, "")
    for away in ("//evil.example", "https://evil.example", "/\\evil", "/\tx"):
        assert (await form(person, "/login", name="admin", password=PASSWORD, next=away))[1] == "/"
    assert (await person.ask("GET", "/api/auth/me")).status == 200
    person.headers = {"Origin": "https://evil.example"}
    assert (await form(person, "/login", name="admin", password=PASSWORD))[0] == 403


async def test_what_is_put_into_a_page_is_text(strict: Api) -> None:
    page = (await strict.get("/setup", token='"><script>alert(1)</script>')).data.decode()
    assert "<script" not in page
    assert (await form(Person(strict), "/setup", token="x", name="<b>", password="x"))[0] == 422
    assert (await form(Person(strict), "/setup", token="x", name="ada", password=PASSWORD))[0] == 403


# --- passwords ---------------------------------------------------------------------------------------------


async def test_passwords_are_hashed_with_argon2id_and_again_when_that_changes() -> None:
    passwords = Passwords()
    kept = await passwords.hash(PASSWORD)
    assert kept.startswith("$argon2id$")
    assert await passwords.verify(kept, PASSWORD)
    assert not await passwords.verify(kept, "other")
    assert not await passwords.verify(None, "nobody's")
    assert not await passwords.verify("not a hash", PASSWORD)
    assert not passwords.is_outdated(kept)
    weaker = Passwords(PasswordHasher(time_cost=2, memory_cost=1024, parallelism=1))
    assert passwords.is_outdated(await weaker.hash(PASSWORD))


async def test_an_old_hash_is_renewed_at_the_next_login(strict: Api) -> None:
    database = strict.master.history.database
    weak = PasswordHasher(time_cost=2, memory_cost=1024, parallelism=1).hash(PASSWORD)
    await database.write(("UPDATE account SET password = $1", [(weak,)]))
    assert (await Person(strict).log_in()).status == 200
    (row,) = await database.fetch("SELECT password FROM account")
    assert row["password"] != weak
    assert (await Person(strict).log_in()).status == 200
