"""`/-/api/overview` returns the health, the call rates of the last hour, and client configurations."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from aiohttp import web

from gateway.client_configs.clients import CLIENTS, HttpServerEntry
from gateway.config.secrets.redactor import LiveRedactor
from gateway.config.settings import TOKEN_VARIABLE
from gateway.console.responses import json_response_by_thread, number_of, problem_json
from gateway.errors import Problem, Severity
from gateway.json_types import Json, JsonObject
from gateway.transports.http.request import HttpRequest

_NAMES: Final = frozenset({"tools", "resources", "prompts", "skills", "left_out", "disabled"})
"""Keys of the status that list definitions by name. With `?names=0`, each list is replaced by its length."""


async def overview(  # noqa: PLR0913 - the parts of the overview
    request: HttpRequest,
    *,
    status: JsonObject,
    rates: JsonObject,
    problems: Sequence[Problem],
    clients: Iterable[JsonObject],
    counts: JsonObject,
    redactor: LiveRedactor,
) -> web.Response:
    most = number_of(request.raw.query.get("problems"))
    # Thousands of tools can have a warning each. The page refreshes every ten seconds and shows only a few.
    if most is not None:
        status = {**status, "warnings": []}
    if request.raw.query.get("names") == "0":
        status = {**status, **{key: len(status[key]) for key in _NAMES & status.keys()}}
    answer = {
        "status": status,
        "rates": rates,
        "problemCounts": dict(Counter(each.severity.value for each in problems)),
        "clients": list(clients),
        "counts": counts,
    }

    def made() -> Json:
        errors_first = sorted(problems, key=lambda each: each.severity is not Severity.ERROR)
        return {**answer, "problems": redactor.json([problem_json(each) for each in errors_first[:most]])}

    return await json_response_by_thread(made, request)


def snippets(url: str, *, name: str, needs_key: bool) -> Iterator[dict[str, Json]]:
    """Yield a configuration for each client.

    The snippets refer to an environment variable instead of containing a key.
    """
    server = HttpServerEntry(name=name, url=url, key_variable=TOKEN_VARIABLE if needs_key else None)
    for key, client in CLIENTS.items():
        yield {
            "name": key,
            "title": client.title,
            "text": client.text(server),
            "notation": "text" if client.uses_steps(server) else client.notation.name,
            "file": None if client.uses_steps(server) else client.file,
            "link": None if client.link is None else client.link(name, client.entry(server), client.questions(server)),
        }
