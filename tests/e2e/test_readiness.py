"""Probes are public, but only operators see the problems of the file."""

from pathlib import Path

import aiohttp
import pytest

from tests.e2e.daemon import serving

BROKEN = "tools: {withheld_tool: {descripton: x}}\n"
KEY, OTHER_KEY = "key-of-the-operator!", "key-of-a-user-of-it!"
FILES = {
    "open": "tools: {}\n",
    "with keys": (
        f"auth: {{api_keys: {{operator: {{secret: {KEY}, scopes: ['gateway:admin']}}, "
        f"user: {{secret: {OTHER_KEY}}}}}}}\n"
    ),
    "separate admin listener": "listen: {admin: '127.0.0.1:0'}\ntools: {}\n",
}


@pytest.mark.parametrize(
    ("file", "headers", "is_told"),
    [
        ("open", {}, True),
        ("open", {"X-Forwarded-For": "203.0.113.7"}, False),
        ("open", {"Host": "tools.example.com"}, False),
        ("with keys", {}, False),
        ("with keys", {"X-API-Key": "key-of-nobody"}, False),
        ("with keys", {"X-API-Key": OTHER_KEY}, False),
        ("with keys", {"Authorization": f"Bearer {KEY}", "Host": "tools.example.com"}, True),
        ("separate admin listener", {}, True),
    ],
)
async def test_problems_of_the_file_are_only_shown_to_operators(
    tmp_path: Path, file: str, headers: dict[str, str], *, is_told: bool
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(FILES[file])
    async with serving(config, "--no-watch") as daemon, aiohttp.ClientSession() as client:
        listening = "listening for operators" if "admin" in file else "listening"
        own = (await daemon.event(listening))["url"].replace("/-/status", "").replace("/mcp", "")
        await daemon.url()  # the admin listener starts first
        async with client.get(f"{own}/-/ready", headers=headers) as response:
            assert await response.json() == {"ready": True, "state": "ready", "problems": []}
        config.write_text(BROKEN)
        async with client.post(f"{own}/-/reload", headers={"X-API-Key": KEY}) as response:
            assert "withheld_tool" in (await response.json())["problems"][0]
        async with client.get(f"{own}/-/ready", headers=headers) as response:
            heard = await response.json()
    assert (heard["ready"], len(heard["problems"])) == (True, 1)
    assert ("withheld_tool" in heard["problems"][0]) is is_told
