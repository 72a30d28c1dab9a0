"""Reading resources, and subscribing to their changes."""

import pytest

from gateway.json_types import Json
from tests.behaviour.cells import LATEST, LATEST_LEGACY, cells
from tests.behaviour.client import Client
from tests.requirements import requirement

pytestmark = pytest.mark.asyncio(loop_scope="session")


@cells()
@requirement("resources/read", "caching/read")
async def test_text_and_bytes_are_read(client: Client) -> None:
    note = (await client.ask("resources/read", {"uri": "test://note"})).result
    assert note["contents"] == [{"uri": "test://note", "mimeType": "text/plain", "text": "Remember."}]
    assert isinstance(note.get("ttlMs"), int) == client.cell.is_modern
    assert note.get("cacheScope") == ("public" if client.cell.is_modern else None)
    [contents] = (await client.ask("resources/read", {"uri": "test://bytes"})).result["contents"]
    assert contents == {"uri": "test://bytes", "mimeType": "image/png", "blob": "iVBORw0KGgo="}


@cells(since=LATEST)
@requirement("caching/read")
async def test_results_that_differ_by_caller_are_cached_per_caller(client: Client) -> None:
    expected = {"test://third": (90_000, "public"), "test://mine": (60_000, "private"), "test://note": (0, "public")}
    for uri, hints in expected.items():
        result = (await client.ask("resources/read", {"uri": uri})).result
        assert (result["ttlMs"], result["cacheScope"]) == hints


@cells()
@requirement("resources/template")
async def test_template_is_read_under_each_of_its_uris(client: Client) -> None:
    [contents] = (await client.ask("resources/read", {"uri": "test://guest/Ad%C3%A1"})).result["contents"]
    assert (contents["uri"], contents["text"]) == ("test://guest/Ad%C3%A1", "Here lives Adá.")


@cells()
@requirement("resources/not-found")
async def test_unknown_resource_has_the_error_code_of_its_era(client: Client) -> None:
    for uri in ("test://nothing", "", "nonsense", "file:///etc/passwd", "test://guest/a/b"):
        answer = await client.ask("resources/read", {"uri": uri})
        assert answer.error["code"] == (-32602 if client.cell.is_modern else -32002)
        assert answer.error["data"] == {"uri": uri}
        assert answer.status in {None, 200}


@cells()
@requirement("resources/malformed-read")
async def test_malformed_read_is_invalid_params(client: Client) -> None:
    malformed: list[Json] = [{}, {"uri": None}, {"uri": ["test://note"]}]
    for params in malformed:
        assert (await client.ask("resources/read", params)).error["code"] == -32602, params


@cells(until=LATEST_LEGACY)
@requirement("resources/subscribe")
async def test_readable_resource_can_be_subscribed_and_unsubscribed(client: Client) -> None:
    for uri in ("test://note", "test://guest/ada"):
        assert (await client.ask("resources/subscribe", {"uri": uri})).result == {}
        assert (await client.ask("resources/unsubscribe", {"uri": uri})).result == {}
    assert (await client.ask("resources/unsubscribe", {"uri": "test://never"})).result == {}
    refused = await client.ask("resources/subscribe", {"uri": "test://nothing"})
    assert refused.error["code"] == -32002
    assert (await client.ask("resources/subscribe", {})).error["code"] == -32602
