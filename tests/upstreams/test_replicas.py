"""Retries that arrive at another replica than the one whose call to a legacy upstream waits for the answer."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from gateway.json_types import Json, JsonObject
from tests.behaviour.cells import Cell
from tests.behaviour.client import Client
from tests.behaviour.conftest import NewClient
from tests.redis_server import redis_server
from tests.replicas import KEY, Replica
from tests.upstreams.upstream_servers import over_stdio, until_offered

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.build]

MODERN: Final = Cell(binding="http", revision="2026-07-28")
ASKING: Final = '''
from pathlib import Path

from gateway.plugin import Context, ToolError

NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


async def twice(context: Context, mark: str) -> dict[str, object]:
    """Ask for two names."""
    with Path(mark).open("a") as file:
        file.write("begun ")
    answers = [await context.elicit(key, f"Your {key} name?", NAME) for key in ("first", "last")]
    if any(answer.action != "accept" for answer in answers):
        raise ToolError("no answer")
    return {"long": 2**70, "names": [answer.content["name"] for answer in answers]}

'''


@asynccontextmanager
async def two(folder: Path) -> AsyncIterator[list[Replica]]:
    """Start two replicas with a legacy upstream each."""
    server = folder / "upstream" / "server.yaml"
    (server.parent / "plugins").mkdir(parents=True)
    (server.parent / "plugins" / "asking.py").write_text(ASKING)
    server.write_text(
        "plugins: [plugins]\ntools:\n  twice: {python: 'asking:twice'}\n"
        "  again: {python: 'asking:twice', annotations: {idempotent: true, destructive: false}}\n"
    )
    config = folder / "config.yaml"
    config.write_text(f"upstreams:\n  shelf:\n    {over_stdio(server, era='legacy')}\n")
    async with AsyncExitStack() as stack:
        redis = await stack.enter_async_context(redis_server(folder / "redis"))
        environment = {"MCP_GATEWAY_STORE": redis.url, "MCP_GATEWAY_SECRET_KEY": KEY}
        made = [
            Replica(config=config, address="127.0.0.1:0", flags=(), environment=environment, watch=False)
            for _ in range(2)
        ]
        for each in made:
            stack.push_async_callback(each.kill)
            await each.start()
            await until_offered(each.daemon, "shelf_twice")
        yield made


def retry(client: Client, params: JsonObject, asked: JsonObject, **answers: Json) -> dict[str, Json]:
    """Return the parameters of the retry with the answers."""
    given = {key: {"action": "accept", "content": answers} for key in asked["inputRequests"]}
    return {**params, "inputResponses": given, "requestState": asked["requestState"]}


async def test_retry_at_another_replica_repeats_only_idempotent_calls(tmp_path: Path, new_client: NewClient) -> None:
    mark = tmp_path / "mark"
    async with two(tmp_path) as replicas:
        here, there = [
            await new_client(MODERN, capabilities={"elicitation": {"form": {}}}, daemon=each.daemon)
            for each in replicas
        ]
        params: JsonObject = {"name": "shelf_twice", "arguments": {"mark": str(mark)}}
        asked = (await here.ask("tools/call", params)).result
        failed = (await there.ask("tools/call", retry(there, params, asked, name="Ada"))).result
        assert failed["isError"]
        assert "another replica" in failed["content"][0]["text"]
        assert mark.read_text() == "begun "
        again = (await here.ask("tools/call", retry(here, params, asked, name="Ada"))).result
        assert questions(again) == ["Your last name?"]

        params = {"name": "shelf_again", "arguments": {"mark": str(mark)}}
        asked = (await here.ask("tools/call", params)).result
        again = (await there.ask("tools/call", retry(there, params, asked, name="Ada"))).result
        assert questions(again) == ["Your first name?"]
        assert mark.read_text() == "begun begun begun "
        again = (await there.ask("tools/call", retry(there, params, again, name="Ada"))).result
        assert questions(again) == ["Your last name?"]
        done = (await there.ask("tools/call", retry(there, params, again, name="Lovelace"))).result
        assert done["structuredContent"] == {"long": 2**70, "names": ["Ada", "Lovelace"]}
        assert mark.read_text() == "begun begun begun "


def questions(asked: JsonObject) -> list[str]:
    return [each["params"]["message"] for each in asked["inputRequests"].values()]
