"""Limits the cost of validating an argument with a schema.

Threat: arguments with patterns, items to compare, or errors that take very long to process. The engine (jsonschema-rs)
has no limits for such arguments, and holds the GIL while it runs.

- Patterns with a large automaton, look-around or back-references only match short strings.
- Nested counted repetitions multiply to at most 1,000, as in RE2: `(a{1,100}){1,100}` has ten thousand states.
- The number of schemas that apply to the same value is limited.
- The number of integers beyond 2^53 in `uniqueItems` is limited, because the engine gives them equal hashes.
- Errors are only searched for in arguments up to a size, and in recursive schemas up to a depth.
"""

import math
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from typing import Final

import jsonschema_rs
import msgspec

from gateway.json_types import Json, JsonObject
from gateway.language.schemas.keywords import rewritten

MAX_MATCHED_LENGTH: Final = 4096
"""Maximum characters of a string to match with an expensive pattern."""
MAX_MATCHES: Final = 32 * 1024
"""Maximum total characters of the strings in an argument, if an expensive pattern can apply to many strings."""
MAX_REPETITIONS: Final = 1000
MAX_FAN_OUT: Final = 1000
MAX_LARGE_INTEGERS: Final = 1000
MAX_DIVIDED: Final = 10_000
"""Maximum numbers in an argument whose schema has `multipleOf`. Each check takes up to 50 µs."""
MAX_NAMED: Final = 1_000_000
"""Maximum product of the number of members in an argument and the number of `patternProperties` in its schema."""
_SMALL_AUTOMATON: Final = 32 * 1024
"""Maximum bytes of a cheap automaton. A few hundred states take about 100 ns per character."""
_MAX_EXACT_INTEGER: Final = 2**53
_MAX_DESCRIBED: Final = 1000
"""Approximate maximum number of error messages. Each message takes up to 150 µs."""
_ANY_NUMBER: Final = frozenset({
    "additionalItems", "additionalProperties", "contains", "items", "patternProperties", "propertyNames",
    "unevaluatedItems", "unevaluatedProperties",
})  # fmt: skip
COSTING: Final = frozenset({
    "$dynamicRef", "$recursiveRef", "$ref", "allOf", "anyOf", "if", "multipleOf", "oneOf", "pattern",
    "patternProperties", "uniqueItems",
})  # fmt: skip
"""Keywords whose cost can grow faster than the size of the argument."""
_ONE_EACH: Final = frozenset({"prefixItems", "properties"})
_ALTERNATIVES: Final = ("anyOf", "oneOf")
# An unclosed set extends to the end of the pattern. Otherwise, many `[` would take quadratic time.
_TOKEN: Final = re.compile(
    r"(?P<escape>\\(?:[pPu]\{[^{}\\]*\}|.))|(?P<set>\[(?:\\.?|[^\]\\])*+(?:\]|\Z))"
    r"|\{(?P<least>\d+)(?:,(?P<most>\d*))?\}|.",
    re.DOTALL,
)
_ENDLESS: Final = 10**9
"""`repetitions` returns at most this number."""


class ValidationCost(msgspec.Struct, frozen=True, kw_only=True):
    in_place: int = 1
    """Maximum number of schemas that apply to one value."""
    costly: frozenset[str] = frozenset()
    """All patterns in the schema that are expensive to match."""
    costly_names: frozenset[str] = frozenset()
    """The expensive patterns in `patternProperties`."""
    matches_any_number: bool = False
    """Whether an expensive pattern can apply to an unlimited number of strings."""
    names_matched: int = 0
    """Number of patterns in all `patternProperties`."""
    compares: bool = False
    divides: bool = False
    has_alternatives: bool = False
    """Whether the number of errors in a value can exceed the number of its members and items."""
    worded_depth: int | None = None
    """Maximum depth of a value in a search for all errors. None means unlimited."""

    def limit_exceeded(self, instance: Json) -> str | None:
        """Return why an argument is too expensive, or None."""
        if self.is_light:
            return None
        large_integers, numbers, names, matched = _amounts(instance)
        if self.compares and large_integers > MAX_LARGE_INTEGERS:
            return f"contains more than {MAX_LARGE_INTEGERS} integers beyond 2^53, too many for `uniqueItems`"
        if self.matches_any_number and matched > MAX_MATCHES:
            return f"contains more than {MAX_MATCHES} characters of text, too many for the patterns of its schema"
        if self.divides and numbers > MAX_DIVIDED:
            return f"contains more than {MAX_DIVIDED} numbers, too many for the `multipleOf` of its schema"
        if self.names_matched * names > MAX_NAMED:
            return f"contains {names} members, too many for the `patternProperties` of its schema"
        return None

    @property
    def is_light(self) -> bool:
        """Whether the cost is proportional to the size of an argument."""
        return not (self.compares or self.matches_any_number or self.divides or self.names_matched)

    @property
    def worded_nodes(self) -> int:
        return max(20, 20_000 // self.in_place)


Nodes = Mapping[int, tuple[JsonObject, list[tuple[str, int]]]]
"""Maps the `id` of each schema to the schema and its subschemas, which are pairs of keyword and `id`."""


def validation_cost_of(nodes: Nodes) -> ValidationCost:
    """Return the cost of a schema that consists of `nodes`."""
    if all(COSTING.isdisjoint(schema) for schema, _ in nodes.values()):
        return ValidationCost()
    is_recursive = _is_recursive(nodes)
    costly = frozenset(pattern for pattern in set(_patterns(nodes)) if is_costly(pattern))
    return ValidationCost(
        in_place=_in_place(nodes),
        costly=costly,
        costly_names=costly & {name for schema, _ in nodes.values() for name in schema.get("patternProperties", ())},
        names_matched=sum(len(schema.get("patternProperties", ())) for schema, _ in nodes.values()),
        divides=any("multipleOf" in schema for schema, _ in nodes.values()),
        matches_any_number=(is_recursive and bool(costly))
        or any(nodes[at][0].get("pattern") in costly for at in _repeated(nodes)),
        compares=any(schema.get("uniqueItems") is True for schema, _ in nodes.values()),
        has_alternatives=any(not schema.keys().isdisjoint(_ALTERNATIVES) for schema, _ in nodes.values()),
        worded_depth=_worded_depth(nodes) if is_recursive else None,
    )


def guarded(schema: dict[str, Json], cost: ValidationCost, *, accepts_longer: bool = False) -> dict[str, Json]:
    """Return the schema with expensive patterns restricted to short strings.

    Longer strings are rejected, unless `accepts_longer` is true.
    """
    if not cost.costly:
        return schema

    def guard(each: dict[str, Json]) -> None:
        pattern = each.get("pattern")
        if isinstance(pattern, str) and pattern in cost.costly:
            del each["pattern"]
            # `maxLength` would not prevent matching. `allOf` is needed, because the schema can already have an `if`.
            short = {"maxLength": MAX_MATCHED_LENGTH}
            otherwise: Json = True if accepts_longer else short
            each["allOf"] = [*each.get("allOf", ()), {"if": short, "then": {"pattern": pattern}, "else": otherwise}]

    copy: dict[str, Json] = rewritten(schema, guard)
    return copy


@lru_cache(maxsize=4096)
def is_costly(pattern: str) -> bool:
    """Whether a pattern can take more than about 100 ns for each character."""
    # This engine rejects look-around, and patterns whose automaton exceeds the size limit.
    return not compiles(pattern, jsonschema_rs.RegexOptions(size_limit=_SMALL_AUTOMATON))


def compiles(pattern: str, options: jsonschema_rs.RegexOptions | jsonschema_rs.FancyRegexOptions) -> bool:
    try:
        jsonschema_rs.Draft202012Validator({"pattern": pattern}, pattern_options=options)
    except jsonschema_rs.ValidationError:
        return False
    return True


def repetitions(pattern: str) -> int:
    """Return the largest product of nested counted repetitions, up to `_ENDLESS`."""
    most, last = [1], 1
    for token in _TOKEN.finditer(pattern):
        if token["least"] is not None:
            times = token["most"] or token["least"]
            last = min(last * max(1, int(times)), _ENDLESS) if len(times) < len(str(_ENDLESS)) else _ENDLESS
            most[-1] = max(most[-1], last)
        elif token[0] == "(":
            most.append(1)
        elif token[0] == ")" and len(most) > 1:
            last = most.pop()
            most[-1] = max(most[-1], last)
        else:
            last = 1
    return max(most)


def _patterns(nodes: Nodes) -> Iterator[str]:
    for schema, _ in nodes.values():
        if isinstance(pattern := schema.get("pattern"), str):
            yield pattern
        yield from schema.get("patternProperties", ())


def _in_place(nodes: Nodes) -> int:
    sums: dict[int, int] = {}
    for start in nodes:
        waiting = [(start, False)]
        while waiting:
            at, is_done = waiting.pop()
            below = [to for keyword, to in nodes[at][1] if keyword not in _ANY_NUMBER | _ONE_EACH]
            if is_done:
                sums[at] = 1 + sum(sums.get(to, 0) for to in below)
            elif at not in sums:
                sums[at] = 0  # the engine also visits a loop once
                waiting += [(at, True), *((to, False) for to in below if to not in sums)]
    return max(sums.values(), default=1)


def _is_recursive(nodes: Nodes) -> bool:
    try:
        TopologicalSorter({at: [to for _, to in below] for at, (_, below) in nodes.items()}).prepare()
    except CycleError:
        return True
    return False


def _repeated(nodes: Nodes) -> set[int]:
    """Return the `id` of each schema that can apply to any number of values, without regard to recursion."""
    repeated: set[int] = set()
    waiting = [to for _, below in nodes.values() for keyword, to in below if keyword in _ANY_NUMBER]
    while waiting:
        if (at := waiting.pop()) not in repeated:
            repeated.add(at)
            waiting += [to for _, to in nodes[at][1]]
    return repeated


def _worded_depth(nodes: Nodes) -> int | None:
    branches = max(sum(len(schema.get(keyword, ())) for keyword in _ALTERNATIVES) for schema, _ in nodes.values())
    # The number of errors grows as branches ** depth.
    return None if branches < 2 else max(1, int(math.log(_MAX_DESCRIBED) / math.log(branches)))


def _amounts(instance: Json) -> tuple[int, int, int, int]:
    """Return the counts of large integers, numbers and member names, and the total characters of strings to match."""
    large_integers = numbers = names = matched = 0
    waiting = [instance]
    while waiting:
        match waiting.pop():
            case dict() as members:
                names += len(members)
                waiting.extend(members.values())
            case list() as items:
                waiting.extend(items)
            case str() as text if len(text) <= MAX_MATCHED_LENGTH:
                matched += len(text)
            case int() | float() as number:
                numbers += 1
                large_integers += isinstance(number, int) and abs(number) > _MAX_EXACT_INTEGER
    return large_integers, numbers, names, matched
