"""Primitives as they are served: frozen, compiled, ready to run. Values only; the compiler makes them.

Every `definition` is the wire form of 2026-07-28; `gateway.protocol.revisions` takes away what older revisions lack.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Protocol

from gateway.catalog.lock import Difference
from gateway.catalog.pins import Pins
from gateway.config.rates import RateLimit
from gateway.config.secrets import Redactor
from gateway.config.server import SamplingLimits
from gateway.errors import Problem
from gateway.executors.invocation import Executor, Invocation, Outcome, ToolResult
from gateway.executors.templates.templating import TextTemplate
from gateway.json_types import JsonObject, empty


class ArgumentsSchema(Protocol):
    """A tool's compiled input schema."""

    def prepare(self, arguments: JsonObject) -> JsonObject:
        """Fill in defaults, coerce, validate, confine paths.

        Raises:
            ExecutionError: the arguments do not fit; the text names each by JSON Pointer.
        """


class ResultShape(Protocol):
    """A tool's compiled `output:`."""

    def shape(self, outcome: Outcome, invocation: Invocation) -> ToolResult: ...


class ContentsShape(Protocol):
    """How a resource's outcome becomes contents: text if it is UTF-8, otherwise a blob; within `max_size`."""

    def contents(self, outcome: Outcome, *, uri: str) -> Sequence[JsonObject]:
        """`ReadResourceResult.contents`.

        Raises:
            ExecutionError: the outcome is a failure, or too large.
        """


class Completer(Protocol):
    """Where the values for one argument or variable come from."""

    async def complete(self, value: str, arguments: Mapping[str, str], invocation: Invocation) -> Sequence[str]:
        """Every candidate that fits `value`: prefix first, case-insensitive, in source order, then substring."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderParameter:
    """An input that clients of 2026-07-28 mirror as `Mcp-Param-{name}` (server/tools, "x-mcp-header")."""

    name: str
    path: tuple[str, ...]
    """Property names from the root of the arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Who may use a primitive."""

    scopes: frozenset[str] = frozenset()
    """All of these are needed."""
    is_visible: bool = False
    """Whether it is listed to those who lack some, so that they can ask for more."""

    def is_listed_for(self, held: frozenset[str]) -> bool:
        return self.is_visible or self.scopes <= held


EVERYBODY: Final = Access()


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLimits:
    """`limits`, as far as calls look at it: what a reload changes."""

    rate_limit: RateLimit | None = None
    of_caller: tuple[int, int] | None = None
    """How many calls of one caller may run at once, and how many may wait."""
    of_all: tuple[int, int] | None = None
    sampling: SamplingLimits = field(default_factory=SamplingLimits)


NO_LIMITS: Final = CallLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Primitive:
    """What all of them have."""

    name: str
    """The key in the file."""
    definition: JsonObject
    timeout: timedelta
    concurrency: int
    queue: int
    rate_limit: RateLimit | None = None
    ask_timeout: timedelta = timedelta(minutes=10)
    """How long a question to the client may stay open."""
    access: Access = EVERYBODY
    aliases: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    required_capabilities: JsonObject = field(default_factory=empty)
    """What the client must have declared, in the shape of ClientCapabilities."""
    version: str = ""
    """Changes with what the files say about it, also where clients do not see that, and with its plugin's code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """A tool's `confirm:`."""

    message: TextTemplate
    is_optional: bool
    """Whether the tool runs unasked where the client cannot be asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool(Primitive):
    executor: Executor
    confirm: Confirmation | None = None
    arguments: ArgumentsSchema
    result: ResultShape
    header_parameters: tuple[HeaderParameter, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource(Primitive):
    """One that has an exact URI: declared by itself, or one file of a `files:` glob."""

    uri: str
    executor: Executor
    contents: ContentsShape
    cache_ttl: timedelta | None = None
    is_shared: bool = True
    """Whether every caller reads the same."""


class UriMatcher(Protocol):
    """A compiled URI template (RFC 6570, the forms that can be matched)."""

    def match(self, uri: str) -> Mapping[str, str] | None:
        """The variables that make the template expand to `uri`, percent-decoded once; None if none do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceTemplate(Primitive):
    uri_template: str
    matcher: UriMatcher
    executor: Executor
    contents: ContentsShape
    cache_ttl: timedelta | None = None
    is_shared: bool = True
    """Whether every caller reads the same."""
    completers: Mapping[str, Completer] = field(default_factory=empty)


class PromptMessages(Protocol):
    """A prompt's compiled `messages:`, or the function that returns them."""

    async def render(self, invocation: Invocation) -> Sequence[JsonObject]:
        """`GetPromptResult.messages`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptArgument:
    name: str
    required: bool
    default: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt(Primitive):
    arguments: tuple[PromptArgument, ...]
    messages: PromptMessages
    completers: Mapping[str, Completer] = field(default_factory=empty)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A definition whose `requires` is unmet, or that is not as it was locked: not on offer; the status says why."""

    kind: str
    name: str
    reason: str
    is_locked_out: bool = False

    def __str__(self) -> str:
        return f"{self.kind}.{self.name} is not on offer here: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """The immutable set of primitives on offer. Mappings keep file order, which is the order in lists."""

    generation: int
    server_info: JsonObject
    """`Implementation` (2026-07-28 schema): name, version, and what else the file says."""
    instructions: str | None
    page_size: int
    cache_ttl: timedelta
    tools: Mapping[str, Tool] = field(default_factory=empty)
    resources: Mapping[str, Resource] = field(default_factory=empty)
    """By URI."""
    resource_templates: tuple[ResourceTemplate, ...] = ()
    prompts: Mapping[str, Prompt] = field(default_factory=empty)
    aliases: Mapping[str, Mapping[str, str]] = field(default_factory=empty)
    """For "tools", "resources" (URIs) and "prompts": old name → name."""
    scopes: frozenset[str] = frozenset()
    """Those that decide what a caller sees."""
    view_of: frozenset[str] | None = None
    """The scopes that this part of the catalog is for; None: all of it."""
    left_out: tuple[LeftOut, ...] = ()
    warnings: tuple[Problem, ...] = ()
    """What may be a mistake in the files, and is no reason not to serve them."""
    redactor: Redactor
    pins: Pins = field(default_factory=dict)
    """What each definition consists of; for those that stay as they were locked, what they were then."""
    unlike: tuple[Difference, ...] = ()
    """How the files differ from the lock."""
    limits: CallLimits = NO_LIMITS
    fingerprints: Mapping[str, str] = field(default_factory=empty)
    """For "tools", "resources", "prompts": a digest of what a client would see in the list."""

    def tool(self, name: str) -> Tool | None:
        return self.tools.get(name) or self.tools.get(self.aliases.get("tools", {}).get(name, ""))

    def prompt(self, name: str) -> Prompt | None:
        return self.prompts.get(name) or self.prompts.get(self.aliases.get("prompts", {}).get(name, ""))

    def uris_of(self, uri: str) -> frozenset[str]:
        """Every URI that what `uri` names can be read under: its own, and its old ones."""
        aliases = self.aliases.get("resources", {})
        current = aliases.get(uri, uri)
        return frozenset({current, *(old for old, new in aliases.items() if new == current)})

    def resource(self, uri: str) -> tuple[Resource | ResourceTemplate, Mapping[str, str]] | None:
        """What serves `uri`, and the variables in it: an exact URI wins over templates, which go in file order."""
        uri = self.aliases.get("resources", {}).get(uri, uri)
        if (resource := self.resources.get(uri)) is not None:
            return resource, {}
        for template in self.resource_templates:
            if (variables := template.matcher.match(uri)) is not None:
                return template, variables
        return None


def deciding_scopes(primitives: Iterable[Primitive]) -> frozenset[str]:
    """Those without which something is not listed."""
    return frozenset(scope for each in primitives if not each.access.is_visible for scope in each.access.scopes)
