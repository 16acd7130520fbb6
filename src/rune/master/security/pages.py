"""Two plain pages without scripts: to log in, and to make the first account."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from html import escape

from starlette.responses import HTMLResponse

__all__ = ["login_page", "setup_page"]

_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { display: grid; min-height: 90vh; place-items: center; margin: 0; }
form { display: grid; gap: .75rem; width: min(20rem, 90vw); }
h1 { font-size: 1.25rem; margin: 0; }
label { display: grid; gap: .25rem; }
input, button { font: inherit; padding: .5rem; }
p { margin: 0; }
"""
_POLICY = "; ".join(
    (
        "default-src 'none'",
        f"style-src 'sha256-{b64encode(sha256(_STYLE.encode()).digest()).decode()}'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)


def login_page(target: str = "/", problem: str = "", status: int = 200) -> HTMLResponse:
    """The page to log in, from which one goes on to `target`."""
    hidden = f'<input type="hidden" name="next" value="{escape(target)}">'
    return _page("Log in", hidden, "current-password", problem, status)


def setup_page(token: str, problem: str = "", status: int = 200) -> HTMLResponse:
    """The page to make the first account."""
    hidden = f'<input type="hidden" name="token" value="{escape(token)}">'
    return _page("Create the first account", hidden, "new-password", problem, status)


def _page(title: str, hidden: str, kind: str, problem: str, status: int) -> HTMLResponse:
    told = f'<p role="alert">{escape(problem)}</p>' if problem else ""
    content = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title} · Rune</title><style>{_STYLE}</style></head>
<body><form method="post"><h1>{title}</h1>{told}{hidden}
<label>Name <input name="name" autocomplete="username" autofocus required></label>
<label>Password <input name="password" type="password" autocomplete="{kind}" required></label>
<button>{title}</button></form></body></html>
"""
    return HTMLResponse(content, status, {"Content-Security-Policy": _POLICY})
