"""Primitives as they are served: frozen, compiled, ready to run. Values only; the compiler makes them.

Every `definition` is the wire form of 2026-07-28; `gateway.wire.downgrade` takes away what older revisions lack.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import ClassVar, Final, Protocol

import msgspec

from gateway.catalog.arguments import CompiledArguments
from gateway.config.models.definition_keys import ASK_TIMEOUT
from gateway.config.models.definitions import PromptArgument
from gateway.config.models.quantities import RateLimit
from gateway.executors.invocation import Blocks, Executor, Explainable, Invocation, Outcome, Relayed, ToolResult
from gateway.json_types import JsonObject, empty
from gateway.language.templates.templating import TextTemplate
from gateway.plugin import ListKind
from gateway.wire.headers import HeaderParameter


class RequiredScopes(msgspec.Struct, frozen=True, kw_only=True):
    """The scopes that a caller needs for a primitive, or for a view."""

    scopes: frozenset[str] = frozenset()
    """All of these are required."""
    is_visible: bool = False
    """True if it is listed to callers who lack some, so that they can ask for more."""

    def is_listed_for(self, held: frozenset[str]) -> bool:
        return self.is_visible or self.scopes <= held


EVERYBODY: Final = RequiredScopes()


class ResultShape(Protocol):
    """A tool's compiled `output:`."""

    def shape(self, outcome: Outcome, invocation: Invocation) -> ToolResult: ...


class ContentsShape(Protocol):
    """Turns a resource's outcome into contents: text if it is UTF-8, otherwise a blob; within `max_size`."""

    def contents(self, outcome: Outcome, *, uri: str) -> Sequence[JsonObject]:
        """`ReadResourceResult.contents`.

        Raises:
            ExecutionError: the outcome is a failure, or too large.
        """


class Suggestions(msgspec.Struct, frozen=True, kw_only=True):
    """Values for one argument or variable."""

    values: Sequence[str]
    total: int | None
    """The number of all that there are; None if it is unknown."""
    has_more: bool = False
    meta: JsonObject = msgspec.field(default_factory=empty)
    """Members of the result's `_meta`."""


class Completer(Protocol):
    """A source of values for one argument or variable."""

    async def complete(self, value: str, arguments: Mapping[str, str], invocation: Invocation) -> Suggestions:
        """The candidates that fit `value`: prefix first, case-insensitive, in source order, then substring."""


class Primitive(msgspec.Struct, frozen=True, kw_only=True):
    """The fields that tools, resources, resource templates and prompts share."""

    kind: ClassVar[ListKind]
    """The section of the file, and the list that is announced; templates belong to resources."""
    name: str
    """The key in the file."""
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
    """The deadline of an input request to the client."""
    access: RequiredScopes = EVERYBODY
    aliases: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    upstream: str = ""
    """The upstream that carries it out; empty where none does."""
    required_capabilities: JsonObject = msgspec.field(default_factory=empty)
    """The capabilities that the client must have declared, in the shape of ClientCapabilities."""
    version: str = ""
    """Changes with the definition in the files, also where clients do not see that, and with its plugin's code."""
    digest: bytes = b""
    """The digest of what clients see of it; empty where it is not known yet."""


class Confirmation(msgspec.Struct, frozen=True, kw_only=True):
    """A tool's `confirm:`."""

    message: TextTemplate
    is_optional: bool
    """True if the tool runs unasked where the client cannot be asked."""


class TaskRules(msgspec.Struct, frozen=True, kw_only=True):
    """A tool's `task:`, where its calls may become tasks."""

    is_required: bool
    """Whether a client that knows no tasks is refused."""
    asks_before: bool
    """Whether questions to the client are put before there is a task, as long as there is none."""
    after: float
    """Seconds after which a call that is not done becomes a task."""
    ttl_ms: int
    poll_ms: int
    restarts: int
    """How often the tool may be begun again after its process died."""


class Tool(Primitive, frozen=True, kw_only=True):
    kind = "tools"
    executor: Executor
    confirm: Confirmation | None = None
    arguments: CompiledArguments
    result: ResultShape
    header_parameters: tuple[HeaderParameter, ...] = ()
    name_in_app: str = ""
    """The name by which a page that is served here calls it, where that is another: it works, and is not listed."""
    task: TaskRules | None = None
    """None where its calls are ordinary in any case."""
    is_immediate: bool = False
    """Whether a call waits for nothing, unless too many run: its answer stands in the file and in its arguments."""


class Skill(msgspec.Struct, frozen=True, kw_only=True):
    """A skill as it was when its directory was read (SEP-2640)."""

    entry: JsonObject
    """What `skills/list` and `skills/get` answer: the URI of its SKILL.md, its front matter, its files' digests."""
    directories: Mapping[str, tuple[JsonObject, ...]]
    """The URI of each of its directories → the definitions of what lies in it."""
    index: int = 0
    """The number of its entry of `skills:`, counted from 0."""

    @property
    def name(self) -> str:
        return str(self.entry["frontmatter"]["name"])


class Resource(Primitive, frozen=True, kw_only=True):
    """A resource with an exact URI: declared by itself, or one file of a `files:` glob or of a skill."""

    kind = "resources"
    uri: str
    executor: Executor
    contents: ContentsShape
    cache_ttl: timedelta | None = None
    is_shared: bool = True
    """Whether every caller reads the same."""
    skill: Skill | None = None
    """The skill whose SKILL.md this is."""


class TemplateMatcher(Protocol):
    """A compiled URI template (RFC 6570, the forms that can be matched)."""

    def match(self, uri: str) -> Mapping[str, str] | None:
        """The variables that make the template expand to `uri`, percent-decoded once; None if none do."""


class ResourceTemplate(Primitive, frozen=True, kw_only=True):
    kind = "resources"
    uri_template: str
    matcher: TemplateMatcher
    rank: Callable[[str], tuple[bool, int]] | None = None
    """Tells how closely a template of another server fits a URI that it matches: of several, the greatest is read.
    None for a template of the files: the first that matches is read."""
    executor: Executor
    contents: ContentsShape
    cache_ttl: timedelta | None = None
    is_shared: bool = True
    """Whether every caller reads the same."""
    completers: Mapping[str, Completer] = msgspec.field(default_factory=empty)


class PromptMessages(Explainable, Protocol):
    """A prompt's compiled `messages:`, or the function that returns them."""

    async def render(self, invocation: Invocation) -> Blocks | Relayed: ...


class Prompt(Primitive, frozen=True, kw_only=True):
    kind = "prompts"
    arguments: Mapping[str, PromptArgument]
    messages: PromptMessages
    completers: Mapping[str, Completer] = msgspec.field(default_factory=empty)
