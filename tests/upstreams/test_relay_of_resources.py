"""Resources and templates of upstreams with unusual URIs and contents."""

from pathlib import Path

import pytest

from gateway.json_types import JsonObject
from tests.behaviour.inside import Client, product
from tests.upstreams.scripted_server import Answers, ScriptedServer, relayed, scripted

PAGE = "<script>var a = '\x1b\x00\x9b';\r\n</script>\u200b"


def contents(params: JsonObject) -> JsonObject:
    return {"contents": [{"uri": params["uri"], "mimeType": "text/html", "text": PAGE}]}


def with_templates(*templates: str) -> Answers:
    return {
        "resources/list": {"resources": []},
        "resources/templates/list": {"resourceTemplates": [{"uriTemplate": each, "name": each} for each in templates]},
        "resources/read": contents,
        "completion/complete": lambda params: {"completion": {"values": [params["argument"]["name"]]}},
    }


def with_resources(*uris: str) -> Answers:
    return {"resources/list": {"resources": [{"uri": uri, "name": uri} for uri in uris]}, "resources/read": contents}


async def read(client: Client, uri: str, *servers: ScriptedServer) -> list[list[str]]:
    """Read a resource, and return the URIs that each server received."""
    before = [len(server.params_of("resources/read")) for server in servers]
    await client.read(uri)
    return [
        [params["uri"] for params in server.params_of("resources/read")[count:]]
        for server, count in zip(servers, before, strict=True)
    ]


TEMPLATES = {
    "files://{path*}": "files://a/b/c.txt",
    "seg://x{/segs*}": "seg://x/a/b",
    "list://{ids*}/end": "list://1,2/end/end",
    "frag://a{#part}": "frag://a#b",
    "semi://a{;x,y}": "semi://a;x=1;y=2",
    "dot://a{.ext}": "dot://a.txt",
    "cut://{name:3}": "cut://abc",
    "twice://{a}/{a}": "twice://1/1",
    "two://{a,b}": "two://1,2",
    "page://{number}": "page://a/b",
    "notes:///my notes/{name}": "notes:///my%20notes/a",
    "öffentlich://ü/{name}": "öffentlich://ü/a",
    "open://{a": "open://{a",
    "{+any}": "other://x",
}


async def test_templates_are_listed_and_read_unchanged(tmp_path: Path) -> None:
    async with relayed(tmp_path, with_templates(*TEMPLATES)) as (server, client, _):
        listed = (await client.request("resources/templates/list"))["resourceTemplates"]
        assert [each["uriTemplate"] for each in listed] == [*TEMPLATES]
        asked = [await read(client, uri, server) for uri in TEMPLATES.values()]

    assert asked == [[[uri]] for uri in TEMPLATES.values()]


async def test_template_variables_are_completed(tmp_path: Path) -> None:
    async with relayed(tmp_path, with_templates("files://{path*}")) as (_, client, _):
        params = {"ref": {"type": "ref/resource", "uri": "files://{path*}"}, "argument": {"name": "path", "value": ""}}
        assert (await client.request("completion/complete", params))["completion"]["values"] == ["path"]


async def test_closest_template_of_several_upstreams_is_read(tmp_path: Path) -> None:
    first, second = (
        with_templates("docs://{id}", "files://{path*}"),
        with_templates("docs://{id}/{part}", "files://b/{path*}"),
    )
    async with (
        scripted(first) as (one, entry),
        scripted(second) as (two, other),
        product(tmp_path, f"upstreams: {{one: {{{entry}}}, two: {{{other}}}}}") as client,
    ):
        asked = [
            await read(client, uri, one, two)
            for uri in ("docs://1", "docs://1/2", "files://a/b", "files://b/c", "docs://1/2/3")
        ]

    expected = [(["docs://1"], []), ([], ["docs://1/2"]), (["files://a/b"], []), ([], ["files://b/c"])]
    assert asked == [list(each) for each in [*expected, (["docs://1/2/3"], [])]]


URIS = {
    "file:///My Notes/a.md": "file:///My%20Notes/a.md",
    "file:///a/{b}.md": "file:///a/%7Bb%7D.md",
    "file:///50%.md": "file:///50%.md",
}


async def test_uris_are_listed_unchanged_and_read_with_any_encoding(tmp_path: Path) -> None:
    async with relayed(tmp_path, with_resources(*URIS, "no-scheme.md")) as (server, client, running):
        listed = (await client.request("resources/list"))["resources"]
        assert [each["uri"] for each in listed] == [*URIS]
        asked = [await read(client, uri, server) for uri in (*URIS, *URIS.values())]
        assert any("no-scheme.md" in warning for warning in running.status()["warnings"])

    assert asked == [[[uri]] for uri in (*URIS, *URIS)]


async def test_contents_are_unchanged(tmp_path: Path) -> None:
    async with relayed(tmp_path, with_resources("ui://page")) as (_, client, _):
        assert (await client.read("ui://page"))["text"] == PAGE


@pytest.mark.parametrize("resource", [{"uri": "ui://page", "text": PAGE}])
async def test_embedded_resources_are_unchanged(tmp_path: Path, resource: JsonObject) -> None:
    content = [{"type": "text", "text": "\x1b[1mtext"}, {"type": "resource", "resource": resource}]
    answers: Answers = {
        "tools/list": {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]},
        "tools/call": {"content": content},
        "prompts/list": {"prompts": [{"name": "p"}]},
        "prompts/get": {"messages": [{"role": "user", "content": each} for each in content]},
    }
    async with relayed(tmp_path, answers) as (_, client, _):
        expected = [{"type": "text", "text": "text"}, content[1]]
        assert (await client.call("t"))["content"] == expected
        assert [each["content"] for each in await client.prompt("p")] == expected


async def test_meta_of_reads_and_completions_is_forwarded(tmp_path: Path) -> None:
    ours: JsonObject = {"_meta": {"example.com/k": 1}}
    answers = with_templates("x://{a}")
    answers["resources/read"] = lambda params: {**contents(params), **ours}
    answers["completion/complete"] = {"completion": {"values": []}, **ours}
    async with relayed(tmp_path, answers) as (_, client, _):
        template: JsonObject = {"type": "ref/resource", "uri": "x://{a}"}
        argument: JsonObject = {"name": "a", "value": ""}
        asked = await client.request("completion/complete", {"ref": template, "argument": argument})
        for result in (asked, await client.request("resources/read", {"uri": "x://1"})):
            assert result["_meta"]["example.com/k"] == 1
