"""Asks the user to sign in to an external service during a call."""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from gateway.errors import ExecutionError
from gateway.executors.invocation import Invocation
from gateway.net.sign_ins import SignInRequiredError

T = TypeVar("T")

_MAX_REPETITIONS: Final = 3
"""The maximum number of repetitions per call. A service can require another sign-in to grant more scopes."""


async def with_sign_in(invocation: Invocation, work: Callable[[], Awaitable[T]]) -> T:
    """Run `work` and return its result. If a service requires a sign-in, ask the user and run `work` again.

    Repeating `work` is safe, because a service does not process a request without the required sign-in.

    Raises:
        ExecutionError: the user did not sign in, or the client cannot ask the user (the error then contains the link).
    """
    sign_ins = 0
    for attempt in range(_MAX_REPETITIONS + 1):
        try:
            return await work()
        except ExecutionError as error:
            required = _required(error)
            if required is None or attempt == _MAX_REPETITIONS:
                raise
        subject = required.subject
        # Otherwise, the call has joined the failed attempt of another caller to connect to the service.
        if subject is not None and subject.key == invocation.call.caller.subject.key:
            await _sign_in(invocation, required, key=f"sign_in.{required.entry.name}.{sign_ins}")
            sign_ins += 1
    raise AssertionError("unreachable")


def _required(error: BaseException | None) -> SignInRequiredError | None:
    """Return the SignInRequiredError among an error and its causes, or None."""
    while error is not None and not isinstance(error, SignInRequiredError):
        error = None if error.__cause__ is error else error.__cause__
    return error


async def _sign_in(invocation: Invocation, required: SignInRequiredError, *, key: str) -> None:
    title, context, sign_ins = required.entry.title, invocation.context, required.sign_ins
    elicitation = context.client_capabilities.get("elicitation")
    if not isinstance(elicitation, dict) or "url" not in elicitation:
        link = await sign_ins.link(required)
        raise ExecutionError(f"{title} requires that you sign in. Open {link} in your browser, then call again")
    # When an MCP 2026-07-28 client retries the call, the request state restores the link of the first attempt.
    link = await context.once(f"{key}.link", lambda: sign_ins.link(required))
    answer = await context.elicit_url(key, f"Sign in to {title} to continue.", link)
    if answer.action != "accept":
        raise ExecutionError(f"{title} requires that you sign in, and you declined")
    invocation.deadline.pause()
    invocation.permit.suspend()
    try:
        await sign_ins.wait(link)
    finally:
        # `resume` would wait for a free permit, but a cancelled call must end.
        invocation.permit.force_resume()
        invocation.deadline.resume()
