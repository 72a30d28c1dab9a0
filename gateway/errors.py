"""The three families of errors, and the shape of a configuration problem.

Why three: each has a different reader. A `ConfigError` speaks to the operator who wrote the file, an `RpcError` to the
peer that sent the message, an `ExecutionError` to the model that called a tool. Anything else is our bug: it is logged
with its traceback, and the peer learns a correlation id and nothing more.

What a call is told of a limit of number or rate is worded here for all rooms (`OverLimitError`); of a limit of time, in
`gateway/deadline.py`.
"""

from collections.abc import Callable, Sequence
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Self

import msgspec

from gateway.json_types import Json, JsonObject


class ErrorCode(IntEnum):
    """JSON-RPC 2.0 error codes, and those that MCP adds (2026-07-28 basic/index, "Error Codes")."""

    PARSE_ERROR = -32700
    INVALID_REQUEST = -32600
    METHOD_NOT_FOUND = -32601
    INVALID_PARAMS = -32602
    INTERNAL_ERROR = -32603
    RESOURCE_NOT_FOUND = -32002
    """Legacy revisions only; 2026-07-28 uses INVALID_PARAMS."""
    URL_ELICITATION_REQUIRED = -32042
    """2025-11-25 only."""
    HEADER_MISMATCH = -32020
    MISSING_CLIENT_CAPABILITY = -32021
    UNSUPPORTED_PROTOCOL_VERSION = -32022
    TOO_MANY_REQUESTS = 429
    """Our own, and so outside of the range that JSON-RPC and MCP reserve: what RFC 6585 calls it over HTTP."""


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"


class Location(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """A place in a source file; line and column count from 1."""

    file: Path
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One error or warning about what the operator wrote."""

    message: str
    """The error, what is allowed instead, and for a near miss what was probably meant. One line."""
    path: str = ""
    """The path in the document: `tools.disk_usage.shell.command`; empty for the document itself."""
    location: Location | None = None
    source_line: str = ""
    """The line at `location`, with literal secrets masked."""
    severity: Severity = Severity.ERROR

    def __str__(self) -> str:
        return ": ".join(part for part in (str(self.location or ""), self.path, self.message) if part)


class ConfigError(Exception):
    """The operator's files cannot be served. Carries every problem found, not the first."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)

    @classmethod
    def at(cls, path: str, message: str) -> Self:
        """One problem: of a key of the file, or of a flag, a variable or a word of the command line."""
        return cls([Problem(path=path, message=message)])

    @property
    def errors(self) -> tuple[Problem, ...]:
        """The problems that keep the files from being served; the others are warnings."""
        return tuple(problem for problem in self.problems if problem.severity is Severity.ERROR)


class RpcError(Exception):
    """The peer's message cannot be answered with a result: a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: Json = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data

    def masked(self, text: Callable[[str], str], json: Callable[[Json], Json]) -> Self:
        """Mask secrets in the message and the data: a plugin's error may quote what it was given."""
        self.message, self.data = text(self.message), json(self.data)
        return self


class ResourceError(RpcError):
    """A resource was not read; `explanation` says so where something else than a request for it needed it."""

    def __init__(self, uri: str, *, code: int, message: str, explanation: str) -> None:
        # MCP 2025-11-25 server/resources, "Error Handling": the data of the error names the URI.
        super().__init__(code, message, {"uri": uri})
        self.explanation = explanation


class ResourceNotFoundError(ResourceError):
    """No resource has this URI. Its code depends on the revision (PROTOCOL: -32002 before 2026-07-28)."""

    def __init__(self, uri: str, *, hint: str = "") -> None:
        """`hint` may say what became of it."""
        super().__init__(
            uri,
            code=ErrorCode.INVALID_PARAMS,
            message=f"Resource not found{hint}",
            explanation=f"No resource has the URI {uri}{hint}",
        )


class ResourceUnreadableError(ResourceError):
    """There is such a resource, and its backend failed, or not in time."""

    def __init__(self, uri: str, reason: str) -> None:
        super().__init__(
            uri,
            code=ErrorCode.INTERNAL_ERROR,
            message=reason,
            explanation=f"The resource {uri} could not be read: {reason}",
        )


class InsufficientScopeError(RpcError):
    """The caller may see this primitive and not use it (RFC 6750 §3.1); with more scopes it may try again."""

    def __init__(self, scopes: frozenset[str]) -> None:
        listed = sorted(scopes)
        super().__init__(
            ErrorCode.INVALID_REQUEST,
            f"insufficient_scope: this needs the scope{'s' if len(listed) > 1 else ''} {' '.join(listed)}",
            {"requiredScopes": listed},
        )
        self.scopes = scopes


class TooManyRequestsError(RpcError):
    """The request is more than a limit allows now."""

    def __init__(self, message: str, *, retry_after: int) -> None:
        super().__init__(ErrorCode.TOO_MANY_REQUESTS, message, {"retryAfterSeconds": retry_after})
        self.retry_after = retry_after
        """Seconds."""


class MissingCapabilityError(RpcError):
    """The client did not declare what the primitive requires; `capabilities` has the shape of ClientCapabilities."""

    def __init__(self, capabilities: JsonObject, *, because: str = "This") -> None:
        super().__init__(
            ErrorCode.MISSING_CLIENT_CAPABILITY,
            f"{because} needs a client with {_named(capabilities)}",
            {"requiredCapabilities": dict(capabilities)},
        )
        self.capabilities = capabilities


def _named(capabilities: JsonObject) -> str:
    extensions = sorted(capabilities.get("extensions", ()))
    others = sorted(capabilities.keys() - {"extensions"})
    several = {"the capability": "the capabilities", "the extension": "the extensions"}
    named = zip(several, (others, extensions), strict=True)
    return " and ".join(
        f"{noun if len(names) == 1 else several[noun]} {' and '.join(names)}" for noun, names in named if names
    )


class InvalidRetryError(RpcError):
    """A retry brings answers or a `requestState` that cannot be: -32602."""

    def __init__(self, message: str, data: Json = None) -> None:
        super().__init__(ErrorCode.INVALID_PARAMS, message, data)


class MalformedAnswerError(InvalidRetryError):
    """The client's answer is not one to the question."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f"The answer to {key!r} {reason}", {"key": key})


class ExecutionError(Exception):
    """A tool could not do what was asked; its text is written for the model, which may mend its call."""


class ArgumentsError(ExecutionError):
    """The arguments of a call do not fit its tool."""

    def __init__(self, text: str, faults: Sequence[tuple[str, str]]) -> None:
        """`text` says what `faults` says: each place, as a JSON Pointer, and why its value does not fit."""
        super().__init__(text)
        self.faults = tuple(faults)


class OverLimitError(ExecutionError):
    """More than a limit allows now. Says which limit, and when to come back."""

    def __init__(self, message: str, *, retry_after: int, limit: str) -> None:
        super().__init__(f"{message}. Try again in {retry_after} s.")
        self.retry_after = retry_after
        """Seconds."""
        self.limit = limit
        """Its name in the file: `limits.rate_limit`, `tools.deploy.rate_limit`."""


class StoreAwayError(RpcError):
    """The store of all replicas cannot be used now, and what was asked for needs it."""

    def __init__(self, problem: str) -> None:
        super().__init__(ErrorCode.INTERNAL_ERROR, problem)
