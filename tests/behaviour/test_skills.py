"""Agents find, verify and read skills. Clients of older revisions read them as resources."""

import base64
import hashlib
from typing import Final

import pytest

from gateway.json_types import Json
from tests.behaviour.cells import LATEST, LATEST_LEGACY, cells
from tests.behaviour.client import Client, listed
from tests.requirements import requirement

pytestmark = pytest.mark.asyncio(loop_scope="session")

SKILL: Final = "skill://door-keeping/SKILL.md"
FILES: Final = [
    SKILL,
    "skill://door-keeping/references/guest-1.md",
    "skill://door-keeping/references/guest-2.md",
    "skill://door-keeping/references/knocks.md",
]
METHODS: Final = ("skills/list", "skills/get", "resources/directory/read")


async def content(client: Client, uri: str) -> bytes:
    [item] = (await client.ask("resources/read", {"uri": uri})).result["contents"]
    return base64.b64decode(item["blob"]) if "blob" in item else str(item["text"]).encode()


@cells()
@requirement("skills/resources")
async def test_each_file_of_a_skill_is_a_resource_in_every_revision(client: Client) -> None:
    resources = {each["uri"]: each for each in await listed(client, "resources/list", "resources")}
    assert [uri for uri in resources if uri.startswith("skill://")] == FILES
    skill = resources[SKILL]
    assert (skill["name"], skill["mimeType"]) == ("door-keeping", "text/markdown")
    assert skill["description"] == "Opens the door to guests. Use it when somebody knocks."
    assert "_meta" not in skill
    assert await content(client, FILES[-1]) == b"Three.\n"


@cells(since=LATEST)
@requirement("skills/declared")
async def test_extension_is_declared(client: Client) -> None:
    extensions = (await client.ask("server/discover")).result["capabilities"]["extensions"]
    assert extensions["io.modelcontextprotocol/skills"] == {"directoryRead": True}


@cells(until=LATEST_LEGACY)
@requirement("skills/declared")
async def test_skill_methods_are_unknown_in_older_revisions(client: Client) -> None:
    assert "extensions" not in client.initialized["capabilities"]
    for method in METHODS:
        assert (await client.ask(method, {"uri": SKILL})).error["code"] == -32601


@cells(since=LATEST)
@requirement("skills/entry")
async def test_skill_lists_the_digest_of_each_file(client: Client) -> None:
    [entry] = await listed(client, "skills/list", "skills")
    assert entry["uri"] == SKILL
    assert entry["frontmatter"] == {
        "name": "door-keeping",
        "description": "Opens the door to guests. Use it when somebody knocks.",
        "on": "2026-01-31",
    }
    assert [each["uri"] for each in entry["resources"]] == FILES
    for each in entry["resources"]:
        data = await content(client, each["uri"])
        assert (each["digest"], each["size"]) == (f"sha256:{hashlib.sha256(data).hexdigest()}", len(data))


@cells(since=LATEST)
@requirement("skills/entry", "caching/hints")
async def test_skill_is_returned_by_its_uri(client: Client) -> None:
    [entry] = await listed(client, "skills/list", "skills")
    result = (await client.ask("skills/get", {"uri": SKILL})).result
    assert result.keys() == {"skill", "ttlMs", "cacheScope", "resultType", "_meta"}
    assert result["skill"] == entry
    assert (result["ttlMs"], result["cacheScope"], result["resultType"]) == (7000, "public", "complete")


@cells(since=LATEST)
@requirement("skills/unknown")
async def test_unknown_skill_is_invalid_params(client: Client) -> None:
    unknown: list[Json] = [FILES[1], "skill://door-keeping", "skill://no/SKILL.md", "test://note", "", None, 4]
    for uri in unknown:
        assert (await client.ask("skills/get", {"uri": uri})).error["code"] == -32602, uri
    for uri in [
        SKILL,
        "skill://door-keeping/",
        "skill://door-keeping/references/",
        "skill://",
        "test://note",
        "",
        None,
    ]:
        assert (await client.ask("resources/directory/read", {"uri": uri})).error["code"] == -32602, uri


@cells(since=LATEST)
@requirement("skills/directory")
async def test_directory_lists_only_direct_children(client: Client) -> None:
    result = (await client.ask("resources/directory/read", {"uri": "skill://door-keeping"})).result
    assert [(each["uri"], each["mimeType"]) for each in result["resources"]] == [
        (SKILL, "text/markdown"),
        ("skill://door-keeping/references", "inode/directory"),
    ]
    assert "nextCursor" not in result
    known = {each["uri"]: each for each in await listed(client, "resources/list", "resources")}
    result = (await client.ask("resources/directory/read", {"uri": "skill://door-keeping/references"})).result
    assert result["resources"] == [known[uri] for uri in FILES[1:]]
