"""The official clients use a tool of a service that requires a sign-in at a real OpenID provider."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from tests.behaviour.test_user_sign_in import ANN
from tests.conformance.suite import the_suite
from tests.e2e.daemon import serving
from tests.identity.browser import Browser
from tests.identity.openid_provider import OpenIdProvider, running_provider
from tests.identity.test_openid_provider import file_with, profile
from tests.interop.conftest import Cell
from tests.interop.official_clients import DRIVERS, SECONDS, OfficialClients
from tests.node import NodePackage, find_node

pytestmark = pytest.mark.build

CELLS: Final = [
    Cell(line=1, binding="http", revision="2025-11-25"),
    Cell(line=2, binding="http", revision="2026-07-28"),
    Cell(line=2, binding="http", mode="legacy", revision="2025-11-25"),
]
asking = pytest.mark.parametrize("asks", [True, False], ids=["elicitation", "link"])
"""Whether the client supports URL elicitation."""


@dataclass(frozen=True)
class Gateway:
    url: str
    provider: OpenIdProvider


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_provider(tmp_path_factory.mktemp("provider") / "log") as url:
        yield url


@pytest.fixture
async def gateway(tmp_path: Path, issuer: str) -> AsyncIterator[Gateway]:
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps(file_with(profile(issuer))))
    flags = ("--http", "127.0.0.1:0", "--state-dir", str(tmp_path / "state"))
    async with serving(config, *flags) as daemon, aiohttp.ClientSession() as http:
        provider = OpenIdProvider(issuer=issuer, http=http)
        await provider.start_over()
        yield Gateway(await daemon.url(), provider)


async def check(gateway: Gateway, texts: list[str], questions: list[str], *, asks: bool) -> None:
    """With elicitation, the first call continues after the sign-in. Otherwise its result contains a link."""
    assert json.loads(texts[-1])["sub"] == "ann"
    assert questions == (["Sign in to profile to continue."] if asks else [])
    assert len(texts) == (1 if asks else 2)
    if not asks:
        assert texts[0].startswith("profile requires that you sign in. Open http://")
    assert len(await gateway.provider.requests("/token", grant_type="authorization_code")) == 1


@asking
@pytest.mark.parametrize("cell", CELLS, ids=str)
async def test_python_client(clients: OfficialClients, gateway: Gateway, cell: Cell, *, asks: bool) -> None:
    plan = {"url": gateway.url, "key": ANN, "user": "ann", "tool": "profile", "asks": asks, "mode": cell.mode}
    seen = await clients.carry_out(cell.line, "sign_in", plan)
    assert seen["revision"] == cell.revision
    await check(gateway, seen["texts"], seen["asked"], asks=asks)


@asking
@pytest.mark.parametrize(
    ("line", "mode", "revision"), [(1, "", "2025-11-25"), (2, "auto", "2026-07-28"), (2, "legacy", "2025-11-25")]
)
async def test_typescript_client(
    gateway: Gateway, inspector: NodePackage, line: int, mode: str, revision: str, *, asks: bool
) -> None:
    modules = next(each for each in inspector.directory.parents if each.name == "node_modules")
    package = modules / "@modelcontextprotocol" / "client"
    if line == 1:
        suite = the_suite()
        package = next(each for each in suite.bundle.parents if each.name == "@modelcontextprotocol") / "sdk"
    node = find_node()
    assert node is not None
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        node, DRIVERS / "sign_in.mjs", str(line), package, stdin=pipe, stdout=pipe
    )
    assert process.stdin is not None
    assert process.stdout is not None
    plan = {"url": gateway.url, "key": ANN, "tool": "profile", "asks": asks, "mode": mode}
    process.stdin.write(json.dumps(plan).encode() + b"\n")
    said: list[dict[str, Any]] = []
    try:
        async with asyncio.timeout(SECONDS):
            while message := await process.stdout.readline():
                said.append(json.loads(message))
                text = said[-1].get("link") or said[-1]["text"]
                if (link := re.search(r"http://\S+/-/sign-in/[\w-]+", text)) is not None:
                    page = await asyncio.to_thread(Browser("ann", key=ANN).visit, link[0])
                    assert page.status == 200, page.text
                    process.stdin.write(b"\n")
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    results = [each for each in said if "text" in each]
    assert {each["revision"] for each in results} == {revision}
    questions = [each["asked"] for each in said if "asked" in each]
    await check(gateway, [each["text"] for each in results], questions, asks=asks)


async def test_inspector(gateway: Gateway, inspector: NodePackage) -> None:
    """The command line of the Inspector shows the link, and the data after the sign-in."""
    launcher = inspector.directory / "clients" / "launcher" / "build" / "index.js"
    words = ["--transport", "http", "--header", f"Authorization: Bearer {ANN}"]
    words += ["--method", "tools/call", "--tool-name", "profile"]
    texts: list[str] = []
    for _ in range(2):
        process = await asyncio.create_subprocess_exec(
            inspector.node, launcher, "--cli", gateway.url, *words, stdout=asyncio.subprocess.PIPE
        )
        async with asyncio.timeout(SECONDS):
            out, _ = await process.communicate()
        texts.append(json.loads(out)["content"][0]["text"])
        if (link := re.search(r"http://\S+/-/sign-in/[\w-]+", texts[-1])) is not None:
            page = await asyncio.to_thread(Browser("ann", key=ANN).visit, link[0])
            assert page.status == 200, page.text
    await check(gateway, texts, [], asks=False)
