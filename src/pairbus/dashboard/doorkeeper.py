"""Who may come in, and with what each answer is sent.

1. A request whose `Host` is no name of this server is answered with 421: a page elsewhere whose name leads
   here for a moment reads nothing. Numeric addresses are names of ours, since nobody can let them lead
   elsewhere.
2. Where there is a token, everything but the page itself, which holds nothing, needs it as
   `Authorization: Bearer`. There is no cookie, so no other page can act in the name of somebody signed in.
3. What a page of another origin asks for, as the browser tells, is refused; a link to this page is not.
4. The page may load nothing but its own files: no inline script, no third party, no frame around it.
"""

import hmac
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pairbus.plumbing.hosts import numeric_address

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}
# The page itself, and a sign of life for whoever supervises the process.
_OPEN = ("/", "/health")
_OPEN_BELOW = "/static/"
# Another port of the same host is another page too.
_FOREIGN = ("cross-site", "same-site")


class Doorkeeper:
    """Stands before the application."""

    def __init__(self, app: ASGIApp, *, token: str | None, names: Iterable[str]) -> None:
        self._app = app
        self._token = token
        self._names = {name.lower() for name in names} | {"localhost"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refusal = self._refuse(Headers(scope=scope), str(scope["path"]))
        await (refusal or self._app)(scope, receive, send_safely)

    def _refuse(self, headers: Headers, path: str) -> JSONResponse | None:
        host = _host_name(headers.get("host", ""))
        if host is None or (numeric_address(host) is None and host not in self._names):
            said = "this dashboard does not go by that name; --allow-host NAME lets it"
            return JSONResponse({"error": said}, status_code=421)
        if headers.get("sec-fetch-site", "none") in _FOREIGN and headers.get("sec-fetch-mode") != "navigate":
            return JSONResponse({"error": "this is for the dashboard's own page"}, status_code=403)
        if self._token is None or path in _OPEN or path.startswith(_OPEN_BELOW):
            return None
        scheme, _, shown = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and hmac.compare_digest(shown.strip().encode(), self._token.encode()):
            return None
        return JSONResponse(
            {"error": "this needs 'Authorization: Bearer TOKEN', as the dashboard was started with"},
            status_code=401,
            headers={"WWW-Authenticate": "Bearer"},
        )


def _host_name(host: str) -> str | None:
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None
