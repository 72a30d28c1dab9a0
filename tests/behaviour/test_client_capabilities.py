"""Calls that need a capability are rejected for clients without it."""

import pytest

from tests.behaviour.cells import Cell, cells
from tests.behaviour.conftest import NewClient
from tests.requirements import requirement

pytestmark = pytest.mark.asyncio(loop_scope="session")


@cells()
@requirement("capabilities/client-required")
async def test_missing_client_capability_is_an_error_of_its_era(cell: Cell, new_client: NewClient) -> None:
    client = await new_client(cell, capabilities={"elicitation": {}})
    answer = await client.call("models_only")
    if cell.is_modern:
        assert answer.error["code"] == -32021
        assert answer.error["data"] == {"requiredCapabilities": {"sampling": {}}}
        assert answer.status in {None, 400}
    else:
        assert answer.result["isError"] is True
        assert "sampling" in answer.text
    read = await client.ask("resources/read", {"uri": "test://models-only"})
    assert read.error["code"] == (-32021 if cell.is_modern else -32603)


@cells()
@requirement("capabilities/client-required")
async def test_client_with_the_capability_is_served(cell: Cell, new_client: NewClient) -> None:
    client = await new_client(cell, capabilities={"sampling": {}})
    assert (await client.call("models_only")).text == "sampled"
    assert (await client.ask("resources/read", {"uri": "test://models-only"})).result["contents"]
