"""The two tools of a view with `search: true`: `search_tools` finds tools, and `call_tool` calls them.

`call_tool` is rewritten to the named tool before the call is processed. Access, limits, metrics, audit and input
requests therefore see the real name and arguments.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from math import log
from typing import Final, NoReturn

import orjson
from msgspec.structs import replace

from gateway import exact_json
from gateway.catalog.catalog import Catalog
from gateway.catalog.primitives import Tool
from gateway.errors import ExecutionError
from gateway.executors.invocation import Executor, Explanation, FunctionExecutor, Invocation, Outcome, Value
from gateway.json_types import Json, JsonObject
from gateway.language.schemas.keywords import properties_of
from gateway.threads import DaemonThreadPool, run_in_thread
from gateway.wire import downgrade
from gateway.wire.jsonrpc import Request

_K1: Final = 1.2
"""BM25 parameter: how soon repeated words stop increasing the score."""
_B: Final = 0.75
"""BM25 parameter: how strongly a long description reduces the score, from 0 to 1."""
_NAME_WEIGHT: Final = 3
"""Weight of words in names and titles, relative to words in descriptions."""
_MIN_PREFIX: Final = 3
_MAX_ENDING: Final = 4
"""Maximum difference between the lengths of two forms of a word, such as `run` and `running`."""
_UNSPACED: Final = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
"""Regex class of scripts without spaces between words, and of Korean, which appends particles to words."""
_WORD: Final = re.compile(rf"[{_UNSPACED}]+|[^\W_{_UNSPACED}]+")
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class ToolIndex:
    def __init__(self, definitions: Iterable[JsonObject]) -> None:
        self._counts: Final = [Counter(_words_of(each)) for each in definitions]
        self._lengths: Final = [count.total() for count in self._counts]
        self._mean: Final = sum(self._lengths) / max(1, len(self._lengths)) or 1
        self._holders: Final = Counter(word for count in self._counts for word in count)

    def ranked(self, query: str, *, limit: int) -> Sequence[int]:
        """Return the indexes of matching tools, best first. Tools with equal scores keep their order."""
        terms: dict[str, float] = {}
        for word in words(query):
            forms = self._terms(word)
            # A rare form must not outrank the word itself: a search for `repo` also finds `report`.
            rarity = min(map(self._rarity, forms), default=0)
            for form in forms:
                weight = rarity if form == word or word not in forms else rarity / 2
                terms[form] = max(weight, terms.get(form, 0))
        scores = ((self._score(position, terms), -position) for position in range(len(self._counts)))
        return [-position for score, position in sorted(scores, reverse=True)[:limit] if score > 0]

    def _terms(self, word: str) -> Sequence[str]:
        """Return the known forms of `word`. Without any, return all known words that start with `word`."""
        if len(word) == 1 and re.fullmatch(f"[{_UNSPACED}]", word):
            return [known for known in self._holders if word in known]
        forms = [known for known in self._holders if _are_forms(word, known)]
        if forms or len(word) < _MIN_PREFIX:
            return forms
        return [known for known in self._holders if known.startswith(word)]

    def _score(self, position: int, terms: Mapping[str, float]) -> float:
        count = self._counts[position]
        damping = _K1 * (1 - _B + _B * self._lengths[position] / self._mean)
        return sum(
            weight * count[term] * (_K1 + 1) / (count[term] + damping)
            for term, weight in terms.items()
            if term in count
        )

    def _rarity(self, term: str) -> float:
        holders = self._holders[term]
        # The 1 keeps the result positive for words in more than half of the tools.
        return log(1 + (len(self._counts) - holders + 0.5) / (holders + 0.5))


def _are_forms(one: str, other: str) -> bool:
    """Whether two words differ at most in their endings, such as `repository` and `repositories`."""
    shorter = min(len(one), len(other))
    # The last letter of a longer word can change before an ending.
    same = max(_MIN_PREFIX, shorter if shorter < 5 else shorter - 1)
    return one == other or (abs(len(one) - len(other)) <= _MAX_ENDING and one[:same] == other[:same])


def words(text: str) -> list[str]:
    """Return the words in lower case, splitting `snake_case` and `camelCase`.

    Text in scripts without spaces is split into pairs of characters.
    """
    # NFKC unifies characters that look alike, such as half-width forms.
    parts = _WORD.findall(unicodedata.normalize("NFKC", text))
    return [word for part in parts for hump in _HUMP.split(part) for word in _split(hump.lower())]


def _split(word: str) -> list[str]:
    if not re.match(f"[{_UNSPACED}]", word):
        return [word]
    return [word[at : at + 2] for at in range(max(1, len(word) - 1))]


def _words_of(definition: JsonObject) -> Iterator[str]:
    titles = f"{definition.get('name', '')} {definition.get('title', '')}"
    yield from words(titles) * _NAME_WEIGHT
    yield from words(_text(definition.get("description")))
    schema = definition.get("inputSchema")
    for name, parameter in properties_of(schema).items() if isinstance(schema, dict) else ():
        yield from words(name)
        if isinstance(parameter, dict):
            yield from words(f"{_text(parameter.get('title'))} {_text(parameter.get('description'))}")


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""


SEARCH_TOOLS: Final = "search_tools"
CALL_TOOL: Final = "call_tool"
OWN_NAMES: Final = (SEARCH_TOOLS, CALL_TOOL)
MAX_FOUND: Final = 50
"""Maximum number of tools in a search result."""


def with_search(
    part: Catalog, *, tools: Mapping[str, Tool], always: re.Pattern[str] | None, threads: DaemonThreadPool
) -> Catalog:
    """Add the two search tools, and list only these two and the tools that match `always`."""
    listed = [tool for name, tool in part.tools.items() if always is not None and always.match(name)]
    found = search_executor(tuple(filter(_is_for_models, part.tools.values())), threads=threads)
    own = {**tools, SEARCH_TOOLS: replace(tools[SEARCH_TOOLS], executor=found)}
    shown = part.with_listed_tools([*own.values(), *listed])
    return replace(shown, tools={**own, **{name: tool for name, tool in part.tools.items() if name not in own}})


def _is_for_models(tool: Tool) -> bool:
    """Whether models can call the tool (SEP-1865, "Visibility"). Malformed metadata is ignored."""
    match tool.definition.get("_meta"):
        case {"ui": {"visibility": [*whom]}}:
            return "model" in whom
    return True


def search_executor(tools: Sequence[Tool], *, threads: DaemonThreadPool) -> Executor:
    """Return an executor that searches the tools of one caller's catalog."""
    index = cache(lambda: ToolIndex(tool.definition for tool in tools))  # built in a thread, by the first search

    async def execute(invocation: Invocation) -> Outcome:
        query, limit = invocation.arguments["query"], invocation.arguments["limit"]
        positions = await run_in_thread(
            lambda: index().ranked(query, limit=limit), what="The search", call=invocation, threads=threads
        )
        revision = invocation.context.protocol_version
        return Value(value={"tools": [downgrade.tool(tools[each].definition, revision) for each in positions]})

    explanation = Explanation(does="looks for tools", facts={"among": len(tools)})
    return FunctionExecutor(lambda _: explanation, execute)


def refuse_call(invocation: Invocation) -> NoReturn:
    """Raise an error that explains why a call of `call_tool` was not rewritten."""
    name = invocation.arguments["name"]
    if name == CALL_TOOL:
        raise ExecutionError(f"`{CALL_TOOL}` cannot call itself. Give it the name of another tool")
    raise ExecutionError(f"`{name}` was not called: its `arguments` must be an object")


def unwrapped(request: Request, catalog: Catalog) -> Request:
    """Rewrite a valid call of `call_tool` to a call of the named tool. Return other requests unchanged."""
    if catalog.listed_tools is None or request.method != "tools/call" or request.params.get("name") != CALL_TOOL:
        return request
    given = request.params.get("arguments")
    if not isinstance(given, dict) or not given.keys() <= {"name", "arguments"}:
        return request
    name, arguments = given.get("name"), _object(given.get("arguments"))
    if not isinstance(name, str) or name == CALL_TOOL or not isinstance(arguments, dict):
        return request
    return replace(request, params={**request.params, "name": name, "arguments": arguments})


def _object(value: Json) -> Json:
    """Parse a JSON string, which some models send instead of an object. Convert null to an empty object."""
    if not isinstance(value, str):
        return {} if value is None else value
    try:
        return exact_json.loads(value)
    except orjson.JSONDecodeError:
        return value
