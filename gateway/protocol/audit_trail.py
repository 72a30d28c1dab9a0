"""Turns what happens into records of the audit log: who did what, with what, and how it ended.

Kept short, since it is kept for long. Arguments are there as a keyed digest, unless the file asks for all of them: a
plain digest of a name or a number is found by trying. What a caller chose itself is cut, and secrets are masked.
"""

import hmac
from collections.abc import Callable, Mapping
from typing import Final

import orjson

from gateway.catalog.primitives import Catalog
from gateway.errors import ErrorCode, InsufficientScopeError
from gateway.json_types import Json, JsonObject
from gateway.protocol import meta
from gateway.protocol.calls import Call, EndedAs, Ending
from gateway.protocol.exchange import Caller
from gateway.protocol.questions import Question
from gateway.protocol.request import RequestContext

Append = Callable[[JsonObject], None]

MOST_ARGUMENT_BYTES: Final = 2**16
"""Of arguments that are kept; of larger ones the digest is."""
_LONGEST: Final = 256
"""Characters of a name that a caller chose."""
_LONGEST_URI: Final = 2048
_SESSION_PREFIX: Final = 8
"""Characters: enough to tell sessions apart, and too few to use one."""
_LABEL: Final = b"mcp-gateway audit arguments"
_OF_THE_PROTOCOL: Final = frozenset({meta.META, "inputResponses", "requestState", "name", "uri"})
"""Parameters that are not what was called with."""

DENIED: Final = "denied"
"""What was asked for exists, and the caller may not use it; it may have been told that there is no such thing."""
OVER_LIMIT: Final = "over_limit"
"""It did not run: a rate, or a number of calls at once, was reached."""


class AuditTrail:
    """An observer of calls, and a witness of what they ask."""

    def __init__(self, append: Append, *, whole: Callable[[], Catalog], keeps_arguments: bool, key: bytes) -> None:
        """Record nothing yet.

        Args:
            append: takes a record; must not block.
            whole: the catalog that is served, with what some callers may not see.
            keeps_arguments: whether arguments are kept in full.
            key: what digests are made with, whatever else it is used for.
        """
        self._append: Final = append
        self._whole: Final = whole
        self._keeps_arguments: Final = keeps_arguments
        self._key: Final = hmac.digest(key, _LABEL, "sha256")

    def began(self, call: Call) -> None:
        """Nothing: a call is one record, at its end."""

    def ended(self, call: Call, ending: Ending) -> None:
        request = call.request
        record: dict[str, Json] = {
            "event": "call",
            "id": call.id,
            "method": call.method,
            "kind": call.kind,
            "name": call.name,
            **self._asked_for(call),
            **self._with(request),
            **_outcome(ending, is_hidden=call.name is None and self._is_hidden(call)),
            "duration_ms": round(ending.seconds * 1000, 3),
            "generation": request.catalog.generation,
            **_who(request),
        }
        self._append(request.catalog.redactor.json(record))

    def asked(self, request: RequestContext, questions: Mapping[str, Question]) -> None:
        for key, question in questions.items():
            self._record(
                request, {"event": "asked", "id": request.call_id, "key": key[:_LONGEST], "method": question.method}
            )

    def confirmed(self, request: RequestContext, answer: str) -> None:
        name = str(request.params.get("name"))[:_LONGEST]
        self._record(request, {"event": "confirmed", "id": request.call_id, "name": name, "answer": answer})

    def _record(self, request: RequestContext, facts: JsonObject) -> None:
        self._append(request.catalog.redactor.json({**facts, **_who(request)}))

    @staticmethod
    def _asked_for(call: Call) -> dict[str, Json]:
        """What the caller called it, where that says more than its name."""
        params = call.request.params
        if call.method == "completion/complete":
            reference = params.get("ref")
            params = reference if isinstance(reference, Mapping) else {}
        facts: dict[str, Json] = {}
        if isinstance(uri := params.get("uri"), str):
            facts["uri"] = uri[:_LONGEST_URI]
        elif isinstance(name := params.get("name"), str) and name != call.name:
            facts["requested"] = name[:_LONGEST]
        return facts

    def _with(self, request: RequestContext) -> dict[str, Json]:
        """The arguments, or their digest; nothing where there are none."""
        given = {name: value for name, value in request.params.items() if name not in _OF_THE_PROTOCOL}
        arguments = given.get("arguments") if set(given) <= {"arguments"} else given
        if not arguments:
            return {}
        text = orjson.dumps(arguments, option=orjson.OPT_SORT_KEYS)
        if self._keeps_arguments and len(text) <= MOST_ARGUMENT_BYTES:
            return {"arguments": arguments}
        return {"arguments_digest": f"hmac-sha256:{hmac.digest(self._key, text, 'sha256').hex()}"}

    def _is_hidden(self, call: Call) -> bool:
        """Whether there is what was asked for, for others."""
        if call.request.catalog.view_of is None:
            return False
        catalog, params = self._whole(), call.request.params
        name, uri = params.get("name"), params.get("uri")
        match call.method:
            case "tools/call":
                return isinstance(name, str) and catalog.tool(name) is not None
            case "prompts/get":
                return isinstance(name, str) and catalog.prompt(name) is not None
            case _:
                return isinstance(uri, str) and catalog.resource(uri) is not None


def _outcome(ending: Ending, *, is_hidden: bool) -> dict[str, Json]:
    error = ending.error
    code = {} if error is None else {"code": int(error.code)}
    if ending.is_over_limit:
        return {"outcome": OVER_LIMIT, **code}
    if error is None or ending.outcome is not EndedAs.PROTOCOL_ERROR:
        return {"outcome": ending.outcome.value}
    is_denied = isinstance(error, InsufficientScopeError) or (is_hidden and error.code == ErrorCode.INVALID_PARAMS)
    return {"outcome": DENIED if is_denied else ending.outcome.value, **code}


def _who(request: RequestContext) -> dict[str, Json]:
    caller = request.exchange.caller
    session = request.session
    return {
        **who_called(caller),
        "client": {
            key: str(request.client_info[key])[:_LONGEST] for key in ("name", "version") if key in request.client_info
        },
        "revision": request.revision,
        "session": None if session is None else session.id[:_SESSION_PREFIX],
    }


def who_called(caller: Caller) -> dict[str, Json]:
    """Who sent a message, as far as the transport knows."""
    identity = caller.identity
    return {
        "principal": identity.principal,
        "realm": identity.realm or None,
        "address": caller.address or None,
        "binding": caller.binding.value,
    }
