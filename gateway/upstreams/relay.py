"""Executors that relay calls to an upstream server.

A modern server (2026-07-28) returns input requests as an `input_required` result, and the gateway repeats the request
with the responses. A legacy server (up to 2025-11-25) sends input requests during the call. If the client is modern,
the call is then parked (`parked_calls`).

Members of the wrong type are removed from results and list entries, because clients would refuse the whole result.
"""

from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Final

import msgspec

from gateway import exact_json
from gateway.catalog.lock import LockedPages
from gateway.catalog.primitives import Completer, Suggestions
from gateway.config.models.definition_keys import HINTS
from gateway.errors import ErrorCode, ResourceNotFoundError, RpcError
from gateway.executors.invocation import (
    Executor,
    Explanation,
    FunctionExecutor,
    Invocation,
    Outcome,
    Relayed,
    sole_text,
)
from gateway.executors.output.size_limit import text_block
from gateway.executors.sign_in import with_sign_in
from gateway.json_types import ABSENT, Json, JsonObject
from gateway.language.uris.matcher import URI
from gateway.upstreams.client.relayed_call import MAX_TEXT, RelayedCall
from gateway.upstreams.failures import UpstreamError
from gateway.upstreams.parked_calls import ParkedCalls
from gateway.upstreams.pool import SessionPool
from gateway.upstreams.server import UpstreamServer
from gateway.wire import meta
from gateway.wire.headers import HeaderParameter
from gateway.wire.revisions import Era

_MAX_ROUNDS: Final = 32
# MCP 2026-07-28 basic/patterns/mrtr, "Supported Requests": completions do not support input requests.
_COMPLETE: Final = "completion/complete"
_OURS: Final = "io.modelcontextprotocol/"

_Types = Mapping[str, type | tuple[type, ...]]

_ENTRY: Final[_Types] = {
    **dict.fromkeys(("name", "title", "description", "mimeType"), str),
    **dict.fromkeys(("inputSchema", "outputSchema", "annotations", "_meta"), dict),
    **dict.fromkeys(("icons", "arguments"), list),
    "size": int,
}
_ANNOTATIONS: Final[_Types] = {
    **dict.fromkeys(HINTS.values(), bool),
    **dict.fromkeys(("title", "lastModified"), str),
    "audience": list,
    "priority": (int, float),
}
_SCHEMA: Final[_Types] = {"properties": dict, "required": list}
_ARGUMENT: Final[_Types] = {"name": str, "title": str, "description": str, "required": bool}
_ICON: Final[_Types] = {"src": str, "mimeType": str, "sizes": list, "theme": str}
_WITH_URIS: Final = frozenset({"content", "contents", "messages"})
_BLOCKS: Final[Mapping[Json, Mapping[str, type]]] = {
    "text": {"text": str},
    "image": {"data": str, "mimeType": str},
    "audio": {"data": str, "mimeType": str},
    "resource": {"resource": dict},
    "resource_link": {"uri": str, "name": str},
}
"""The required members of each type of content block. Other blocks become text."""
_RESULT: Final = frozenset({"content", "structuredContent"})
_OF_ANY_RESULT: Final = frozenset({"_meta", "isError", "resultType"})


class Relay(msgspec.Struct, frozen=True, kw_only=True):
    servers: Mapping[str, UpstreamServer]
    """The current servers by name. Configuration reloads update this mapping."""
    parked: ParkedCalls
    upstream: str
    uri_prefix: str
    ask_timeout: timedelta
    pages: LockedPages | None = None
    """The digests of UI resources in the lock file, or None if the lock is not enforced."""

    async def request(
        self,
        method: str,
        params: JsonObject,
        invocation: Invocation,
        *,
        is_repeatable: bool = False,
        mirrored: tuple[HeaderParameter, ...] = (),
    ) -> JsonObject:
        """Send a request, forward input requests of the server to the client, and return the complete result.

        Raise UpstreamError if the server does not return a result, or RpcError if the server returns an error.
        """
        server = self.servers.get(self.upstream)
        if server is None:
            raise UpstreamError(f"{self.upstream} is no longer configured")
        request = partial(
            self._request, server.pool, method, params, invocation, is_repeatable=is_repeatable, mirrored=mirrored
        )
        return await (with_sign_in(invocation, request) if server.pool.spec.has_sign_in else request())

    async def _request(  # noqa: PLR0913 - the parts of a request
        self,
        pool: SessionPool,
        method: str,
        params: JsonObject,
        invocation: Invocation,
        *,
        is_repeatable: bool,
        mirrored: tuple[HeaderParameter, ...],
    ) -> JsonObject:
        call = RelayedCall(invocation, pool.config, upstream=self.upstream, may_ask=method != _COMPLETE)
        send = partial(pool.request, method, is_repeatable=is_repeatable, mirrored=mirrored)
        async with invocation.deadline.limit(self.upstream):
            # The era is only known once the session is open.
            session = await pool.session_for(call)
            if not call.capabilities or (session.era is Era.LEGACY and not call.is_modern):
                result = await send(params, call=call)
            elif session.era is Era.MODERN:
                result = await self._rounds(lambda more: send({**params, **more}, call=call), invocation)
            else:
                result = await self.parked.request(
                    invocation,
                    pool.config,
                    lambda parked: send(params, call=parked),
                    upstream=self.upstream,
                    ask_timeout=self.ask_timeout,
                    is_repeatable=is_repeatable,
                )
        # Since 2026-07-28, results have a `resultType`.
        kind = result.get("resultType", "complete")
        if kind == "input_required":
            raise UpstreamError(f"{self.upstream} requires input that this client cannot provide")
        if kind != "complete":
            raise UpstreamError(f"{self.upstream} sent a result of an unknown type")
        return call.with_notes(_with_prefix(result, self.uri_prefix))

    async def _rounds(self, send: Callable[[JsonObject], Awaitable[JsonObject]], invocation: Invocation) -> JsonObject:
        more: JsonObject = {}
        context = invocation.context
        for number in range(_MAX_ROUNDS):
            brought: list[JsonObject] = []

            async def round_(more: JsonObject = more, brought: list[JsonObject] = brought) -> JsonObject:
                result = await send(more)
                if result.get("resultType") != "input_required":
                    brought.append(result)
                    return {}
                return {name: result[name] for name in ("inputRequests", "requestState") if name in result}

            wanted = await context.once(f"{self.upstream}.round{number}", round_)
            if brought:
                return brought[0]
            questions = _questions(wanted.get("inputRequests") or {}, self.upstream)
            more = {}
            if questions:
                # A server can use the same keys in several rounds.
                keys = {f"{self.upstream}.{number}.{key}": key for key in questions}
                answers = await context.ask_before({ours: questions[key] for ours, key in keys.items()})
                more = {"inputResponses": {key: answers[ours] for ours, key in keys.items()}}
            if "requestState" in wanted:
                more = {**more, "requestState": wanted["requestState"]}
        raise UpstreamError(f"{self.upstream} sends too many input requests")


def tool_relay(
    relay: Relay, name: str, *, is_repeatable: bool, mirrored: tuple[HeaderParameter, ...], is_task: bool
) -> Executor:
    """Return an executor that calls a tool. With `is_task`, each call is a task (2025-11-25 basic/utilities/tasks)."""

    async def execute(invocation: Invocation) -> Outcome:
        params: dict[str, Json] = {"name": name, "arguments": invocation.arguments}
        if is_task:
            params["task"] = {"ttl": int(invocation.deadline.seconds * 1000)}
        result = await relay.request("tools/call", params, invocation, is_repeatable=is_repeatable, mirrored=mirrored)
        return Relayed(
            content=tuple(_well_typed_blocks(_content(result))),
            structured=result.get("structuredContent", ABSENT),
            is_error=result.get("isError") in (True, "true"),
            meta=_forwarded_meta(result),
        )

    return FunctionExecutor(lambda _: Explanation(does=f"calls `{name}` of the upstream {relay.upstream}"), execute)


def sign_in_relay(relay: Relay) -> Executor:
    """Return an executor that signs a user in to a server whose tools are still unknown."""
    explanation = Explanation(does=f"signs in to the upstream {relay.upstream}")

    async def execute(invocation: Invocation) -> Outcome:
        await relay.request("tools/list", {}, invocation, is_repeatable=True)
        text = f"You are signed in to {relay.upstream}. List the tools again."
        return Relayed(content=(text_block(text),))

    return FunctionExecutor(lambda _: explanation, execute)


class ResourceRelay(msgspec.Struct, frozen=True, kw_only=True):
    """Reads one resource of an upstream server, or any resource that matches a URI template."""

    relay: Relay
    template: str
    is_template: bool = False

    def explain(self, _invocation: Invocation) -> Explanation:
        return Explanation(does=f"reads `{self.template}` of the upstream {self.relay.upstream}")

    async def execute(self, invocation: Invocation) -> Outcome:
        # Expanding the template could change the spelling of the URI.
        uri = invocation.arguments[URI].removeprefix(self.relay.uri_prefix) if self.is_template else self.template
        try:
            result = await self.relay.request("resources/read", {"uri": uri}, invocation, is_repeatable=True)
        except RpcError as error:
            # The code is -32002 until 2025-11-25, and -32602 with the URI in `data` since 2026-07-28.
            if error.code == ErrorCode.RESOURCE_NOT_FOUND or (
                isinstance(error.data, dict) and error.data.get("uri") == uri
            ):
                raise ResourceNotFoundError(uri) from error
            raise
        if self.relay.pages is not None:
            self.relay.pages.check(f"{self.relay.uri_prefix}{uri}", result.get("contents"))
        contents = (_typed(each, _ENTRY) for each in _mappings(result.get("contents")) if _are_contents(each))
        return Relayed(content=tuple(contents), meta=_forwarded_meta(result))


def prompt_relay(relay: Relay, name: str, description: str | None) -> Executor:

    async def execute(invocation: Invocation) -> Outcome:
        params = {"name": name, "arguments": dict(invocation.arguments)}
        result = await relay.request("prompts/get", params, invocation, is_repeatable=True)
        said = result.get("description")
        return Relayed(
            content=tuple(_well_typed_messages(result.get("messages"))),
            meta=_forwarded_meta(result),
            description=description or (said[:MAX_TEXT] if isinstance(said, str) else None),
        )

    does = f"gets the prompt `{name}` of the upstream {relay.upstream}"
    return FunctionExecutor(lambda _: Explanation(does=does), execute)


def completion_relay(relay: Relay, reference: JsonObject, argument: str) -> Completer:
    async def complete(value: str, arguments: Mapping[str, str], invocation: Invocation) -> Suggestions:
        params: dict[str, Json] = {"ref": reference, "argument": {"name": argument, "value": value}}
        if arguments:
            params["context"] = {"arguments": dict(arguments)}
        result = await relay.request(_COMPLETE, params, invocation, is_repeatable=True)
        found = result.get("completion")
        completion = found if isinstance(found, dict) else {}
        values, total = completion.get("values"), completion.get("total")
        listed = values if isinstance(values, list) else []
        return Suggestions(
            values=[each for each in listed if isinstance(each, str) and len(each) <= MAX_TEXT],
            total=total if type(total) is int else None,
            has_more=completion.get("hasMore") is True,
            meta=_forwarded_meta(result),
        )

    return complete


def _questions(value: Json, upstream: str) -> Mapping[str, JsonObject]:
    if not isinstance(value, dict) or not all(isinstance(each, dict) for each in value.values()):
        raise UpstreamError(f"{upstream} sent invalid `inputRequests`")
    return value


def _forwarded_meta(result: JsonObject) -> JsonObject:
    fields = result.get(meta.META)
    members = fields.items() if isinstance(fields, dict) else ()
    return {name: value for name, value in members if not name.startswith(_OURS)}


def well_typed(entry: JsonObject) -> dict[str, Json]:
    """Return a list entry or content block without the members that have a wrong type."""
    found = _typed(entry, _ENTRY)
    if "annotations" in found:
        found["annotations"] = _typed(found["annotations"], _ANNOTATIONS)
    # Some servers write an empty object as a list. Only the root of a schema is checked.
    for member in ("inputSchema", "outputSchema"):
        if member in found:
            found[member] = _typed(found[member], _SCHEMA)
    for member, types, key in (("arguments", _ARGUMENT, "name"), ("icons", _ICON, "src")):
        if member in found:
            items = [_typed(item, types) for item in _mappings(found[member])]
            found[member] = [item for item in items if item.get(key)]
    return found


def _content(result: JsonObject) -> Json:
    if _RESULT & result.keys():
        return result.get("content")
    # Some servers return the value of the tool itself, or `toolResult` of 2024-10-07.
    return {name: value for name, value in result.items() if name not in _OF_ANY_RESULT} or None


def _well_typed_blocks(value: Json) -> list[JsonObject]:
    listed = value if isinstance(value, list) else [] if value is None else [value]
    blocks = [each if isinstance(each, dict) else _as_text(each) for each in listed]
    if sole_text(blocks) is not None:
        return blocks  # the most common result
    return [_block(each) for each in blocks]


def _well_typed_messages(value: Json) -> list[JsonObject]:
    return [
        {**each, "content": _block(each["content"])}
        for each in _mappings(value)
        # A tuple, because a role of the wrong type can be unhashable.
        if each.get("role") in ("user", "assistant") and isinstance(each.get("content"), dict)
    ]


def _mappings(value: Json) -> list[JsonObject]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _block(block: JsonObject) -> JsonObject:
    kind = block.get("type")
    needed = _BLOCKS.get(kind) if isinstance(kind, str) else None
    is_whole = needed is not None and all(isinstance(block.get(name), type_) for name, type_ in needed.items())
    if not is_whole or (kind == "resource" and not _are_contents(block["resource"])):
        # Clients refuse a whole result that contains an invalid block. Base64 is of no use to models.
        if kind in ("image", "audio"):
            return text_block(f"[an invalid {kind} is left out]")
        return _as_text(block.get("text") if kind == "text" else block)
    return well_typed(block)


def _as_text(value: Json) -> JsonObject:
    return text_block(value if isinstance(value, str) else "" if value is None else exact_json.dumps(value).decode())


def _are_contents(value: JsonObject) -> bool:
    return isinstance(value.get("uri"), str) and any(isinstance(value.get(name), str) for name in ("text", "blob"))


def _typed(value: JsonObject, types: _Types) -> dict[str, Json]:
    return {name: member for name, member in value.items() if isinstance(member, types.get(name, object))}


def _with_prefix(result: JsonObject, prefix: str) -> JsonObject:
    if not prefix:
        return result
    return {name: _prefixed(value, prefix) if name in _WITH_URIS else value for name, value in result.items()}


def _prefixed(value: Json, prefix: str) -> Json:
    match value:
        case list():
            return [_prefixed(each, prefix) for each in value]
        case {"type": "resource", "resource": {"uri": str()} as resource}:
            return {**value, "resource": _prefixed(resource, prefix)}
        case {"content": dict() as content}:
            return {**value, "content": _prefixed(content, prefix)}
        case {"uri": str(uri)}:
            return {**value, "uri": f"{prefix}{uri}"}
    return value
