"""Questions of plugins to the client, over each binding and in each revision."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio
from aiohttp import web

from gateway.json_types import Json, JsonObject
from tests import local_server
from tests.behaviour.cells import STDIO, Cell, cells
from tests.behaviour.client import Answer, Client
from tests.behaviour.conftest import NewClient
from tests.behaviour.daemons import serving
from tests.e2e.daemon import Daemon
from tests.requirements import requirement

pytestmark = pytest.mark.asyncio(loop_scope="session")

CONFIG: Final = Path(__file__).parent / "testdata" / "asking" / "config.yaml"
EVERYTHING: Final[JsonObject] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
FORMS_SINCE: Final = "2025-06-18"
LINKS_SINCE: Final = "2025-11-25"


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def page() -> AsyncIterator[str]:
    """The URL of a page for the tool that fetches one."""

    async def hello(_request: web.Request) -> web.Response:
        return web.Response(text="fetched")

    app = web.Application()
    app.router.add_get("/", hello)
    async with local_server.listening(app) as port:
        url = f"http://127.0.0.1:{port}"
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("ASKING_URL", f"{url}/")
            yield url


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def listening(page: str, processes: AsyncExitStack) -> Daemon:
    """The shared HTTP daemon."""
    return await processes.enter_async_context(serving(CONFIG))


@pytest_asyncio.fixture(loop_scope="session")
async def daemon(cell: Cell, page: str, listening: Daemon) -> AsyncIterator[Daemon]:
    if cell.binding != STDIO:
        yield listening
        return
    async with serving(CONFIG, "--stdio") as process:
        yield process


async def text(client: Client, tool: str, **arguments: Json) -> str:
    answer = await client.converse("tools/call", {"name": tool, "arguments": arguments})
    return f"{'error: ' if answer.result.get('isError') else ''}{answer.text}".strip()


async def converse(client: Client, tool: str) -> Answer:
    return await client.converse("tools/call", {"name": tool})


@cells(since=FORMS_SINCE)
@requirement("elicitation/form", "sampling/create", "roots/list", "asking/several")
async def test_plugin_asks_all_kinds_of_questions(cell: Cell, new_client: NewClient, daemon: Daemon) -> None:
    client = await new_client(cell, capabilities=EVERYTHING, daemon=daemon)
    for tool in ("on_the_loop", "in_a_thread"):
        answer = await converse(client, tool)
        assert answer.result["structuredContent"] == {
            "form": {"text": "John", "number": 1.5, "flag": True, "one": "b", "titled": "a"}
            if cell.revision > FORMS_SINCE
            else {"text": "Ada", "number": 7.5, "flag": True, "one": "a", "titled": "a"},
            "sample": "echo Say something",
            "model": "parrot",
            "roots": ["file:///home/ada"],
            "several": ["again", "name", "where"],
            "name": "Ada",
        }
        assert await text(client, "steps") == "1"
    assert len(client.asked) == 12
    letter = await client.converse("prompts/get", {"name": "letter"})
    assert letter.result["messages"][0]["content"]["text"] == "Dear Ada"
    read = await client.converse("resources/read", {"uri": "x://asks"})
    assert read.result["contents"][0]["text"] == "Hello Ada"


@cells(since=LINKS_SINCE)
@requirement("elicitation/url")
async def test_user_is_sent_to_a_url(cell: Cell, new_client: NewClient, daemon: Daemon) -> None:
    client = await new_client(cell, capabilities=EVERYTHING, daemon=daemon)
    assert await text(client, "linked") == "accept"
    assert ("elicitationId" in client.asked[0]["params"]) != cell.is_modern
    assert await text(client, "chosen") == "accept {'many': ['a']}"


@cells()
@requirement("asking/declared")
async def test_client_without_the_capability_is_not_asked(cell: Cell, new_client: NewClient, daemon: Daemon) -> None:
    client = await new_client(cell, capabilities={"roots": {}}, daemon=daemon)
    for tool in ("named", "linked", "by_shell"):
        answer = await client.ask(
            "tools/call", {"name": tool, "arguments": {"file": "a"} if tool == "by_shell" else {}}
        )
        if cell.is_modern:
            assert answer.error["code"] == -32021
            assert answer.status in {None, 400}
        else:
            assert answer.result["isError"]
        if tool == "by_shell":  # `confirm`
            told = answer.error["message"] if cell.is_modern else answer.text
            needed = "the user must confirm this call, which needs a client with the capability elicitation"
            assert told == f"Nothing was done: {needed}"
    assert await text(client, "without_asking") == "done"
    assert client.asked == []


@cells(until="2025-03-26")
@requirement("asking/declared", "sampling/create")
async def test_revisions_without_forms_still_sample(cell: Cell, new_client: NewClient, daemon: Daemon) -> None:
    client = await new_client(cell, capabilities=EVERYTHING, daemon=daemon)
    assert await text(client, "chatty", times=2) == "said enough"
    assert len(client.asked) == 2
    assert await text(client, "named") == "error: This needs a client with the capability elicitation"


@cells(since=FORMS_SINCE)
@requirement("elicitation/form")
async def test_every_kind_of_tool_can_be_confirmed_or_declined(
    cell: Cell, new_client: NewClient, daemon: Daemon
) -> None:
    client = await new_client(cell, capabilities=EVERYTHING, daemon=daemon)
    assert await text(client, "by_shell", file="a.txt") == "deleted a.txt"
    assert await text(client, "by_http") == "fetched"
    assert await text(client, "by_python") == "accept {'name': 'Ada'}"
    assert await text(client, "without_asking") == "done"
    assert [each["params"]["message"] for each in client.asked] == ["Delete a.txt?", *["Sure?"] * 2, "Who?", "Sure?"]
    for action, did in (("decline", "declined"), ("cancel", "dismissed the question")):
        client.respond = lambda _method, _params, action=action: {"action": action}  # type: ignore[misc]
        for tool, arguments in (
            ("by_shell", {"file": "a"}),
            ("by_http", {}),
            ("by_python", {}),
            ("without_asking", {}),
        ):
            assert await text(client, tool, **arguments) == f"error: The user {did}; nothing was done."


def respond_with_invalid_content(_method: str, _params: JsonObject) -> Json:
    return {"action": "accept", "content": {"name": 7}}


@cells(since=FORMS_SINCE)
@requirement("asking/malformed")
async def test_invalid_response_to_a_question_is_an_error_of_its_era(
    cell: Cell, new_client: NewClient, daemon: Daemon
) -> None:
    client = await new_client(cell, capabilities=EVERYTHING, daemon=daemon)
    client.respond = respond_with_invalid_content
    answer = await converse(client, "named")
    if cell.is_modern:
        assert answer.error["code"] == -32602
    else:
        assert answer.result["isError"]
        assert "does not match the requested schema: /name must be a string, was 7" in answer.text


@cells(since="2026-07-28")
@requirement("mrtr/state", "mrtr/retry")
async def test_request_state_and_confirmation_are_used_once(cell: Cell, new_client: NewClient, daemon: Daemon) -> None:
    client = await new_client(cell, capabilities=EVERYTHING, daemon=daemon)
    params = {"name": "by_shell", "arguments": {"file": "a"}}
    asked = (await client.ask("tools/call", params)).result
    retry = {**params, **client._answers(asked)}
    for change in ({"arguments": {"file": "b"}}, {"name": "by_http", "arguments": {}}, {"requestState": "x"}):
        assert (await client.ask("tools/call", {**retry, **change})).error["code"] == -32602
    assert (await client.ask("tools/call", retry)).text == "deleted a\n"
    assert (await client.ask("tools/call", retry)).result["resultType"] == "input_required"
