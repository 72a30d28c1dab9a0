"""Reads all pages of a server's lists, and stores the lists for the next start."""

from collections.abc import Mapping
from typing import Final

import msgspec
import structlog

from gateway import exact_json
from gateway.config.definition_source import DocumentStore
from gateway.control_characters import strip_control_characters
from gateway.errors import ErrorCode, RpcError
from gateway.json_types import Json, JsonObject
from gateway.upstreams.client.session import Session
from gateway.upstreams.failures import BadAnswerError, NotMcpError, RequestRefusedError

log: Final = structlog.get_logger(__name__)

MAX_ITEMS: Final = 10_000
MAX_PAGES: Final = 1000
MAX_BYTES: Final = 32 * 2**20
MAX_INSTRUCTIONS: Final = 4096
"""Longer instructions of a server (in bytes) are truncated."""
CUT: Final = "truncated"
"""Reasons in `ServerLists.missing` have this prefix if the list was truncated. Such a list is not read again."""
_TOO_LARGE: Final = f"{CUT}, because all lists together exceed {MAX_BYTES // 2**20} MiB"

_LISTS: Final[Mapping[str, tuple[str, str, str]]] = {
    "tools": ("tools/list", "tools", "tools"),
    "resources": ("resources/list", "resources", "resources"),
    "templates": ("resources/templates/list", "resourceTemplates", "resources"),
    "prompts": ("prompts/list", "prompts", "prompts"),
}
"""For each list: the method, the member of the result that contains the list, and the required server capability."""


class ServerLists(msgspec.Struct, frozen=True, kw_only=True):
    """The lists of a server, with their entries as the server sent them."""

    tools: list[dict[str, Json]] = []
    resources: list[dict[str, Json]] = []
    templates: list[dict[str, Json]] = []
    prompts: list[dict[str, Json]] = []
    era: str = "legacy"
    revision: str = ""
    completes: bool = False
    subscribes: bool = False
    instructions: str = ""
    missing: dict[str, str] = {}
    """The names of missing and incomplete lists, each with a reason."""
    deviations: list[str] = []
    """See `Session.deviations`."""

    @property
    def names(self) -> frozenset[str]:
        lists = ((self.tools, "name"), (self.prompts, "name"), (self.resources, "uri"), (self.templates, "uriTemplate"))
        return frozenset(str(each.get(member)) for entries, member in lists for each in entries)


async def discover(session: Session, *, before: ServerLists | None) -> ServerLists:
    """Read all lists of a server, and truncate long ones.

    If a list cannot be read, use its older version in `before`.
    """
    found: dict[str, list[dict[str, Json]]] = {}
    missing: dict[str, str] = {}
    deviations = [*session.deviations]
    bytes_left = MAX_BYTES
    # Some servers forget to declare their capabilities.
    has_declared = any(capability in session.capabilities for *_, capability in _LISTS.values())
    for name, (method, member, capability) in _LISTS.items():
        if has_declared and capability not in session.capabilities:
            found[name] = []
            continue
        try:
            found[name], cut, bytes_left = await _all_pages(session, method, member, bytes_left)
            if cut:
                missing[name] = cut
        except (BadAnswerError, NotMcpError, RequestRefusedError) as error:
            found[name] = getattr(before, name, [])
            if has_declared:
                missing[name] = str(error)
        except RpcError as error:
            found[name] = getattr(before, name, [])
            # A server with the capability `resources` may not support templates.
            if has_declared and error.code != ErrorCode.METHOD_NOT_FOUND:
                missing[name] = f"{error.message} ({error.code})"
    if not has_declared and any(found.values()):
        deviations.append("it declares no capabilities, but returns lists")
    resources = session.capabilities.get("resources")
    return ServerLists(
        **found,
        era=session.era,
        revision=session.revision,
        completes="completions" in session.capabilities,
        subscribes=isinstance(resources, dict) and bool(resources.get("subscribe")),
        instructions=_bounded(session.instructions),
        missing=missing,
        deviations=deviations,
    )


def _bounded(instructions: str) -> str:
    data = strip_control_characters(instructions).strip().encode(errors="replace")
    # A partial character at the end is dropped.
    return data[:MAX_INSTRUCTIONS].decode(errors="ignore") + (" […]" if len(data) > MAX_INSTRUCTIONS else "")


async def _all_pages(
    session: Session, method: str, member: str, bytes_left: int
) -> tuple[list[dict[str, Json]], str, int]:
    items: list[dict[str, Json]] = []
    cursor: Json = None
    seen: set[str] = set()
    for _ in range(MAX_PAGES):
        params: JsonObject = {} if cursor is None else {"cursor": cursor}
        page = await session.request(method, params)
        # Go servers encode an empty list as null.
        listed = [] if member in page and page[member] is None else page.get(member)
        if not isinstance(listed, list):
            raise BadAnswerError(f"responds to {method} without `{member}`")
        for item in (each for each in listed if isinstance(each, dict)):
            if len(items) >= MAX_ITEMS:
                return items, f"{CUT} after {MAX_ITEMS} entries", bytes_left
            bytes_left -= len(exact_json.dumps(item))
            if bytes_left < 0:
                return items, _TOO_LARGE, bytes_left
            items.append(dict(item))
        cursor = page.get("nextCursor")
        # A repeated cursor would cause an endless loop.
        if not isinstance(cursor, str) or cursor in seen:
            return items, "", bytes_left
        bytes_left -= len(exact_json.dumps(cursor))
        if bytes_left < 0:
            return items, _TOO_LARGE, bytes_left
        seen.add(cursor)
    return items, f"{CUT} after {MAX_PAGES} pages", bytes_left


async def recall(documents: DocumentStore | None, name: str, *, server: str) -> ServerLists | None:
    """Return the stored lists of a configuration entry, or None if a server with a different digest sent them."""
    content = None if documents is None else await documents.read(f"upstream:{name}")
    try:
        record = {} if content is None else msgspec.json.decode(content, type=dict[str, Json])
        return msgspec.convert(record.get("offer"), ServerLists) if record.get("server") == server else None
    except msgspec.DecodeError:  # from an older version
        return None


async def remember(documents: DocumentStore | None, name: str, lists: ServerLists, *, server: str) -> None:
    if documents is None:
        return
    try:
        await documents.save(f"upstream:{name}", msgspec.json.encode({"server": server, "offer": lists}))
    except (OSError, ValueError) as error:
        log.warning("upstream lists not stored", upstream=name, error=str(error))
