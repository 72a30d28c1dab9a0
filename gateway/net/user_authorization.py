"""Signs requests with the access token of a signed-in user (`authorization_code`)."""

from collections.abc import Sequence
from typing import Final

import msgspec

from gateway.access.identity import Subject
from gateway.net.authorization_code import ServiceEntry, Tokens
from gateway.net.proofs import note_nonce, with_token
from gateway.net.request import Rejection, Request
from gateway.net.server_metadata import asks_for_dpop, challenge_parameters, trusted_metadata_url
from gateway.net.sign_ins import SHARED, SignInRequiredError, SignIns

_MAX_ATTEMPTS: Final = 4
"""The maximum number of attempts: without a valid token, with a new one, and for each kind of nonce."""
_MAX_REFRESH_ATTEMPT: Final = 2
_MARGIN_SECONDS: Final = 5.0


class UserAuthorization(msgspec.Struct, frozen=True, kw_only=True):
    summary: str
    is_per_caller: bool
    entry: ServiceEntry
    sign_ins: SignIns

    async def sign(self, request: Request, subject: Subject | None, *, deadline: float) -> Request:  # noqa: ARG002
        is_use = subject is not None and subject.is_calling
        name, tokens = await self.sign_ins.tokens(self.entry, self._owner(subject), is_use=is_use)
        if tokens is not None and self.sign_ins.is_over(tokens, _MARGIN_SECONDS):
            tokens = await self.sign_ins.refreshed(self.entry, name, tokens)
        if tokens is not None:
            return with_token(request, tokens.access_token, key=tokens.proof_key, nonces=self.entry.endpoint.nonces)
        # The challenge of an MCP server lists the scopes to request. The gateway itself cannot sign in.
        if self.entry.is_mcp or subject is None:
            return request
        raise SignInRequiredError(self.sign_ins, self.entry, subject)

    async def renew(self, rejection: Rejection, subject: Subject | None, *, deadline: float) -> bool:  # noqa: ARG002
        request, headers = rejection.request, rejection.headers
        challenges = headers.getall("WWW-Authenticate", ())
        challenge = challenge_parameters(challenges)
        sent = next((field.value for field in request.headers if field.name == "Authorization"), None)
        name, tokens = await self.sign_ins.tokens(self.entry, self._owner(subject))
        if rejection.status == 403:
            if sent is None or tokens is None or challenge.get("error") != "insufficient_scope":
                return False
            raise self._required(subject, challenges, tokens)
        is_new_nonce = note_nonce(self.entry.endpoint.nonces, request.url, headers)
        if is_new_nonce and challenge.get("error") == "use_dpop_nonce" and rejection.attempt < _MAX_ATTEMPTS:
            return True
        if sent is None or tokens is None:
            raise self._required(subject, challenges)
        if sent.partition(" ")[2] != tokens.access_token:
            return rejection.attempt < _MAX_ATTEMPTS  # Another call has refreshed them.
        # The first attempt can fail because of the nonce, or with a token that another call has refreshed.
        if tokens.refresh_token is not None and rejection.attempt <= _MAX_REFRESH_ATTEMPT:
            fresh = await self.sign_ins.refreshed(self.entry, name, tokens)
            if fresh is not None:
                return True
        await self.sign_ins.forget(name, tokens)
        raise self._required(subject, challenges)

    def _owner(self, subject: Subject | None) -> str | None:
        if self.entry.config.shared:
            return SHARED
        if subject is not None and subject.key is None:
            raise self.entry.unknown_user()
        return None if subject is None else subject.key

    def _required(
        self, subject: Subject | None, challenges: Sequence[str], granted: Tokens | None = None
    ) -> SignInRequiredError:
        challenge = challenge_parameters(challenges)
        before = () if granted is None else granted.scopes
        return SignInRequiredError(
            self.sign_ins,
            self.entry,
            subject,
            scopes=list(dict.fromkeys([*before, *challenge.get("scope", "").split()])),
            metadata_url=trusted_metadata_url(challenge, self.entry.service_url) if self.entry.is_mcp else None,
            binds_tokens=asks_for_dpop(challenges),
        )
