"""The HTTP application: every route, and what lies around all of them."""

from __future__ import annotations

from fastapi import APIRouter, FastAPI

from rune import __version__
from rune.master import problems
from rune.master.description import describe
from rune.master.limits import BodyLimit
from rune.master.metrics import Metered
from rune.master.routes import (
    accounts,
    audit,
    bundles,
    credentials,
    details,
    executions,
    health,
    hooks,
    live,
    nodes,
    page,
    redriving,
    references,
    sessions,
    steps,
    system,
    triggers,
    workflows,
)
from rune.master.security.gate import Gate, secure
from rune.master.service import Master

__all__ = ["create_app", "routed"]

ROUTERS: tuple[APIRouter, ...] = (
    # First what is asked for most, for they are looked through in order.
    executions.router,
    # Before the workflows themselves, whose ids could be `export`.
    bundles.router,
    workflows.router,
    nodes.router,
    redriving.router,
    details.router,
    references.router,
    steps.router,
    live.router,
    triggers.router,
    hooks.router,
    system.router,
    health.router,
    sessions.router,
    accounts.router,
    credentials.router,
    audit.router,
    page.router,
)
"""Everything that can be asked for."""


def create_app(master: Master) -> FastAPI:
    """The application of a master, which whoever serves it keeps running."""
    app = routed()
    app.state.master = master
    app.add_middleware(BodyLimit, most=master.settings.max_body)
    app.add_middleware(Metered, metrics=master.metrics)
    secure(app, Gate(master.history.database, master.settings, accounts=master.accounts))
    return app


def routed() -> FastAPI:
    """All routes, and nobody behind them: enough to describe the API."""
    app = FastAPI(
        title="Rune",
        version=__version__,
        summary="Workflows, their executions, and everything that happened in them.",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    problems.install(app)
    for router in ROUTERS:
        app.include_router(router)
    describe(app)
    return app
