"""Cached results are only reused for callers who would get the same result without a cache."""

from pathlib import Path
from typing import Final

import pytest
from aiohttp import web

from gateway.access.identity import Identity
from gateway.cli.commands.validate import check
from gateway.config.settings import read_settings
from gateway.errors import ConfigError
from tests.local_server import listening
from tests.protocol.peers import ERAS, LegacyPeer, LocalGateway, ModernPeer, serve_folder, text

PLUGIN: Final = '''
from gateway.plugin import Context


async def report(context: Context) -> str:
    """Read what the caller may."""
    try:
        return (await context.read_resource("note:///ops"))[0]["text"]
    except Exception:
        return "nothing for you"
'''
FILE: Final = """
auth: {api_keys: {ci: {sha256: "abababababababababababababababababababababababababababababababab"}}}
plugins: [plugins]
tools:
  report: {python: "notes:report", cache: 1h}
resources:
  note: {uri: "note:///ops", text: "only for ops", access: {scopes: [ops]}}
  report: {uri: "report:///now", python: "notes:report", cache: 1h}
prompts:
  report: {python: "notes:report", cache: 1h}
  embeds: {messages: [{user: {resource: "note:///ops"}}], cache: 1h}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "notes.py").write_text(PLUGIN)
    (tmp_path / "config.yaml").write_text(FILE)
    return tmp_path


async def of(served: LocalGateway, era: str, *scopes: str) -> ModernPeer | LegacyPeer:
    """Return a client of the same principal with a different token."""
    identity = Identity(principal="ada", realm="issuer", scopes=frozenset(scopes))
    if era == "modern":
        return served.modern(identity=identity)
    return await served.legacy(identity=identity)


async def heard(peer: ModernPeer | LegacyPeer) -> list[str]:
    """Return the texts of the tool, the resource and the prompts."""
    read = await peer.request("resources/read", {"uri": "report:///now"})
    got = await peer.request("prompts/get", {"name": "report"})
    embedded = await peer.request("prompts/get", {"name": "embeds"})
    return [
        await text(peer, "report"),
        read["result"]["contents"][0]["text"],
        got["result"]["messages"][0]["content"]["text"],
        "nothing for you" if "error" in embedded else embedded["result"]["messages"][0]["content"]["resource"]["text"],
    ]


@ERAS
async def test_cached_result_is_not_shared_with_narrower_token(folder: Path, era: str) -> None:
    async with serve_folder(folder) as served:
        assert await heard(await of(served, era, "ops", "admin")) == ["only for ops"] * 4
        assert await heard(await of(served, era, "admin")) == ["nothing for you"] * 4
        assert await heard(await of(served, era, "ops", "admin")) == ["only for ops"] * 4


async def test_reload_with_new_scope_invalidates_cached_results(folder: Path) -> None:
    async with serve_folder(folder) as served:
        assert await heard(await of(served, "modern", "ops")) == ["only for ops"] * 4
        await served.edit('text: "only for ops", access: {scopes: [ops]}', 'text: "secret", access: {scopes: [root]}')
        assert await heard(await of(served, "modern", "ops")) == ["nothing for you"] * 4
        await served.edit("scopes: [root]", "scopes: [root, ops]")
        assert await heard(await of(served, "modern", "root", "ops")) == ["secret"] * 4


async def test_cached_prompt_is_not_rendered_again(tmp_path: Path) -> None:
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "counting.py").write_text(
        "from itertools import count\nCALLS = count(1)\n"
        'def say(who: str) -> str:\n    """Count."""\n    return f"{who} {next(CALLS)}"\n'
    )
    (tmp_path / "config.yaml").write_text('plugins: [plugins]\nprompts: {say: {python: "counting:say", cache: 1h}}')
    async with serve_folder(tmp_path) as served:
        said = []
        for who in ("ada", "ada", "bob"):
            got = await served.modern().request("prompts/get", {"name": "say", "arguments": {"who": who}})
            said.append(got["result"]["messages"][0]["content"]["text"])
    assert said == ["ada 1", "ada 1", "bob 2"]


@pytest.mark.parametrize("old_name", [False, True], ids=["cache", "http.cache"])
async def test_http_cache_key_is_the_whole_request(tmp_path: Path, *, old_name: bool) -> None:
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(f"{request.path_qs} {request.headers.get('X-Team')}")
        return web.Response(text=asked[-1], status=500 if len(asked) == 1 else 200)

    application = web.Application()
    application.router.add_get("/{path:.*}", answer)
    async with listening(application) as port:
        inside, beside = ("cache: 1h, ", "") if old_name else ("", "cache: 1h, ")
        (tmp_path / "config.yaml").write_text(
            f'tools: {{ask: {{{beside}input: {{q: "string?", unused: "string?"}}, http: {{{inside}'
            f'url: "http://127.0.0.1:{port}/{{?q}}", allow_private: true, forward_headers: [X-Team]}}}}}}'
        )
        async with serve_folder(tmp_path) as served:
            said = [
                await text(_sending(served, team=team, principal=principal), "ask", **arguments)
                for team, principal, arguments in (
                    ("a", "ada", {}),  # fails, and is not kept
                    ("a", "ada", {}),
                    ("a", "ada", {"unused": "x"}),
                    ("a", "bob", {}),
                    ("b", "ada", {}),
                    ("a", "ada", {"q": "1"}),
                    ("b", "ada", {}),
                )
            ]
    assert said[1:] == ["/ a", "/ a", "/ a", "/ b", "/?q=1 a", "/ b"]
    assert asked == ["/ a", "/ a", "/ b", "/?q=1 a"]


def _sending(served: LocalGateway, *, team: str, principal: str) -> ModernPeer:
    return served.modern(principal=principal, headers={"x-team": team})


def problems_of(folder: Path, http: str, beside: str = "") -> list[str]:
    (folder / "config.yaml").write_text(f"tools: {{ask: {{description: Asks., {beside}http: {{{http}}}}}}}")
    try:
        _, found = check(read_settings({"config": folder / "config.yaml"}))
    except ConfigError as error:
        found = error.problems
    return [f"{problem.severity}: {problem.path}: {problem.message}" for problem in found]


def test_validate_names_the_replacement_of_http_cache(tmp_path: Path) -> None:
    [warning] = problems_of(tmp_path, 'url: "https://x/", cache: 60s')
    assert warning.startswith("warning: tools.ask.http.cache: is deprecated")
    assert problems_of(tmp_path, 'url: "https://x/"', "cache: 60s, ") == []
    assert problems_of(tmp_path, 'url: "https://x/", cache: 60s', "cache: 30s, ") == [
        "error: tools.ask.http.cache: means the same as `cache` next to `http`. Remove one of them"
    ]
