"""Errors, grouped by their reader.

`ConfigError` is for operators, `RpcError` for the peer that sent a message, and `ExecutionError` for models that call
tools. Other exceptions are bugs: the gateway logs the exception and sends a correlation id to the peer.
"""

from collections.abc import Callable, Sequence
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Self

import msgspec

from gateway.json_types import Json, JsonObject


class ErrorCode(IntEnum):
    """Error codes of JSON-RPC 2.0 and of MCP (MCP 2026-07-28 basic/index, "Error Codes")."""

    PARSE_ERROR = -32700
    INVALID_REQUEST = -32600
    METHOD_NOT_FOUND = -32601
    INVALID_PARAMS = -32602
    INTERNAL_ERROR = -32603
    RESOURCE_NOT_FOUND = -32002
    """Only for legacy revisions. Revision 2026-07-28 uses INVALID_PARAMS instead."""
    URL_ELICITATION_REQUIRED = -32042
    """Only for revision 2025-11-25."""
    HEADER_MISMATCH = -32020
    MISSING_CLIENT_CAPABILITY = -32021
    UNSUPPORTED_PROTOCOL_VERSION = -32022
    TOO_MANY_REQUESTS = 429
    """The same number as the HTTP status (RFC 6585), because JSON-RPC does not define a code for this error."""


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"


class Location(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """A position in a source file. Lines and columns start at 1."""

    file: Path
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """An error or warning about the configuration."""

    message: str
    """The description, in one line."""
    path: str = ""
    """The path in the document, such as `tools.disk_usage.shell.command`. Empty for the whole document."""
    location: Location | None = None
    source_line: str = ""
    """The line at `location`, with literal secrets masked."""
    severity: Severity = Severity.ERROR

    def __str__(self) -> str:
        return ": ".join(part for part in (str(self.location or ""), self.path, self.message) if part)


class ConfigError(Exception):
    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)

    @classmethod
    def at(cls, path: str, message: str) -> Self:
        """Create an error with one problem about a key, flag, variable or argument."""
        return cls([Problem(path=path, message=message)])

    @property
    def errors(self) -> tuple[Problem, ...]:
        """The problems that are not warnings."""
        return tuple(problem for problem in self.problems if problem.severity is Severity.ERROR)


class RpcError(Exception):
    """A JSON-RPC error response."""

    def __init__(self, code: int, message: str, data: Json = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data

    def masked(self, text: Callable[[str], str], json: Callable[[Json], Json]) -> Self:
        """Mask secrets in the message with `text` and in the data with `json`, in place. Return this error."""
        self.message, self.data = text(self.message), json(self.data)
        return self


class ResourceError(RpcError):
    """A resource cannot be read.

    `explanation` is the message for clients that called a tool or prompt, whose content includes the resource.
    """

    def __init__(self, uri: str, *, code: int, message: str, explanation: str) -> None:
        # MCP 2025-11-25 server/resources, "Error Handling": the error data contains the URI.
        super().__init__(code, message, {"uri": uri})
        self.explanation = explanation


class ResourceNotFoundError(ResourceError):
    """No resource has this URI. Clients of revisions before 2026-07-28 receive the code -32002."""

    def __init__(self, uri: str) -> None:
        super().__init__(
            uri,
            code=ErrorCode.INVALID_PARAMS,
            message="Resource not found",
            explanation=f"No resource has the URI {uri}",
        )


class InsufficientScopeError(RpcError):
    """The caller needs more scopes (RFC 6750 §3.1)."""

    def __init__(self, scopes: frozenset[str]) -> None:
        listed = sorted(scopes)
        super().__init__(
            ErrorCode.INVALID_REQUEST,
            f"insufficient_scope: this request requires the scope{'s' if len(listed) > 1 else ''} {' '.join(listed)}",
            {"requiredScopes": listed},
        )
        self.scopes = scopes


class TooManyRequestsError(RpcError):
    """The request exceeds a rate limit. `retry_after` is in seconds."""

    def __init__(self, message: str, *, retry_after: int) -> None:
        super().__init__(ErrorCode.TOO_MANY_REQUESTS, message, {"retryAfterSeconds": retry_after})
        self.retry_after = retry_after


class MissingCapabilityError(RpcError):
    """The client lacks a capability. `capabilities` is a ClientCapabilities object."""

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
    """A repeated request contains invalid answers or an invalid `requestState`."""

    def __init__(self, message: str, data: Json = None) -> None:
        super().__init__(ErrorCode.INVALID_PARAMS, message, data)


class MalformedAnswerError(InvalidRetryError):
    """The client's answer does not match the question."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f"The response to {key!r} {reason}", {"key": key})


class ExecutionError(Exception):
    """A tool failed. The model that called the tool receives the message."""


class ArgumentsError(ExecutionError):
    """The arguments of a call are invalid."""

    def __init__(self, text: str, faults: Sequence[tuple[str, str]]) -> None:
        """Create the error. Each fault is a JSON Pointer to an argument, and the reason why it is invalid."""
        super().__init__(text)
        self.faults = tuple(faults)


class OverLimitError(ExecutionError):
    """A limit rejected the call. `retry_after` is in seconds."""

    def __init__(self, message: str, *, retry_after: int, limit: str) -> None:
        super().__init__(f"{message}. Try again in {retry_after} s.")
        self.retry_after = retry_after
        self.limit = limit
        """The configuration key of the limit, such as `tools.deploy.rate_limit`."""


class NotStoredError(Exception):
    """A record that must be durable cannot be stored. The message contains the reason."""


class StoreUnavailableError(RpcError):
    def __init__(self, problem: str) -> None:
        super().__init__(ErrorCode.INTERNAL_ERROR, problem)
