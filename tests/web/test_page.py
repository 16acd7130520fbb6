"""The page as somebody sees it, in a browser."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import ConsoleMessage, Page, async_playwright, expect

from tests.master.client import Api, flow_of, open_api

BROWSER = shutil.which("chromium") or "chromium"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    async with open_api(tmp_path / "rune.db") as found:
        yield found


@pytest.fixture
async def page(api: Api) -> AsyncIterator[Page]:
    """A tab on the list; a word of complaint from it fails the test."""
    said: list[str] = []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=BROWSER, args=FLAGS)
        tab = await browser.new_page()
        tab.set_default_timeout(30_000)
        tab.on("console", lambda message: said.append(message.text) if _complains(message) else None)
        tab.on("pageerror", lambda error: said.append(str(error)))
        await tab.goto(api.address)
        yield tab
        await browser.close()
    assert said == []


def _complains(message: ConsoleMessage) -> bool:
    """Whether something is wrong with the page; that the server refused something is not."""
    return message.type == "error" and "Failed to load resource" not in message.text


def split_of(count: int, **more: Any) -> dict[str, Any]:
    """Split, edit, aggregate, wait."""
    nodes = [
        {"id": "make", "type": "edit", "parameters": {"assignments": [{"name": "n", "value": 1}]}},
        {"id": "each", "type": "split", "parameters": {"source": {"range": count}, **more}},
        {"id": "work", "type": "log", "parameters": {"message": "item {{ $item }}"}},
        {"id": "all", "type": "aggregator", "parameters": {"reduce": "count"}},
        {"id": "rest", "type": "wait", "parameters": {"amount": 1, "unit": "hours"}},
    ]
    ids = [node["id"] for node in nodes]
    edges = [{"id": f"e{i}", "src": a, "dst": b} for i, (a, b) in enumerate(pairwise(ids))]
    return {"name": "Fan out & rest", "nodes": nodes, "edges": edges}


async def started(api: Api, definition: dict[str, Any], **more: Any) -> str:
    answer = await api.ask("POST", "/api/executions", json={"definition": definition, **more})
    assert answer.status in (200, 201, 202), answer
    return str(answer.json["id"])


async def test_the_list_shows_what_runs_while_it_starts(api: Api, page: Page) -> None:
    await expect(page.get_by_text("Nothing has run here yet")).to_be_visible()
    id = await started(api, flow_of({"id": "greet"}), wait=5)
    row = page.get_by_role("row", name=id)
    await expect(row).to_contain_text("completed")
    await row.get_by_role("link").click()
    await expect(page.locator("[data-status]")).to_have_text("completed")


async def test_one_execution_shows_its_graph_its_split_and_its_wait(api: Api, page: Page) -> None:
    id = await started(api, split_of(500))
    await page.goto(f"{api.address}/#/executions/{id}")
    await expect(page.locator("[data-node]")).to_have_count(5)
    await expect(page.locator("[data-node=work]")).to_contain_text("500 success")
    await expect(page.locator("[data-split=each]")).to_contain_text("500 of 500")
    await expect(page.locator("[data-wait=rest]")).to_contain_text("goes on in 59 min")
    await expect(page.locator("[data-node=rest].waiting")).to_be_visible()
    await page.get_by_role("button", name="show items").click()
    canvas = page.get_by_label("The state of every item")
    await expect(canvas).to_be_visible()
    colours = """canvas => {
        const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
        const found = new Map();
        for (let i = 0; i < data.length; i += 4) if (data[i + 3]) {
            const key = data.slice(i, i + 3).join();
            found.set(key, (found.get(key) || 0) + 1);
        }
        return [...found.values()];
    }"""
    for _ in range(100):
        if (drawn := await canvas.evaluate(colours)) == [500]:
            break
        await asyncio.sleep(0.1)
    assert drawn == [500], "one pixel an item, all of one colour"
    await page.locator("[data-node=work]").click()
    await page.get_by_role("button", name="look").first.click()
    await expect(page.locator(".panel")).to_contain_text(re.compile(r"item \d+"))
    await page.get_by_role("button", name="cancel").click()
    await expect(page.locator("[data-status]")).to_have_text("halted")


async def test_what_happens_is_seen_as_it_happens(api: Api, page: Page) -> None:
    id = await started(api, split_of(20_000))
    await page.goto(f"{api.address}/#/executions/{id}")
    await expect(page.locator("[data-split=each]")).to_contain_text("20,000 of 20,000", timeout=60_000)
    assert await page.locator("*").count() < 400, "the page does not grow with the items"


async def test_a_name_is_text_whatever_it_looks_like(api: Api, page: Page) -> None:
    definition = {**flow_of({"id": "x"}), "name": "<img src=x onerror=alert(1)>"}
    id = await started(api, definition, wait=5)
    await expect(page.get_by_role("row", name=id)).to_contain_text("<img src=x")
    assert await page.locator("main img").count() == 0


async def test_an_execution_that_is_not_there(api: Api, page: Page) -> None:
    await page.goto(f"{api.address}/#/executions/nobody")
    await expect(page.get_by_role("alert")).to_contain_text("there is no execution")


async def test_an_address_that_nobody_wrote(api: Api, page: Page) -> None:
    await page.goto(f"{api.address}/#/executions/%")
    await expect(page.get_by_role("alert")).to_be_visible()
    await page.get_by_role("link", name="Rune").click()
    await expect(page.get_by_text("Nothing has run here yet")).to_be_visible()


async def test_a_node_is_looked_at_by_the_keyboard(api: Api, page: Page) -> None:
    id = await started(api, flow_of({"id": "one"}, {"id": "two"}), wait=5)
    await page.goto(f"{api.address}/#/executions/{id}")
    for node, key in (("one", "Enter"), ("two", "Space")):
        box = page.get_by_role("group", name="The workflow's graph").get_by_role(
            "button", name=f"{node} (log)"
        )
        await box.focus()
        await page.keyboard.press(key)
        await expect(page.locator(".panel h2")).to_have_text(node)
    look = page.get_by_role("button", name="look")
    await expect(look).to_be_visible()
    await page.keyboard.press("Tab")
    await expect(look).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.locator(".panel pre").first).to_be_visible()


async def test_ids_that_mean_something_to_a_script_are_ids(api: Api, page: Page) -> None:
    ids = ["__proto__", "constructor", "toString", "hasOwnProperty"]
    id = await started(api, flow_of(*({"id": each} for each in ids)), wait=5)
    await page.goto(f"{api.address}/#/executions/{id}")
    for each in ids:
        await expect(page.locator(f"[data-node={each}]")).to_contain_text("1 success")
