"""Sign-in and sign-out: `/-/api/session`, and the link with the printed token.

Only the printed token is accepted in a URL. It is exchanged for a cookie and removed from the URL. With `auth`, no
credential in a URL is accepted.
"""

from typing import Final

import msgspec
import structlog
from aiohttp import web

from gateway.access.auth_error import AuthError
from gateway.access.identity import Identity
from gateway.console.console_access import HEADER, ConsoleAccess
from gateway.console.responses import error_response, no_content, read_json_object
from gateway.console.security_headers import OF_PAGE
from gateway.console.session_cookie import place_of
from gateway.transports.errors import HttpError
from gateway.transports.http.request import HttpRequest

log: Final = structlog.get_logger(__name__)

_MAX_LENGTH: Final = 16 * 1024
_NOT_OWN: Final = HttpError(
    status=403, message=f"Only the console's page can sign in here, with the header {HEADER}: 1"
)
_TOO_LARGE: Final = HttpError(
    status=413, message="The token is too large for a cookie. Send it in the Authorization header instead"
)


class SignIn(msgspec.Struct, frozen=True, kw_only=True):
    access: ConsoleAccess

    async def session(self, request: HttpRequest) -> web.Response:
        """Handle `/-/api/session`.

        1. the method must be POST or DELETE (405)
        2. the request must come from our page (403)
        3. POST: the body needs the text `token` (400, 413, 415)
        4. POST: `ConsoleAccess.by_credential` and `ConsoleAccess.permitted`
        """
        headers = request.response_headers
        if request.raw.method not in {"POST", "DELETE"}:
            error = HttpError(status=405, message="method not allowed", headers={"Allow": "POST, DELETE"})
            return error_response(error, headers)
        # Other sites must not sign a browser in.
        if not self.access.is_own(request):
            return error_response(_NOT_OWN, headers)
        if request.raw.method == "DELETE":
            response = no_content(request)
            self.access.cookies.take(endpoint=request.client_endpoint, response=response)
            return response
        return await self._begin(request)

    async def _begin(self, request: HttpRequest) -> web.Response:
        headers = request.response_headers
        body = await read_json_object(request)
        if isinstance(body, HttpError):
            return error_response(body, headers)
        token = body.get("token")
        if not isinstance(token, str) or not 0 < len(token.strip()) <= _MAX_LENGTH:
            return error_response(
                HttpError(status=400, message="`token` must be a string with the key or token"), headers
            )
        found = await self._identified(token.strip(), request)
        if isinstance(found, AuthError | HttpError):
            return error_response(found, headers)
        response = no_content(request)
        is_given = self._give(found, request, response)
        return response if is_given else error_response(_TOO_LARGE, headers)

    async def follow_link(self, token: str, request: HttpRequest) -> web.Response | None:
        """Exchange the token of a link for a cookie, and redirect without it. Return None for an invalid token."""
        # An API key in a URL would appear in histories and logs, so it is ignored with `auth`.
        if not self.access.authenticator.is_open:
            return None
        found = await self._identified(token, request)
        if isinstance(found, AuthError | HttpError):
            return None
        # RFC 9110 §15.4.4: the browser requests another URL, so the token leaves its address bar.
        headers = {**request.response_headers, **OF_PAGE, "Cache-Control": "no-store", "Location": "./"}
        response = web.Response(status=303, headers=headers)
        return response if self._give(found, request, response) else None

    async def _identified(self, token: str, request: HttpRequest) -> Identity | AuthError | HttpError:
        address = request.client_endpoint.address
        found = await self.access.by_credential(token, address=address)
        if isinstance(found, Identity):
            found = self.access.permitted(found)
        if isinstance(found, AuthError):
            self.access.authenticator.record_denial(found, address=address, path=request.raw.path)
            log.warning("console sign-in denied", address=address, reason=found.error or "invalid")
        return found

    def _give(self, identity: Identity, request: HttpRequest, response: web.Response) -> bool:
        endpoint = request.client_endpoint
        session = self.access.session_of(identity, place_of(request.raw, endpoint))
        return self.access.cookies.give(session, endpoint=endpoint, response=response)
