"""Compiled primitives, ready to run. Only values; the compiler creates them.

Every `definition` is in the wire form of 2026-07-28. `gateway.wire.downgrade` adapts it to older revisions.
"""

import base64
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import ClassVar, Final, Protocol

import msgspec
import orjson

from gateway import exact_json
from gateway.catalog.arguments import CompiledArguments
from gateway.config.models.definition_keys import ASK_TIMEOUT
from gateway.config.models.definitions import PromptArgument
from gateway.config.models.quantities import RateLimit
from gateway.executors.invocation import Blocks, Executor, Explainable, Invocation, Outcome, Relayed, ToolResult
from gateway.json_types import Json, JsonObject, empty
from gateway.language.templates.templating import TextTemplate
from gateway.plugin import ListKind
from gateway.wire.headers import HeaderParameter


class RequiredScopes(msgspec.Struct, frozen=True, kw_only=True):
    """Scopes that a caller needs for a primitive or a view."""

    scopes: frozenset[str] = frozenset()
    """All of them are required."""
    is_visible: bool = False
    """List it to callers without the scopes, so that they can request more scopes."""

    def is_listed_for(self, held: frozenset[str]) -> bool:
        return self.is_visible or self.scopes <= held


EVERYBODY: Final = RequiredScopes()


class ResultShape(Protocol):
    """The compiled `output:` of a tool."""

    def shape(self, outcome: Outcome, invocation: Invocation) -> ToolResult: ...


class ContentsShape(Protocol):
    """Converts a resource's outcome to contents: UTF-8 as text, otherwise a blob, limited to `max_size`."""

    def contents(self, outcome: Outcome, *, uri: str) -> Sequence[JsonObject]:
        """Return `ReadResourceResult.contents`.

        Raises:
            ExecutionError: the outcome is a failure or too large.
        """


class Suggestions(msgspec.Struct, frozen=True, kw_only=True):
    """Suggested values for one argument or variable."""

    values: Sequence[str]
    total: int | None
    """Number of all values, or None if it is unknown."""
    has_more: bool = False
    meta: JsonObject = msgspec.field(default_factory=empty)
    """Members of the result's `_meta`."""


class Completer(Protocol):
    """A source of suggestions for one argument or variable."""

    async def complete(self, value: str, arguments: Mapping[str, str], invocation: Invocation) -> Suggestions:
        """Return the values that match `value`, ignoring case: those that start with it first, in source order."""


class Primitive(msgspec.Struct, frozen=True, kw_only=True):
    """Fields shared by tools, resources, resource templates and prompts."""

    kind: ClassVar[ListKind]
    """Section of the file and announced list. Templates belong to resources."""
    name: str
    """Key in the file."""
    definition: JsonObject
    timeout: timedelta
    concurrency: int
    queue: int
    rate_limit: RateLimit | None = None
    rate_key: TextTemplate | None = None
    """The callers with the same value share the rate of one caller; None: each caller has a separate rate."""
    caller_facts: frozenset[str] = frozenset()
    """Facts of the caller that its templates read: `subject`, `claims.team`, or `claims` for all claims."""
    ask_timeout: timedelta = ASK_TIMEOUT
    """Time limit for the client to answer an input request."""
    access: RequiredScopes = EVERYBODY
    aliases: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    upstream: str = ""
    """Name of the upstream that runs it, or ""."""
    required_capabilities: JsonObject = msgspec.field(default_factory=empty)
    """Capabilities that the client must have declared, in the form of ClientCapabilities."""
    version: str = ""
    """Changes with the definition in the files and the code of its plugin, even where clients do not see it."""
    digest: bytes = b""
    """Digest of the definition as clients see it, or b"" if it is not known yet."""


class Confirmation(msgspec.Struct, frozen=True, kw_only=True):
    """The compiled `confirm:` of a tool."""

    message: TextTemplate
    is_optional: bool
    """Run the tool without confirmation if the client cannot ask the user."""


class TaskRules(msgspec.Struct, frozen=True, kw_only=True):
    """The compiled `task:` of a tool whose calls can become tasks."""

    is_required: bool
    """Whether clients without support for tasks are rejected."""
    asks_before: bool
    """Whether questions are asked before the task is created."""
    after: float
    """Seconds after which a running call becomes a task."""
    ttl_ms: int
    poll_ms: int
    restarts: int
    """How often the tool can be started again after its process died."""


class Tool(Primitive, frozen=True, kw_only=True):
    kind = "tools"
    executor: Executor
    confirm: Confirmation | None = None
    arguments: CompiledArguments
    result: ResultShape
    header_parameters: tuple[HeaderParameter, ...] = ()
    name_in_app: str = ""
    """Unlisted name that pages served by this gateway use for the tool, if it differs."""
    task: TaskRules | None = None
    """None if calls never become tasks."""
    is_immediate: bool = False
    """Whether a call never waits, because the result only depends on the file and the arguments."""


class Skill(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot of a skill (SEP-2640)."""

    entry: JsonObject
    """Entry for `skills/list` and `skills/get`: URI of the SKILL.md, front matter, digests of the files."""
    directories: Mapping[str, tuple[JsonObject, ...]]
    """URI of each directory → definitions of its entries."""
    index: int = 0
    """Index of its entry in `skills:`, from 0."""

    @property
    def name(self) -> str:
        return str(self.entry["frontmatter"]["name"])


class Resource(Primitive, frozen=True, kw_only=True):
    """A resource with an exact URI: a definition, or one file of a `files:` glob or a skill."""

    kind = "resources"
    uri: str
    executor: Executor
    contents: ContentsShape
    cache_ttl: timedelta | None = None
    is_shared: bool = True
    """Whether all callers read the same content."""
    skill: Skill | None = None
    """The skill, if this is its SKILL.md."""


class TemplateMatcher(Protocol):
    """A compiled URI template (RFC 6570, limited to forms that can be matched)."""

    def match(self, uri: str) -> Mapping[str, str] | None:
        """Return the variables for which the template expands to `uri`, percent-decoded once, or None."""


class ResourceTemplate(Primitive, frozen=True, kw_only=True):
    kind = "resources"
    uri_template: str
    matcher: TemplateMatcher
    rank: Callable[[str], tuple[bool, int]] | None = None
    """How closely an upstream's template matches a URI. The greatest value wins. None for templates of the files,
    where the first match wins."""
    executor: Executor
    contents: ContentsShape
    cache_ttl: timedelta | None = None
    is_shared: bool = True
    """Whether all callers read the same content."""
    completers: Mapping[str, Completer] = msgspec.field(default_factory=empty)


class PromptMessages(Explainable, Protocol):
    """The compiled `messages:` of a prompt, or the function that returns them."""

    async def render(self, invocation: Invocation) -> Blocks | Relayed: ...


class Prompt(Primitive, frozen=True, kw_only=True):
    kind = "prompts"
    arguments: Mapping[str, PromptArgument]
    messages: PromptMessages
    completers: Mapping[str, Completer] = msgspec.field(default_factory=empty)


_FINGERPRINT_BYTES: Final = 12
"""Kept short, because each session stores three and each cursor contains one."""


def fingerprint(digests: Iterable[bytes]) -> str:
    """Digest a list from the digests of its definitions."""
    digest = hashlib.sha256(b"".join(digests)).digest()[:_FINGERPRINT_BYTES]
    return base64.urlsafe_b64encode(digest).decode()


def definition_digest(definition: JsonObject) -> bytes:
    """Digest a definition as clients see it.

    The size and time of a file are left out: a changed file is an update for subscribers, not a changed list.
    """
    return hashlib.sha256(exact_json.dumps(_settled(definition), option=orjson.OPT_SORT_KEYS)).digest()


def content_digest(definition: JsonObject, content: str) -> bytes:
    """Digest a definition together with the digest of its content, so that every change changes the list."""
    return hashlib.sha256(definition_digest(definition) + content.encode()).digest()


def _settled(definition: JsonObject) -> dict[str, Json]:
    settled = {key: value for key, value in definition.items() if key != "size"}
    if "size" in definition:
        settled["annotations"] = {k: v for k, v in definition.get("annotations", {}).items() if k != "lastModified"}
    return settled
