"""Pages of skills and skill directories. Cursors expire with the list, and scopes hide skills."""

from pathlib import Path
from typing import Final

from gateway.json_types import JsonObject
from tests.behaviour.inside import Client, product
from tests.requirements import requirement

HEAD: Final = "---\nname: {name}\ndescription: Does {name}.\n---\n"
NAMES: Final = [f"skill-{number}" for number in range(5)]
FILES: Final = {
    **{f"skills/{name}/SKILL.md": HEAD.format(name=name) for name in NAMES},
    **{f"skills/skill-0/data/{number}.txt": str(number) for number in range(5)},
}


async def pages(client: Client, method: str, member: str, **given: str) -> list[list[JsonObject]]:
    found: list[list[JsonObject]] = []
    cursor: dict[str, str] = {}
    while True:
        result = await client.request(method, {**given, **cursor})
        found.append(result[member])
        if "nextCursor" not in result:
            return found
        cursor = {"cursor": result["nextCursor"]}


@requirement("skills/pages")
async def test_pages_contain_each_entry_once(tmp_path: Path) -> None:
    async with product(tmp_path, "server: {page_size: 2}\nskills: [skills/*]", FILES) as client:
        skills = await pages(client, "skills/list", "skills")
        children = await pages(client, "resources/directory/read", "resources", uri="skill://skill-0/data")
        first = await client.request("skills/list")
        foreign = {"uri": "skill://skill-0/data", "cursor": first["nextCursor"]}
        error = await client.error("resources/directory/read", foreign)
        other = await client.request("resources/directory/read", {"uri": "skill://skill-0/data"})
        stolen = {"uri": "skill://skill-0", "cursor": other["nextCursor"]}
        assert (await client.error("resources/directory/read", stolen)).code == error.code == -32602
    assert [len(page) for page in skills] == [len(page) for page in children] == [2, 2, 1]
    assert [each["frontmatter"]["name"] for page in skills for each in page] == NAMES
    assert [each["name"] for page in children for each in page] == [f"data/{number}.txt" for number in range(5)]


@requirement("caching/hints")
async def test_entry_with_scopes_is_not_publicly_cacheable(tmp_path: Path) -> None:
    text = """
        auth: {api_keys: {ops: {secret: correct-horse-battery-staple, scopes: [x]}}}
        skills:
          - skills/skill-0
          - {dir: skills/skill-1, access: {scopes: [secret]}}
          - {dir: skills/skill-2, access: {scopes: [secret], visible: true}}
    """
    async with product(tmp_path, text, FILES) as client:
        every = await client.request("skills/list")
        assert [each["frontmatter"]["name"] for each in every["skills"]] == NAMES[:3]
        assert every["cacheScope"] == "private"
        got = await client.request("skills/get", {"uri": "skill://skill-1/SKILL.md"})
        assert got["cacheScope"] == "private"
        assert (await client.request("skills/get", {"uri": "skill://skill-0/SKILL.md"}))["cacheScope"] == "public"
