"""Defines the compiled tools, resources, resource templates and prompts ("primitives") as immutable values.

Each `definition` has the format of MCP 2026-07-28. `gateway.wire.downgrade` converts definitions to older revisions.
"""

import base64
import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import ClassVar, Final

import msgspec
import orjson

from gateway import exact_json
from gateway.catalog.arguments import CompiledArguments
from gateway.config.models.definition_keys import ASK_TIMEOUT, ToolTask
from gateway.config.models.definitions import PromptArgument
from gateway.config.models.quantities import RateLimit
from gateway.executors.invocation import Blocks, Executor, Invocation, Outcome, Relayed, ToolResult
from gateway.json_types import Json, JsonObject, empty
from gateway.language.templates.templating import TextTemplate
from gateway.plugin import ListKind


class RequiredScopes(msgspec.Struct, frozen=True, kw_only=True):
    scopes: frozenset[str] = frozenset()
    """Callers need all of these scopes."""
    is_visible: bool = False
    """Whether lists show the primitive to callers without the scopes, so that they can request the scopes."""

    def is_listed_for(self, held: frozenset[str]) -> bool:
        return self.is_visible or self.scopes <= held


EVERYBODY: Final = RequiredScopes()


ShapeResult = Callable[[Outcome, Invocation], ToolResult]

ShapeContents = Callable[[Outcome, str], Sequence[JsonObject]]
"""Converts a resource's outcome and URI to `ReadResourceResult.contents`: UTF-8 data as text, other data as a blob.

Raises:
    ExecutionError: the outcome is a failure or exceeds `max_size`.
"""


class Suggestions(msgspec.Struct, frozen=True, kw_only=True):
    values: Sequence[str]
    total: int | None
    """Number of all matching values, even if `values` contains only some of them. None if the number is unknown."""
    has_more: bool = False
    meta: JsonObject = msgspec.field(default_factory=empty)


Completer = Callable[[str, Mapping[str, str], Invocation], Awaitable[Suggestions]]
"""Returns suggestions for the text that the user has typed and the values of the other arguments. Values that start
with the text come first, followed by values that only contain the text, ignoring case.
"""


class Primitive(msgspec.Struct, frozen=True, kw_only=True):
    """Fields that tools, resources, resource templates and prompts share."""

    kind: ClassVar[ListKind]
    """Section of the file that defines the primitive. Resource templates are in the section "resources"."""
    name: str
    definition: JsonObject
    executor: Executor
    timeout: timedelta
    concurrency: int
    queue: int
    rate_limit: RateLimit | None = None
    rate_key: TextTemplate | None = None
    """Callers with equal keys share one rate limit. If None, each caller has a separate limit."""
    caller_facts: frozenset[str] = frozenset()
    """Facts of the caller that templates use: `subject`, `claims.team`, or `claims` for all claims."""
    ask_timeout: timedelta = ASK_TIMEOUT
    """Time limit for an answer to an input request."""
    access: RequiredScopes = EVERYBODY
    aliases: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    upstream: str = ""
    """Name of the upstream that serves the primitive, or "" for other primitives."""
    required_capabilities: JsonObject = msgspec.field(default_factory=empty)
    """Required client capabilities, as in ClientCapabilities."""
    version: str = ""
    """Digest of the definition in the files and of the plugin's code, including changes that clients cannot see."""
    digest: bytes = b""
    """Digest of the definition as clients see it, or b"" until it is known."""


class Tool(Primitive, frozen=True, kw_only=True):
    kind = "tools"
    confirm: TextTemplate | None = None
    """The question that the user must confirm before each call, or None."""
    is_confirm_optional: bool = False
    """Whether the tool runs without confirmation if the client cannot ask the user."""
    arguments: CompiledArguments
    result: ShapeResult
    name_in_app: str = ""
    """Name of the tool in the upstream's pages (MCP Apps), or "" if pages cannot call the tool."""
    task: ToolTask | None = None
    """How calls become tasks, with the defaults of the file. None if calls never become tasks."""


class Skill(msgspec.Struct, frozen=True, kw_only=True):
    entry: JsonObject
    """Entry of `skills/list` and `skills/get`: URI of the SKILL.md, front matter, digests of the files."""
    directories: Mapping[str, tuple[JsonObject, ...]]
    """Maps the URI of each directory to the definitions of its entries."""
    index: int = 0

    @property
    def name(self) -> str:
        return str(self.entry["frontmatter"]["name"])


class _Readable(Primitive, frozen=True, kw_only=True):
    kind = "resources"
    contents: ShapeContents
    cache_ttl: timedelta | None = None
    is_shared: bool = True
    """Whether the content is the same for all callers, and can be cached for all of them."""


class Resource(_Readable, frozen=True, kw_only=True):
    """A resource with a fixed URI: a definition, a file that a glob matches, or a file of a skill."""

    uri: str
    skill: Skill | None = None
    """The skill that a SKILL.md describes, or None for other resources."""


class ResourceTemplate(_Readable, frozen=True, kw_only=True):
    uri_template: str
    match: Callable[[str], Mapping[str, str] | None]
    """Returns the percent-decoded variables in a URI, or None if the URI does not match the template."""
    rank: Callable[[str], tuple[bool, int]] | None = None
    """Returns how closely an upstream's template matches a URI. The template with the highest rank serves the URI. None
    for templates in the configuration files, where the first match serves the URI.
    """
    completers: Mapping[str, Completer] = msgspec.field(default_factory=empty)


class Prompt(Primitive, frozen=True, kw_only=True):
    kind = "prompts"
    arguments: Mapping[str, PromptArgument]
    messages: Callable[[Outcome, Invocation], Awaitable[Blocks | Relayed]]
    """Converts the outcome to messages, and masks secrets in them.

    Raises:
        ExecutionError: the messages are too large.
    """
    completers: Mapping[str, Completer] = msgspec.field(default_factory=empty)


_FINGERPRINT_BYTES: Final = 12
"""Length of a fingerprint, which is short because sessions store three fingerprints and cursors contain one."""


def fingerprint(digests: Iterable[bytes]) -> str:
    """Return a short digest of a list, computed from the digests of its definitions."""
    digest = hashlib.sha256(b"".join(digests)).digest()[:_FINGERPRINT_BYTES]
    return base64.urlsafe_b64encode(digest).decode()


def definition_digest(definition: JsonObject) -> bytes:
    """Digest a definition as clients see it.

    The size and modification time of a file are left out, because an edited file does not change the list.
    """
    return hashlib.sha256(exact_json.dumps(_settled(definition), option=orjson.OPT_SORT_KEYS)).digest()


def content_digest(definition: JsonObject, content: str) -> bytes:
    """Digest a definition and its content, for lists whose fingerprint changes with the content of their entries."""
    return hashlib.sha256(definition_digest(definition) + content.encode()).digest()


def _settled(definition: JsonObject) -> dict[str, Json]:
    settled = {key: value for key, value in definition.items() if key != "size"}
    if "size" in definition:
        settled["annotations"] = {k: v for k, v in definition.get("annotations", {}).items() if k != "lastModified"}
    return settled
