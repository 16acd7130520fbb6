"""Every example does what it says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.servers.postgres import shared_postgres

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TRIED = {
    "orders.json",
    "errors.yaml",
    "numbers.json",
    "tickets.yaml",
    "fetch.json",
    "greet/greet.json",
    "quotes/quote.yaml",
    "quotes/quotes.json",
    "sweep.yaml",
    "stations.json",
    "warehouse.yaml",
}


def result(file: str, *arguments: str, **variables: str) -> Any:
    """What the example prints."""
    done = subprocess.run(
        [sys.executable, "-m", "rune", "run", "--quiet", str(EXAMPLES / file), *arguments],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_example_is_tried() -> None:
    files = {
        str(path.relative_to(EXAMPLES)) for path in EXAMPLES.rglob("*") if path.suffix in (".json", ".yaml")
    }
    assert files == TRIED


def test_quotes() -> None:
    alone = result("quotes/quote.yaml", "--input", '{"product": "lamp", "pieces": 10}')
    assert alone["steps"]["discount"] == 225
    desk, chair, throne = result("quotes/quotes.json")["aggregated"]
    assert (desk["price"], chair["price"]) == (600, 576)
    assert "we do not sell a throne" in throne["sorry"]


def test_orders() -> None:
    report = result("orders.json")
    assert report["revenue"] == 1701.1
    assert [(account["name"], account["orders"]) for account in report["accounts"]] == [
        ("Ada", 4),
        ("Grace", 3),
        ("Edsger", 4),
        ("Barbara", 6),
        ("Alan", 2),
        ("Katherine", 6),
    ]


def test_orders_of_ones_own() -> None:
    users = {
        "users": [
            {"name": "Me", "orders": [{"id": "1", "price": 200, "quantity": 1}]},
            {"name": "You", "orders": []},
        ]
    }
    report = result("orders.json", "--input", json.dumps(users))
    assert report["revenue"] == 180
    assert report["accounts"][0] == {"name": "Me", "orders": 1, "discounts": 1, "total": 180}
    assert report["accounts"][1]["orders"] == 0


def test_errors() -> None:
    report = result("errors.yaml")
    assert (report["good"], report["bad"], report["mean"]) == (4, 2, 21.625)
    assert "'broken'" in report["why"]


def test_numbers() -> None:
    statistics = result("numbers.json")
    assert statistics["count"] == 10_000
    assert statistics["reduced"] == {
        "sum": sum(n * n for n in range(1, 10_001)),
        "mean": 33338333.5,
        "greatest": 10_000**2,
        "even": 5_000,
    }


def test_tickets() -> None:
    assert result("tickets.yaml")["aggregated"] == [
        "page someone: Printer on fire",
        "queue: Password forgotten",
        "queue: Mail delayed",
    ]


def test_stations() -> None:
    climate = result("stations.json")
    assert (climate["count"], climate["failed"]) == (6, 0)
    assert climate["reduced"] == {"coldest": 272.15, "warmest": 304.65, "northern": 3}


class _Users(BaseHTTPRequestHandler):
    """Four users, of whom one is there only when asked again."""

    asked: set[str] = set()  # noqa: RUF012 - each test has a class of its own

    def do_GET(self) -> None:
        name = self.path.removeprefix("/users").strip("/")
        again = name in self.asked
        self.asked.add(name)
        body: Any = (
            {"id": int(name), "city": f"City {name}"}
            if name
            else [{"id": n, "name": f"U{n}"} for n in range(4)]
        )
        data = json.dumps(body).encode()
        self.send_response(200 if name != "2" or again else 503)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    """The address of a server with users."""
    handler = type("Users", (_Users,), {"asked": set()})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as http:
        thread = Thread(target=http.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}"
        http.shutdown()
        thread.join()


def test_fetch(server: str) -> None:
    users = result("fetch.json", "--input", json.dumps({"url": server}))
    assert users["aggregated"] == [{"id": n, "city": f"City {n}"} for n in range(4)]
    assert users["failed"] == 0


def test_greet() -> None:
    modules = {"RUNE_MODULES": "greet_nodes", "PYTHONPATH": str(EXAMPLES / "greet")}
    assert result("greet/greet.json", **modules)["aggregated"] == ["Bonjour, Ada! :-)", "Bonjour, Grace! :-)"]
    names = json.dumps({"names": ["Bob"]})
    assert result("greet/greet.json", "--input", names, **modules)["aggregated"] == ["Bonjour, Bob! :-)"]


def test_sweep(tmp_path: Path) -> None:
    found = result("sweep.yaml", "--input", '{"points": 9, "shots": 200}', RUNE_ARTIFACTS=str(tmp_path))
    report = found["steps"]["report"]
    assert report["points"] == 9
    assert report["worst"] < 0.4, "what was measured lies about where it should"
    assert found["steps"]["sweep"]["shared"] == {"measured": 9 * 200}
    plot = (tmp_path / "sweep.svg").read_text(encoding="utf-8")
    assert plot.count("<circle") == 9
    assert len(plot.encode()) == report["bytes"]


def test_warehouse() -> None:
    server = shared_postgres()
    url = server.new_database()
    try:
        known = json.dumps({"warehouse": {"dsn": url}})
        report = result("warehouse.yaml", "--input", '{"unlucky": "lima"}', RUNE_CREDENTIALS=known)
    finally:
        server.drop_database(url)
    assert report["steps"]["report"] == {"shards": 5, "average": 15.4, "written": 2}
