"""Builds audit records, which contain the caller, the target, the arguments and the outcome of a call.

Records are short, because audit logs are kept for a long time. By default, arguments are recorded as a keyed digest,
because an attacker could guess values from a plain digest. Caller text is truncated, and secrets are masked.
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
"""The maximum size of recorded arguments. Larger arguments are recorded as a digest."""
_MAX_LENGTH: Final = 256
"""The maximum number of recorded characters for each short text from a caller, such as a name."""
_MAX_URI_LENGTH: Final = 2048
_SESSION_PREFIX: Final = 8
"""How many characters of a session or task id are recorded: too few to use the id as a credential."""
_KEY_LABEL: Final = b"mcp-gateway audit arguments"
_OF_THE_PROTOCOL: Final = frozenset({meta.META, "inputResponses", "requestState", "name", "uri"})


def digest_key(secret: bytes) -> bytes:
    """Derive the key for argument digests from the gateway's secret."""
    # The derived key ensures that no other use of the secret produces the same digests.
    return hmac.digest(secret, _KEY_LABEL, "sha256")


def call_record(
    call: CallFacts, ending: CallResult, *, key: bytes, keeps_arguments: bool, labels: Mapping[str, TextTemplate]
) -> Json:
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
    """Compile the templates of `audit.labels`, and report errors to `problems`."""
    labels = {} if document.audit is None else document.audit.labels
    scope = Scope(inputs=Inputs(), problems=problems.at("audit", "labels"), has_callers=document.auth is not None)
    return {name: compile_text(text, scope.at(name)) for name, text in labels.items()}


def check_labels(loaded: LoadedConfig, problems: Problems) -> None:
    compile_labels(loaded.document, problems)


def _label(template: TextTemplate, call: CallFacts) -> str | None:
    """Return the value of a label, or None if the template needs a claim that the caller lacks."""
    try:
        return template.render({CALLER: call.caller_facts})[:_MAX_LENGTH]
    except ExecutionError:
        return None


def input_request_records(call: CallFacts, methods: Mapping[str, str]) -> Iterator[Json]:
    """Yield a record for each question to the client. `methods` maps the key of each question to its MCP method."""
    for key, method in methods.items():
        facts = {"event": "asked", "id": call.id, "key": key[:_MAX_LENGTH], "method": method}
        yield call.catalog.redactor.json({**facts, **_caller(call)})


def confirmation_record(call: CallFacts, answer: str) -> Json:
    name = str(call.params.get("name"))[:_MAX_LENGTH]
    return call.catalog.redactor.json(
        {"event": "confirmed", "id": call.id, "name": name, "answer": answer, **_caller(call)}
    )


def task_record(task: Task) -> JsonObject:
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
    """Return the record of a denied request. The record omits the credential and counts suppressed records."""
    facts = {"address": address, "path": path[:_MAX_LENGTH], "status": denied.status, "error": denied.error}
    return {"event": "denied", **facts, "others": suppressed}


def _target(call: CallFacts) -> dict[str, Json]:
    """Return the requested URI or, if it differs from `call.name`, the requested name."""
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
    given = {name: value for name, value in call.params.items() if name not in _OF_THE_PROTOCOL}
    # Record all parameters if any parameter is not `arguments`, as in completion/complete.
    arguments = given.get("arguments") if set(given) <= {"arguments"} else given
    if not arguments:
        return {}
    try:
        # Keys are sorted, so that the digest does not depend on their order.
        text = exact_json.dumps(arguments, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # `limits.request_depth` can allow deeper nesting than orjson supports (254).
        return {"arguments_digest": "none: the arguments are nested too deeply"}
    if keeps_arguments and (kept := _kept(call, arguments, size=len(text))) is not None:
        return {"arguments": kept}
    return {"arguments_digest": f"hmac-sha256:{hmac.digest(key, text, 'sha256').hex()}"}


def _kept(call: CallFacts, arguments: Json, *, size: int) -> Json:
    """Return the arguments with descriptions instead of file contents. Return None if the arguments are too large."""
    described = call.described_params.get("arguments")
    if described is not None and described != arguments:
        arguments, size = described, len(exact_json.dumps(described))
    return arguments if size <= _MAX_ARGUMENT_BYTES else None


def _outcome(ending: CallResult, *, is_hidden: bool) -> dict[str, Json]:
    error = ending.error
    code = {} if error is None else {"code": int(error.code)}
    if ending.limit is not None:
        return {"outcome": "over_limit", **code}
    if error is None or ending.outcome is not Outcome.PROTOCOL_ERROR:
        return {"outcome": ending.outcome.value}
    # Hidden and unknown tools return the same error (MCP 2025-11-25 server/tools "Error Handling").
    is_denied = isinstance(error, InsufficientScopeError) or (is_hidden and error.code == ErrorCode.INVALID_PARAMS)
    return {"outcome": "denied" if is_denied else ending.outcome.value, **code}


def _caller(call: CallFacts) -> dict[str, Json]:
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
