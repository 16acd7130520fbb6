"""What every answer tells browsers not to do."""

from __future__ import annotations

import aiohttp

from tests.master.client import Api
from tests.master.security.people import Person

PATHS = ["/api/executions", "/api/nowhere", "/nowhere", "/health/live", "/login", "/api/openapi.json"]


async def test_every_answer_has_the_headers(small: Api) -> None:
    for path in PATHS:
        headers = (await small.get(path)).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert not [name for name in headers if name.startswith("access-control-")]
        if path.startswith("/api/"):
            assert headers["cache-control"] == "no-store"


async def test_refusals_have_them_too(strict: Api) -> None:
    for answer in (
        await strict.get("/api/executions"),
        await strict.ask("POST", "/api/auth/login", data=b"x", headers={"Content-Type": "text/plain"}),
        await strict.ask("POST", "/api/auth/login", data=b"{", headers={"Content-Type": "application/json"}),
        await strict.ask("OPTIONS", "/api/executions", headers={"Origin": "https://evil.example"}),
    ):
        assert answer.status >= 400
        assert "script-src 'self'" in answer.headers["content-security-policy"]
        assert answer.headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in answer.headers


async def test_a_stream_is_for_our_own_pages(small: Api) -> None:
    await refuses_others(Person(small), small)


async def test_also_with_accounts(strict: Api, admin: Person) -> None:
    await refuses_others(admin, strict)


async def refuses_others(person: Person, api: Api) -> None:
    cookie = "; ".join(f"{k}={v}" for k, v in person.cookies.items())
    address = f"{api.address}/api/executions/exec_0/live"

    async def shaken(origin: str) -> int:
        headers = {"Origin": origin, **({"Cookie": cookie} if cookie else {})}
        try:
            async with api._session.ws_connect(f"{address}/ws", headers=headers) as socket:
                await socket.receive(timeout=5)
                return 101
        except aiohttp.WSServerHandshakeError as error:
            return error.status

    assert await shaken("https://evil.example") == 403
    assert await shaken(api.address) != 403
    for stream in ("/api/executions/exec_0/live", "/api/live"):
        answer = await person.ask("GET", stream, Origin="https://evil.example")
        answer.problem(403, "CROSS_ORIGIN")
