"""Asks the user to sign in to an external service during a call."""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from gateway.errors import ExecutionError
from gateway.executors.invocation import Invocation
from gateway.net.sign_ins import SignInRequiredError

T = TypeVar("T")

_MAX_ROUNDS: Final = 3
"""The maximum number of sign-ins per call. A service can ask again for more scopes."""


async def with_sign_in(invocation: Invocation, work: Callable[[], Awaitable[T]]) -> T:
    """Return the result of `work`. If a service requires a sign-in, ask the user and run `work` again.

    A service does not process a request that requires a sign-in, so `work` can be repeated.

    Raises:
        ExecutionError: the user cannot be asked, declined, or did not sign in. The text contains the link.
    """
    for number in range(_MAX_ROUNDS + 1):
        try:
            return await work()
        except ExecutionError as error:
            required = _required(error)
            if required is None or number == _MAX_ROUNDS:
                raise
        await _sign_in(invocation, required, key=f"sign_in.{required.entry.name}.{number}")
    raise AssertionError("unreachable")


def _required(error: BaseException | None) -> SignInRequiredError | None:
    """Search an error and its causes for a missing sign-in."""
    while error is not None and not isinstance(error, SignInRequiredError):
        error = None if error.__cause__ is error else error.__cause__
    return error


async def _sign_in(invocation: Invocation, required: SignInRequiredError, *, key: str) -> None:
    title, context, sign_ins = required.entry.title, invocation.context, required.sign_ins
    elicitation = context.client_capabilities.get("elicitation")
    if not isinstance(elicitation, dict) or "url" not in elicitation:
        link = await sign_ins.link(required)
        raise ExecutionError(f"{title} requires that you sign in. Open {link} in your browser, then call again")
    # A retry of 2026-07-28 restores the link of the first attempt from its request state.
    link = await context.once(f"{key}.link", lambda: sign_ins.link(required))
    answer = await context.elicit_url(key, f"Sign in to {title} to continue.", link)
    if answer.action != "accept":
        raise ExecutionError(f"{title} requires that you sign in, and you declined")
    invocation.deadline.pause()
    invocation.permit.suspend()
    try:
        await sign_ins.wait(link)
    finally:
        # Not `resume`, which waits: a cancelled call must end.
        invocation.permit.force_resume()
        invocation.deadline.resume()
