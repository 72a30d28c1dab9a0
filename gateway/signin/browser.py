"""Signs users in to the gateway's pages with OpenID Connect (authorization code flow, PKCE and nonce).

Threats:

- A response arrives in another browser or is replayed: each sign-in has a cookie, and can be finished only once.
- Two issuers are mixed up: `iss` is checked, and the code is only sent to the issuer of the sign-in.
- An ID token belongs to another client or sign-in: `aud`, `azp` and `nonce` are checked.
- A sign-in redirects to another site: `back` must be one of the gateway's pages.
"""

import hmac
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from html import escape
from typing import Final
from urllib.parse import urlsplit

import msgspec

from gateway.access.auth_error import AuthError
from gateway.access.authenticator import Authenticator
from gateway.access.identity import Identity
from gateway.config.models.auth import OAuth
from gateway.errors import ExecutionError
from gateway.net.authorization_code import PAGES, authorization_url, check_response, digest_of
from gateway.net.server_metadata import ServerMetadata, discover
from gateway.net.sign_ins import LINK_SECONDS, SignIns
from gateway.net.token_client import OAuthClient, TokenEndpoint, content_of

BROWSER: Final = f"{PAGES}/browser"
_BACK: Final = re.compile(r"connections|console/|sign-in/[A-Za-z0-9_-]{43}")
"""Paths below `/-/` that a sign-in can return to."""


class BrowserSignIn(msgspec.Struct, frozen=True, kw_only=True):
    """A sign-in that was started and is not finished."""

    issuer: str
    nonce: str
    verifier: str
    browser: str
    """Digest of the browser's cookie."""
    redirect_uri: str
    back: str
    server: ServerMetadata

    def __repr__(self) -> str:
        return f"BrowserSignIn(issuer={self.issuer})"


class BrowserSignIns:
    """Signs users in with those issuers of `auth.oauth` that have `browser` settings."""

    def __init__(self, sign_ins: SignIns, *, authenticator: Authenticator, endpoint: TokenEndpoint) -> None:
        self._sign_ins: Final = sign_ins
        self._authenticator: Final = authenticator
        self._endpoint: Final = endpoint

    @property
    def entries(self) -> Sequence[OAuth]:
        return [entry for entry in self._authenticator.oauth if entry.browser is not None]

    def forms(self, back: str, *, action: str) -> str:
        return "".join(
            f"<form method=post action='{action}'><input type=hidden name=back value='{escape(back)}'>"
            f"<button name=issuer value='{escape(issuer)}'>Sign in with {escape(urlsplit(issuer).hostname or issuer)}"
            "</button></form>"
            for issuer in (entry.issuer[0] for entry in self.entries)
        )

    async def start(self, issuer: str, back: str, *, base_url: str | None) -> tuple[str, str, str]:
        """Start a sign-in. Return the URL of the issuer's page, the `state`, and the value of a cookie for the browser.

        `base_url` is the URL of the listener. Raise ExecutionError if the issuer cannot be used.
        """
        entry = next((each for each in self.entries if each.issuer[0] == issuer), None)
        if entry is None or entry.browser is None or _BACK.fullmatch(back) is None:
            raise ExecutionError("the issuer or the page to return to is unknown")
        server = await discover(issuer, self._endpoint.sender)
        if not server.authorization_url or "S256" not in (server.challenge_methods or ["S256"]):
            raise ExecutionError(f"{issuer} has no authorization endpoint that supports PKCE with S256")
        state, nonce, verifier, cookie = (secrets.token_urlsafe(32) for _ in range(4))
        pending = BrowserSignIn(
            issuer=issuer,
            nonce=nonce,
            verifier=verifier,
            browser=digest_of(cookie),
            redirect_uri=f"{base_url}{BROWSER}/callback",
            back=back,
            server=server,
        )
        content = msgspec.json.encode(pending)
        await self._sign_ins.store.write(_name(state), content, expires=time.time() + LINK_SECONDS)
        url = authorization_url(
            server,
            client_id=entry.browser.client_id,
            redirect_uri=pending.redirect_uri,
            scopes=list(dict.fromkeys(["openid", *entry.scopes_supported])),
            state=state,
            verifier=verifier,
            nonce=nonce,
        )
        return url, state, cookie

    async def finish(self, response: Mapping[str, str], cookie: str) -> tuple[Identity | AuthError, str]:
        """Finish a sign-in. Return the user's identity or an error, and the page to return to.

        Raise ExecutionError if the response does not belong to a sign-in of this browser, or no tokens were issued.
        """
        name, store = _name(response.get("state", "")), self._sign_ins.store
        content = await store.read(name)
        pending = None if content is None else msgspec.json.decode(content, type=BrowserSignIn)
        if pending is None or not hmac.compare_digest(pending.browser, digest_of(cookie)):
            raise ExecutionError("this response does not belong to a sign-in of this browser")
        # RFC 6749 §4.1.2: a code can be used once.
        is_first = await store.claim(f"used:{name}", expires=time.time() + LINK_SECONDS)
        await store.delete(name)
        entry = next((each for each in self.entries if each.issuer[0] == pending.issuer), None)
        tokens = self._authenticator.tokens_of(pending.issuer)
        if not is_first or entry is None or entry.browser is None or tokens is None:
            raise ExecutionError("this sign-in was completed before, or the configuration has changed")
        check_response(response, pending.server)
        form = {
            "grant_type": "authorization_code",
            "code": response["code"],
            "redirect_uri": pending.redirect_uri,
            "code_verifier": pending.verifier,
        }
        client_id, secret = entry.browser.client_id, entry.browser.client_secret
        client = OAuthClient(client_id=client_id, secret=secret)
        sent = [response["code"], pending.verifier, secret]
        issued = await self._endpoint.post(pending.server, form, client, secrets=[each for each in sent if each])
        answer = content_of(issued)
        scope = answer.get("scope")
        identity = await tokens.identify_user(
            str(answer.get("id_token", "")),
            client_id=client_id,
            nonce=pending.nonce,
            access_token=str(answer.get("access_token", "")),
            scopes=scope.split() if isinstance(scope, str) else None,
        )
        return identity, pending.back


def _name(state: str) -> str:
    return f"browser:{digest_of(state)}"
