"""Authorization: what yields the header field `Authorization` of each request to one service."""

from typing import Protocol

from gateway.access.credentials import Credential


class Authorization(Protocol):
    """A way to sign in to one service."""

    @property
    def summary(self) -> str:
        """Says how, without secrets."""

    @property
    def is_per_caller(self) -> bool:
        """Whether requests of two callers are signed in as two."""

    async def header(self, caller_token: Credential | None, *, deadline: float) -> str:
        """Return the value of the header field Authorization for a request of this caller.

        Args:
            caller_token: the verified access token of the caller, to be exchanged; None of one who has none.
            deadline: when it is wanted, on the event loop's clock.

        Raises:
            ExecutionError: there is none; the text is for the model, and has no secrets.
            DeadlineExceededError: there was none by the deadline.
        """

    def reject(self, header: str, caller_token: Credential | None) -> bool:
        """Note that a request with this value was answered 401; return whether to ask for another, and try once more.

        Of many requests that are answered so at once, the first has the token fetched anew, for all of them.
        """
