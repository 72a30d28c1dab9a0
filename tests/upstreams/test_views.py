"""Views with upstream tools: lists, search and calls."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from gateway.app.gateway import Gateway
from gateway.config.settings import read_settings
from gateway.errors import RpcError
from tests.behaviour.inside import Client
from tests.upstreams.upstream_servers import over_stdio

FILE: Final = """
tools:
  own: {{description: Of the file., tags: [few], content: [{{text: own}}]}}
upstreams:
  shelf:
    {entry}
    tags: [few]
views:
  some: {{include: {{tools: [shelf_a*]}}}}
  tagged: {{include: {{tags: [few]}}, exclude: {{tools: ["*_fail"]}}}}
  searched: {{search: true, always: [shelf_echo]}}
"""


async def names(client: Client) -> list[str]:
    return [tool["name"] for tool in (await client.request("tools/list"))["tools"]]


async def offered(client: Client, gateway: Gateway) -> None:
    """Wait for the first lists, which can take longer than the start waits."""
    async with asyncio.timeout(60):
        while True:
            with suppress(RpcError):
                if (await client.call("shelf_add", a=1, b=1))["structuredContent"] == {"sum": 2}:
                    return
            await gateway.app.reloads.reload()
            await asyncio.sleep(0.2)


@pytest.mark.parametrize("view", ["some", "tagged", "searched"])
async def test_views_contain_selected_upstream_tools(tmp_path: Path, view: str) -> None:
    (tmp_path / "config.yaml").write_text(FILE.format(entry=over_stdio()))
    where = {"config": tmp_path / "config.yaml", "http": "127.0.0.1:0", "view": view}
    settings = {**where, "log_level": "error"}
    async with Gateway(read_settings(settings)) as gateway:
        await gateway.start()
        client = Client(gateway)
        await offered(client, gateway)
        listed = await names(client)
        match view:
            case "some":
                assert "shelf_add" in listed
                assert all(name.startswith("shelf_a") for name in listed)
                with pytest.raises(RpcError, match="Unknown tool: own"):
                    await client.call("own")
            case "tagged":
                assert {"own", "shelf_add", "shelf_echo"} <= {*listed}
                assert "shelf_fail" not in listed
            case _:
                assert listed == ["search_tools", "call_tool", "shelf_echo"]
                found = await client.call("search_tools", query="add numbers")
                assert found["structuredContent"]["tools"][0]["name"] == "shelf_add"
                result = await client.call("call_tool", name="shelf_add", arguments={"a": 2, "b": 3})
                assert result["structuredContent"] == {"sum": 5}
                assert (await client.call("shelf_add", a=2, b=2))["structuredContent"] == {"sum": 4}
