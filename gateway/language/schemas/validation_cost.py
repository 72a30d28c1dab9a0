"""Bounds the cost of validating an argument with a schema. Pure; knows no document.

Threats answered here: an argument that keeps the engine busy with one pattern, with comparing its items, or with
wording its errors. The engine bounds none of these, and holds the interpreter's lock meanwhile.

Why the graph of schemas and its loops, where a length limit for every text would be shorter: a limit that does not know
which texts meet a costly pattern refuses long lists beside one such pattern; and a schema need not be the operator's
own work, it may be derived from a function or copied from a service's description.

- A pattern whose automaton is large, or that needs look-around or back-references, sees short texts alone.
- Counted repetitions multiply to a thousand at the most, as in RE2: `(a{1,100}){1,100}` is ten thousand states, each
  of which may have to be looked at for each character.
- What applies to one place of an argument is bounded, however often `$ref` leads to it.
- Integers beyond 2^53 share their hashes in the engine: those that `uniqueItems` must tell apart are counted.
- The words for what is wrong go through every alternative at every level: where a schema refers to itself, only the
  first levels of an argument are put into words.
"""

import math
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

import jsonschema_rs
import msgspec

from gateway.json_types import Json, JsonObject
from gateway.language.schemas.keywords import rewritten

MAX_MATCHED_LENGTH: Final = 4096
"""Characters of a text that is matched with a costly pattern."""
MAX_MATCHES: Final = 32 * 1024
"""Characters of all such texts in one argument, where a costly pattern applies to any number of them."""
MAX_REPETITIONS: Final = 1000
MAX_FAN_OUT: Final = 1000
"""Schemas that apply to one place."""
MAX_LARGE_INTEGERS: Final = 1000
MAX_DIVIDED: Final = 10_000
"""Numbers in one argument whose schema has a `multipleOf`; each may take 50 µs."""
MAX_NAMED: Final = 1_000_000
"""Names of members in one argument times the patterns that each is matched with."""
_SMALL_AUTOMATON: Final = 32 * 1024
"""Bytes: a few hundred states, at most some 100 ns for each character."""
_MAX_EXACT_INTEGER: Final = 2**53
_MAX_DESCRIBED: Final = 1000
"""Errors that are put into words, about; each takes up to 150 µs."""
_ANY_NUMBER: Final = frozenset({
    "additionalItems", "additionalProperties", "contains", "items", "patternProperties", "propertyNames",
    "unevaluatedItems", "unevaluatedProperties",
})  # fmt: skip
"""Keywords whose schemas apply to any number of places."""
COSTING: Final = frozenset({
    "$dynamicRef", "$recursiveRef", "$ref", "allOf", "anyOf", "if", "multipleOf", "oneOf", "pattern",
    "patternProperties", "uniqueItems",
})  # fmt: skip
"""Keywords without which a schema makes no more work than the size of the argument."""
_ONE_EACH: Final = frozenset({"prefixItems", "properties"})
_ALTERNATIVES: Final = ("anyOf", "oneOf")
# A set that is not closed takes all that follows, and a name holds no brace: otherwise each of many `[` would be tried
# to the end, and patterns come from upstreams and documents, too.
_TOKEN: Final = re.compile(
    r"(?P<escape>\\(?:[pPu]\{[^{}\\]*\}|.))|(?P<set>\[(?:\\.?|[^\]\\])*+(?:\]|\Z))"
    r"|\{(?P<least>\d+)(?:,(?P<most>\d*))?\}|.",
    re.DOTALL,
)
_ENDLESS: Final = 10**9
"""Stands for all larger numbers of repetitions: a pattern may have numbers of any length, which `int` does not read."""


class ValidationCost(msgspec.Struct, frozen=True, kw_only=True):
    """The costly parts of a schema."""

    in_place: int = 1
    """Schemas that apply to one place, at the most."""
    costly: frozenset[str] = frozenset()
    """Patterns."""
    costly_names: frozenset[str] = frozenset()
    """Of these, those that names of members are matched with."""
    matches_any_number: bool = False
    """Whether a costly pattern applies to any number of texts."""
    names_matched: int = 0
    """Patterns that names of members are matched with."""
    compares: bool = False
    """Whether items must be told apart."""
    divides: bool = False
    """Whether numbers must be multiples of another."""
    worded_depth: int | None = None
    """Levels of an argument that are put into words; None: all of them."""

    def limit_exceeded(self, instance: Json) -> str | None:
        """The reason why an argument costs too much; None if it does not."""
        if self.is_light:
            return None
        found = _Amounts.of(instance)
        if self.compares and found.large_integers > MAX_LARGE_INTEGERS:
            return f"holds more than {MAX_LARGE_INTEGERS} integers beyond 2^53, too many to be told apart"
        if self.matches_any_number and found.matched > MAX_MATCHES:
            return f"holds more than {MAX_MATCHES} characters of text, too many for the patterns of its schema"
        if self.divides and found.numbers > MAX_DIVIDED:
            return f"holds more than {MAX_DIVIDED} numbers, too many for the `multipleOf` of its schema"
        if self.names_matched * found.names > MAX_NAMED:
            return f"holds {found.names} names of members, too many for the `patternProperties` of its schema"
        return None

    @property
    def is_light(self) -> bool:
        """Whether no argument makes more work than its size."""
        return not (self.compares or self.matches_any_number or self.divides or self.names_matched)

    @property
    def worded_nodes(self) -> int:
        """The number of values of an argument that are put into words."""
        return max(20, 20_000 // self.in_place)


class SchemaNode(msgspec.Struct):
    """One schema, and those that it leads to."""

    schema: JsonObject
    edges: list[tuple[str, int]] = msgspec.field(default_factory=list)
    """The keyword that leads there, and the `id` of the schema."""


def validation_cost_of(nodes: dict[int, SchemaNode], root: int) -> ValidationCost:
    """Measure a schema; `nodes` are what can be reached from its root."""
    if all(COSTING.isdisjoint(node.schema) for node in nodes.values()):
        return ValidationCost()
    looping = _targets_of_loops(nodes, root)
    repeated = _repeated(nodes, root, looping)
    costly = frozenset(pattern for pattern in set(_patterns(nodes)) if is_costly(pattern))
    return ValidationCost(
        in_place=_in_place(nodes),
        costly=costly,
        costly_names=costly & {name for node in nodes.values() for name in node.schema.get("patternProperties", ())},
        names_matched=sum(len(node.schema.get("patternProperties", ())) for node in nodes.values()),
        divides=any("multipleOf" in node.schema for node in nodes.values()),
        matches_any_number=any(nodes[at].schema.get("pattern") in costly for at in repeated),
        compares=any(node.schema.get("uniqueItems") is True for node in nodes.values()),
        worded_depth=_worded_depth(nodes) if looping else None,
    )


def guarded(schema: dict[str, Json], cost: ValidationCost, *, accepts_longer: bool = False) -> dict[str, Json]:
    """The schema for the engine, in which each costly pattern applies only to short texts.

    Longer texts are refused, unless `accepts_longer`.
    """
    if not cost.costly:
        return schema

    def guard(each: dict[str, Json]) -> None:
        pattern = each.get("pattern")
        if isinstance(pattern, str) and pattern in cost.costly:
            del each["pattern"]
            # A `maxLength` beside it would not do: keywords are independent, and the engine would match all the same.
            # Within `allOf`, as the schema may have an `if` of its own.
            short = {"maxLength": MAX_MATCHED_LENGTH}
            otherwise: Json = True if accepts_longer else short
            each["allOf"] = [*each.get("allOf", ()), {"if": short, "then": {"pattern": pattern}, "else": otherwise}]

    copy: dict[str, Json] = rewritten(schema, guard)
    return copy


@lru_cache(maxsize=4096)
def is_costly(pattern: str) -> bool:
    """Whether the engine cannot promise to match it in some 100 ns for each character."""
    # This engine runs in linear time: it knows no look-around, and refuses an automaton over its limit.
    options = jsonschema_rs.RegexOptions(size_limit=_SMALL_AUTOMATON)
    try:
        jsonschema_rs.Draft202012Validator({"pattern": pattern}, pattern_options=options)
    except jsonschema_rs.ValidationError:
        return True
    return False


def repetitions(pattern: str) -> int:
    """The largest product of counted repetitions that are nested, up to `_ENDLESS`."""
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


def _patterns(nodes: dict[int, SchemaNode]) -> Iterator[str]:
    for node in nodes.values():
        if isinstance(pattern := node.schema.get("pattern"), str):
            yield pattern
        yield from node.schema.get("patternProperties", ())


def _in_place(nodes: dict[int, SchemaNode]) -> int:
    """The number of schemas that apply to one place: those reached without going down into the argument."""
    sums: dict[int, int] = {}
    for start in nodes:
        waiting = [(start, False)]
        while waiting:
            at, is_done = waiting.pop()
            below = [to for keyword, to in nodes[at].edges if keyword not in _ANY_NUMBER | _ONE_EACH]
            if is_done:
                sums[at] = 1 + sum(sums.get(to, 0) for to in below)
            elif at not in sums:
                sums[at] = 0  # a loop is gone through once, by the engine too
                waiting += [(at, True), *((to, False) for to in below if to not in sums)]
    return max(sums.values(), default=1)


def _targets_of_loops(nodes: dict[int, SchemaNode], root: int) -> set[int]:
    """Schemas that lead to themselves: one at least of each loop."""
    found, done, path = set(), set(), {root}
    # No recursion: a chain of `$ref` may be longer than the interpreter's stack is deep.
    waiting = [(root, iter(nodes[root].edges))]
    while waiting:
        at, edges = waiting[-1]
        for _, to in edges:
            if to in path:
                found.add(to)
            elif to not in done:
                path.add(to)
                waiting.append((to, iter(nodes[to].edges)))
                break
        else:
            waiting.pop()
            path.discard(at)
            done.add(at)
    return found


def _repeated(nodes: dict[int, SchemaNode], root: int, looping: set[int]) -> set[int]:
    """Schemas that apply to any number of places."""
    repeated: set[int] = set()
    seen = {root}
    waiting = [(root, root in looping)]
    while waiting:
        at, is_repeated = waiting.pop()
        if is_repeated:
            repeated.add(at)
        for keyword, to in nodes[at].edges:
            is_so = is_repeated or keyword in _ANY_NUMBER or to in looping
            if to not in seen or (is_so and to not in repeated):
                seen.add(to)
                waiting.append((to, is_so))
    return repeated


def _worded_depth(nodes: dict[int, SchemaNode]) -> int | None:
    branches = max(sum(len(node.schema.get(keyword, ())) for keyword in _ALTERNATIVES) for node in nodes.values())
    # With so many alternatives at each level, errors grow as branches ** depth: solved for the depth.
    return None if branches < 2 else max(1, int(math.log(_MAX_DESCRIBED) / math.log(branches)))


class _Amounts(msgspec.Struct):
    """The amounts in an argument that may be costly."""

    large_integers: int
    numbers: int
    names: int
    matched: int
    """Characters of texts that are short enough to be matched."""

    @classmethod
    def of(cls, instance: Json) -> "_Amounts":
        large_integers = numbers = names = matched = 0
        waiting = [instance]
        while waiting:
            match waiting.pop():
                case dict() as members:
                    names += len(members)
                    waiting.extend(members.values())
                case list() as items:
                    waiting.extend(items)
                # A longer text is never matched with a costly pattern (`guarded`).
                case str() as text if len(text) <= MAX_MATCHED_LENGTH:
                    matched += len(text)
                case int() | float() as number:
                    numbers += 1
                    large_integers += isinstance(number, int) and abs(number) > _MAX_EXACT_INTEGER
        return cls(large_integers=large_integers, numbers=numbers, names=names, matched=matched)
