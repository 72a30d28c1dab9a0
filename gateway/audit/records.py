"""The fields of each record in the audit log: who called what, with which arguments, and how it ended.

Records are short, because they are kept for long. Arguments are recorded as a keyed digest, unless the file asks for
all of them: the plain digest of a name or a number is found by trying. Text that a caller chose is cut, and secrets
are masked.
"""

import hmac
from collections.abc import Iterator, Mapping
from typing import Final

import orjson

from gateway import exact_json
from gateway.access.auth_error import AuthError
from gateway.config.diagnostics.problems import Problems
from gateway.config.loader import LoadedConfig
from gateway.config.models.document import Document
from gateway.errors import ErrorCode, ExecutionError, InsufficientScopeError
from gateway.json_types import Json, JsonObject
from gateway.language.scope import Inputs, Scope
from gateway.language.templates.caller import CALLER
from gateway.language.templates.templating import TextTemplate, compile_text
from gateway.tasks.task import Task
from gateway.telemetry.observer import CallFacts, CallResult, Outcome
from gateway.wire import meta

_MAX_ARGUMENT_BYTES: Final = 2**16
"""Of arguments that are recorded in full; larger ones are recorded as a digest."""
_MAX_LENGTH: Final = 256
"""Characters of a name that a caller chose."""
_MAX_URI_LENGTH: Final = 2048
_SESSION_PREFIX: Final = 8
"""Characters: enough to tell sessions and tasks apart, and too few to use one."""
_KEY_LABEL: Final = b"mcp-gateway audit arguments"
_OF_THE_PROTOCOL: Final = frozenset({meta.META, "inputResponses", "requestState", "name", "uri"})
"""Parameters that are no arguments of the call."""

_DENIED: Final = "denied"
"""Outcome of a call whose target exists, but not for the caller, who may have been told that there is none."""
_OVER_LIMIT: Final = "over_limit"
"""Outcome of a call that a rate limit or a concurrency limit refused."""


def digest_key(secret: bytes) -> bytes:
    """The key of the digests of arguments, derived from the daemon's secret."""
    # A key for this alone: nothing that the secret is used for elsewhere can be taken for such a digest.
    return hmac.digest(secret, _KEY_LABEL, "sha256")


def call_record(
    call: CallFacts, ending: CallResult, *, key: bytes, keeps_arguments: bool, labels: Mapping[str, TextTemplate]
) -> Json:
    """The record of a call that has ended; there is none of its beginning."""
    record: dict[str, Json] = {
        "event": "call",
        "id": call.id,
        "method": call.method,
        "kind": call.kind,
        "name": call.name,
        **_target(call),
        **_arguments(call, key=key, keeps_arguments=keeps_arguments),
        **_outcome(ending, is_hidden=call.is_hidden),
        "duration_ms": round(ending.seconds * 1000, 3),
        "generation": call.catalog.generation,
        **_caller(call),
    }
    if labels:
        record["labels"] = {name: _label(template, call) for name, template in labels.items()}
    return call.catalog.redactor.json(record)


def compile_labels(document: Document, problems: Problems) -> Mapping[str, TextTemplate]:
    """Compile `audit.labels`; errors go to `problems`, the problems of the whole file."""
    labels = {} if document.audit is None else document.audit.labels
    scope = Scope(inputs=Inputs(), problems=problems.at("audit", "labels"), has_callers=document.auth is not None)
    return {name: compile_text(text, scope.at(name)) for name, text in labels.items()}


def check_labels(loaded: LoadedConfig, problems: Problems) -> None:
    """Report errors in `audit.labels`."""
    compile_labels(loaded.document, problems)


def _label(template: TextTemplate, call: CallFacts) -> str | None:
    """The value of a label; None if the caller lacks a claim that it needs."""
    try:
        return template.render({CALLER: call.caller_facts})[:_MAX_LENGTH]
    except ExecutionError:
        return None


def input_request_records(call: CallFacts, methods: Mapping[str, str]) -> Iterator[Json]:
    """A record for each input request, whose methods are given by key."""
    for key, method in methods.items():
        facts = {"event": "asked", "id": call.id, "key": key[:_MAX_LENGTH], "method": method}
        yield call.catalog.redactor.json({**facts, **_caller(call)})


def confirmation_record(call: CallFacts, answer: str) -> Json:
    """The record of what a caller answered to a tool's `confirm`."""
    name = str(call.params.get("name"))[:_MAX_LENGTH]
    return call.catalog.redactor.json(
        {"event": "confirmed", "id": call.id, "name": name, "answer": answer, **_caller(call)}
    )


def task_record(task: Task) -> JsonObject:
    """The record of a task that was made, waits, goes on, or has ended."""
    caller = task.caller
    return {
        "event": "task",
        "task": task.id[:_SESSION_PREFIX],
        "name": task.tool,
        "status": task.status.value,
        "principal": caller.identity.principal,
        "realm": caller.identity.realm or None,
        "address": caller.address or None,
        "binding": caller.binding,
    }


def denial_record(denied: AuthError, *, address: str, path: str, suppressed: int) -> JsonObject:
    """The record of a denied request, and of how many before it have none. Nothing of its credential is known here."""
    facts = {"address": address, "path": path[:_MAX_LENGTH], "status": denied.status, "error": denied.error}
    return {"event": "denied", **facts, "others": suppressed}


def _target(call: CallFacts) -> dict[str, Json]:
    """The name or URI that the caller used, where it differs from the primitive's name."""
    params = call.params
    if call.method == "completion/complete":
        reference = params.get("ref")
        params = reference if isinstance(reference, Mapping) else {}
    facts: dict[str, Json] = {}
    if isinstance(uri := params.get("uri"), str):
        facts["uri"] = uri[:_MAX_URI_LENGTH]
    elif isinstance(name := params.get("name"), str) and name != call.name:
        facts["requested"] = name[:_MAX_LENGTH]
    return facts


def _arguments(call: CallFacts, *, key: bytes, keeps_arguments: bool) -> dict[str, Json]:
    """The arguments, or their digest; nothing where there are none."""
    given = {name: value for name, value in call.params.items() if name not in _OF_THE_PROTOCOL}
    # Where there is more than `arguments`, as in completion/complete, all of it belongs to the call.
    arguments = given.get("arguments") if set(given) <= {"arguments"} else given
    if not arguments:
        return {}
    try:
        # Sorted, so that the digest does not depend on the order in which a client writes.
        text = exact_json.dumps(arguments, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # deeper than orjson writes (254), which `limits.request_depth` may allow
        return {"arguments_digest": "none: the arguments are nested too deep"}
    if keeps_arguments and (kept := _kept(call, arguments, size=len(text))) is not None:
        return {"arguments": kept}
    # Keyed: whoever reads the log could try out the few values that an argument may have on a plain digest.
    return {"arguments_digest": f"hmac-sha256:{hmac.digest(key, text, 'sha256').hex()}"}


def _kept(call: CallFacts, arguments: Json, *, size: int) -> Json:
    """The arguments as they are kept in full: without the bytes of files; None where they are too long."""
    described = call.described_params.get("arguments")
    if described is not None and described != arguments:
        arguments, size = described, len(exact_json.dumps(described))
    return arguments if size <= _MAX_ARGUMENT_BYTES else None


def _outcome(ending: CallResult, *, is_hidden: bool) -> dict[str, Json]:
    error = ending.error
    code = {} if error is None else {"code": int(error.code)}
    if ending.is_over_limit:
        return {"outcome": _OVER_LIMIT, **code}
    if error is None or ending.outcome is not Outcome.PROTOCOL_ERROR:
        return {"outcome": ending.outcome.value}
    # A caller is told the same of a hidden tool as of an unknown one (MCP 2025-11-25 server/tools "Error Handling").
    is_denied = isinstance(error, InsufficientScopeError) or (is_hidden and error.code == ErrorCode.INVALID_PARAMS)
    return {"outcome": _DENIED if is_denied else ending.outcome.value, **code}


def _caller(call: CallFacts) -> dict[str, Json]:
    """The caller, as far as the transport and the client tell."""
    return {
        "principal": call.caller.principal,
        "realm": call.caller.realm or None,
        "address": call.caller.address or None,
        "binding": str(call.caller.binding),
        "client": {
            key: str(call.terms.client_info[key])[:_MAX_LENGTH]
            for key in ("name", "version")
            if key in call.terms.client_info
        },
        "revision": call.revision,
        **({} if call.caller.view is None else {"view": call.caller.view}),
        "session": None if call.session_id is None else call.session_id[:_SESSION_PREFIX],
    }
