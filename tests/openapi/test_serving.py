"""`openapi:` entries: equal to `import`, reloaded with their documents, stored and fetched safely."""

import asyncio
import copy
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import orjson
import pytest
import yaml
from aiohttp import web

from gateway.app.gateway import Gateway
from gateway.cli.commands.import_openapi import as_yaml, imported_from
from gateway.cli.commands.lock import compare_lock, write_lock
from gateway.config.definition_source import load_definitions
from gateway.config.loader import LOCK_NAME, load
from gateway.config.settings import read_settings
from gateway.json_types import Json
from gateway.openapi.source import OpenApiSource
from tests.local_server import listening
from tests.openapi.shop_documents import ALL_METHODS, config_of, document, operation, write_both_ways

TEXT: Final = {"type": "string"}
EXAMPLE: Final = Path(__file__).parents[2] / "config" / "examples" / "data" / "shop.openapi.yaml"


def shop(*names: str) -> dict[str, Json]:
    """A document with operations of these names."""
    return document({f"/{name}": {"get": operation(operationId=name, summary=name)} for name in names})


def test_import_writes_the_tools_that_openapi_serves(tmp_path: Path) -> None:
    served, imported = write_both_ways(EXAMPLE, tmp_path)
    offered = load_definitions(served, [OpenApiSource()]).document.tools
    read = load(imported)
    read.raise_errors()
    written = read.document.tools
    assert written == offered
    assert list(written) == list(offered)


@pytest.mark.parametrize(
    "text",
    ["no", "1", "0o17", "1e3", "null", "~", "", " a", "a: b",
      "a #b", "- a", "{{ a }}", "${env:HOME}", "a\nb\n", "a\n\n b",
     "\u2028", "é", "'\"", "a\tb", "x" * 300, "%a", "@a", "`a`", "|", "a\n  b\nc"],
)  # fmt: skip
def test_yaml_output_is_read_back_unchanged(tmp_path: Path, text: str) -> None:
    written = tmp_path / "written.yaml"
    tool = {"description": text, "content": [{"text": "x"}], "meta": {"a": [text], "b": text}}
    written.write_text(as_yaml({"tools": {"a": tool}}))
    loaded = load(written)
    loaded.raise_errors()
    read = loaded.document.tools["a"]
    assert (read.description, read.meta) == (text, {"a": [text], "b": text})


SWAGGER: Final[dict[str, Json]] = {
    "swagger": "2.0",
    "info": {"title": "Pets"},
    "host": "pets.example.com",
    "basePath": "/v1",
    "consumes": ["application/json"],
    "produces": ["application/json"],
    "parameters": {"limit": {"name": "limit", "in": "query", "type": "integer", "maximum": 9}},
    "definitions": {"Pet": {"type": "object", "properties": {"name": TEXT, "like": {"$ref": "#/definitions/Pet"}}}},
    "paths": {
        "/pets": {
            "get": {"operationId": "list", "parameters": [{"$ref": "#/parameters/limit"}, {
                "name": "tag", "in": "query", "type": "array", "items": TEXT, "collectionFormat": "pipes"}],
                "responses": {"200": {"schema": {"type": "array", "items": {"$ref": "#/definitions/Pet"}}}}},
            "post": {"operationId": "add", "parameters": [
                {"name": "pet", "in": "body", "required": True, "schema": {"$ref": "#/definitions/Pet"}}]},
        },
        "/photos": {"post": {"operationId": "upload", "consumes": ["multipart/form-data"], "parameters": [
            {"name": "photo", "in": "formData", "type": "file", "required": True},
            {"name": "note", "in": "formData", "type": "string"}]}},
    },
}  # fmt: skip


def test_swagger_2_is_converted_by_import() -> None:
    include = [f"method:{method}" for method in ALL_METHODS]
    sections, found = imported_from(lambda _: SWAGGER, "file:///pets.json", include=include)
    assert found.left_out == []
    assert sections["connections"] == {"pets": {"base_url": "https://pets.example.com/v1"}}
    tools = sections["tools"]
    assert tools["pets_list"]["http"]["query"]["tag"] == {"value": "{{ tag }}", "style": "pipeDelimited"}
    assert tools["pets_list"]["input"]["limit"] == {"type": "integer", "maximum": 9, "required": False}
    assert tools["pets_add"]["http"]["json"] == {"name": "{{ name }}", "like": "{{ like }}"}
    assert tools["pets_upload"]["input"] == {"photo": "file", "note": "string?"}
    assert tools["pets_upload"]["http"]["multipart"] == {"photo": "{{ photo }}", "note": "{{ note }}"}


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        (("schemes",), [[]], None),
        (("parameters", "limit", "in"), [], None),
        (("paths", "/pets", "get", "parameters", 1, "name"), [], None),
        (("paths", "/pets", "get", "parameters", 1, "collectionFormat"), [], None),
        (("paths", "/pets", "get", "parameters", 1, "collectionFormat"), "tsv", "style `tsv`"),
        (("paths", "/photos", "post", "parameters", 1, "name"), None, "no `name`"),
        (("securityDefinitions",), {"o": {"type": "oauth2", "flow": []}}, None),
    ],
    ids=str,
)
def test_swagger_2_with_wrong_types_is_imported_or_rejected(
    path: tuple[str | int, ...], value: Json, reason: str | None
) -> None:
    swagger = copy.deepcopy(SWAGGER)
    around: Any = swagger
    for step in path[:-1]:
        around = around[step]
    around[path[-1]] = value
    sections, found = imported_from(lambda _: swagger, "file:///pets.json", include=["*"])
    assert "pets_add" in sections["tools"]
    if reason is not None:
        [(_, why)] = found.left_out
        assert reason in why


# A daemon.


def written_config(directory: Path, url: str = "shop.openapi.json", **entry: Json) -> Path:
    config = directory / "config.yaml"
    fields = {"document": url, "connection": "shop", "refresh": "100ms", **entry}
    text = {"connections": {"shop": {"base_url": "https://shop.invalid"}}, "openapi": {"shop": fields}}
    config.write_text(yaml.safe_dump(text))
    return config


@asynccontextmanager
async def serving(config: Path) -> AsyncIterator[Gateway]:
    settings: dict[str, Json] = {"config": config, "log_level": "error", "http": "127.0.0.1:0"}
    settings["state_dir"] = str(config.parent / "state")
    async with Gateway(read_settings(settings)) as gateway:
        await gateway.start()
        yield gateway
        await gateway.stop()


async def tools_of(gateway: Gateway) -> list[str]:
    listed = await gateway.memory_client().request("tools/list", {})
    return [tool["name"] for tool in listed["tools"]]


async def until(condition: Callable[[], Any], *, seconds: float = 60) -> None:
    async with asyncio.timeout(seconds):
        while not await condition():
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("place", ["of the entry", "of an override"])
def test_edit_outside_of_requests_applies_at_the_next_load(tmp_path: Path, place: str) -> None:
    (tmp_path / "shop.openapi.json").write_bytes(orjson.dumps(shop("a", "b")))
    source, tools = OpenApiSource(), []
    for seconds in (5, 5, 9):
        keys = {"timeout": f"{seconds}s", "access": {"scopes": [f"s{seconds}"]}}
        entry: dict[str, Json] = keys if place == "of the entry" else {"override": {"a": keys}}
        tools.append(load_definitions(written_config(tmp_path, **entry), [source]).document.tools)
    first, same, edited = tools
    assert same["shop_a"] is first["shop_a"]
    assert edited["shop_a"].timeout == timedelta(seconds=9)
    assert edited["shop_a"].access is not None
    assert edited["shop_a"].access.scopes == ["s9"]


async def test_changed_document_is_reloaded_and_an_invalid_one_ignored(tmp_path: Path) -> None:
    path = tmp_path / "shop.openapi.json"
    path.write_bytes(orjson.dumps(shop("a")))
    async with serving(written_config(tmp_path)) as gateway:
        assert await tools_of(gateway) == ["shop_a"]
        path.write_bytes(orjson.dumps(shop("a", "b")))

        async def has_both() -> bool:
            return await tools_of(gateway) == ["shop_a", "shop_b"]

        await until(has_both)
        path.write_text("{")

        async def is_reported() -> bool:
            return any("not JSON" in problem.message for problem in gateway.problems)

        await until(is_reported)
        assert await has_both()


async def test_status_names_each_omitted_operation(tmp_path: Path) -> None:
    given = document({"/a": {"get": operation(operationId="a"), "post": operation()}})
    (tmp_path / "shop.openapi.json").write_bytes(orjson.dumps(given))
    async with serving(written_config(tmp_path)) as gateway:
        [left_out] = gateway.status()["left_out"]
    assert (left_out["kind"], left_out["name"]) == ("openapi", "shop: POST /a")
    assert "only GET and HEAD are tools" in left_out["reason"]


DECLARED: Final = {"200": {"content": {"application/json": {"schema": {"type": "object", "properties": {"a": TEXT}}}}}}


@pytest.mark.parametrize(
    ("status", "body", "text"),
    [
        (201, b"", "HTTP 201 Created\nLocation: /x/1"),
        (202, b" \r\n", "HTTP 202 Accepted"),
        (204, b"", "HTTP 204 No Content"),
        (205, b"", "HTTP 205 Reset Content"),
        (201, b'{"a": "b"}', '{"a":"b"}'),
        (200, b"", None),
        (200, b"<p>hi", None),
    ],
)
async def test_success_without_content_is_no_error(tmp_path: Path, status: int, body: bytes, text: str | None) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status, body=body, headers={"Location": "/x/1"} if status == 201 else {})

    application = web.Application()
    application.router.add_post("/x", answer)
    given = document({"/x": {"post": {"operationId": "x", "responses": DECLARED}}})
    config = config_of(given, tmp_path)
    async with listening(application) as port:
        connection = {"base_url": f"http://127.0.0.1:{port}", "allow_private": True}
        config.write_bytes(orjson.dumps({**orjson.loads(config.read_bytes()), "connections": {"shop": connection}}))
        async with serving(config) as gateway:
            result = await gateway.memory_client().request("tools/call", {"name": "shop_x", "arguments": {}})
    shown = result["content"][0]["text"]
    assert result.get("isError", False) is (text is None)
    assert shown.startswith(text or "The output is not JSON")
    assert ("structuredContent" in result) is (body == b'{"a": "b"}')


class Publisher:
    """A server that publishes a document with an ETag."""

    def __init__(self) -> None:
        self.document: Json = shop("a")
        self.seen: list[tuple[str, int]] = []
        self.credentials: list[str | None] = []
        self.status = 200
        self.absent: set[str] = set()
        """Paths that do not exist."""

    async def answer(self, request: web.Request) -> web.Response:
        self.credentials.append(request.headers.get("X-Key"))
        etag = f'"{hash(orjson.dumps(self.document))}"'
        is_known = request.headers.get("If-None-Match") == etag
        status = 404 if request.path in self.absent else self.status
        status = 304 if is_known and status == 200 else status
        self.seen.append((request.path, status))
        body = orjson.dumps(self.document) if status == 200 else b""
        return web.Response(status=status, body=body, headers={"ETag": etag})

    @asynccontextmanager
    async def publishing(self) -> AsyncIterator[str]:
        application = web.Application()
        application.router.add_get("/{path:.*}", self.answer)
        async with listening(application) as port:
            yield f"http://127.0.0.1:{port}/openapi.json"


async def test_fetched_document_is_refreshed_and_announced(tmp_path: Path) -> None:
    publisher = Publisher()
    async with publisher.publishing() as url, serving(written_config(tmp_path, url, allow_private=True)) as gateway:
        assert await tools_of(gateway) == ["shop_a"]

        async def was_not_modified() -> bool:
            return ("/openapi.json", 304) in publisher.seen

        await until(was_not_modified)
        publisher.document = shop("a", "b")

        async def has_both() -> bool:
            return await tools_of(gateway) == ["shop_a", "shop_b"]

        await until(has_both)
        assert gateway.status()["openapi"]["shop"]["problem"] is None


async def test_last_document_is_served_while_its_server_is_down(tmp_path: Path) -> None:
    publisher = Publisher()
    async with publisher.publishing() as url:
        config = written_config(tmp_path, url, allow_private=True)
        async with serving(config) as gateway:
            publisher.status = 503

            async def is_down() -> bool:
                return gateway.status()["openapi"]["shop"]["problem"] is not None

            await until(is_down)
            assert await tools_of(gateway) == ["shop_a"]
        async with serving(config) as gateway:
            assert await tools_of(gateway) == ["shop_a"]


async def test_another_url_keeps_the_tools_until_its_document_is_fetched(tmp_path: Path) -> None:
    first, second = Publisher(), Publisher()
    second.document, second.status = shop("b"), 503
    async with (
        first.publishing() as url,
        second.publishing() as other,
        serving(written_config(tmp_path, url, allow_private=True)) as gateway,
    ):
        written_config(tmp_path, f"{other}#/", allow_private=True)
        await gateway.app.reloads.reload()

        async def is_told() -> bool:
            return "503" in (gateway.status()["openapi"]["shop"]["problem"] or "")

        await until(is_told)
        assert await tools_of(gateway) == ["shop_a"]
        second.status = 200

        async def is_taken_up() -> bool:
            return await tools_of(gateway) == ["shop_b"]

        await until(is_taken_up)


async def test_private_address_requires_allow_private(tmp_path: Path) -> None:
    publisher = Publisher()
    async with publisher.publishing() as url:
        async with serving(written_config(tmp_path, url)) as gateway:
            assert await tools_of(gateway) == []
            assert "loopback" in gateway.status()["openapi"]["shop"]["problem"]
        assert publisher.seen == []


async def test_credentials_are_sent_to_the_connections_origin_only(tmp_path: Path) -> None:
    publisher, stranger = Publisher(), Publisher()
    async with publisher.publishing() as url, stranger.publishing() as other:
        connection = {"base_url": url.rpartition("/")[0], "headers": {"X-Key": "k"}, "allow_private": True}
        entries = {name: {"document": each, "connection": "c"} for name, each in (("own", url), ("other", other))}
        config = tmp_path / "config.yaml"
        config.write_text(yaml.safe_dump({"connections": {"c": connection}, "openapi": entries}))
        async with serving(config) as gateway:
            assert sorted(await tools_of(gateway)) == ["other_a", "own_a"]
    assert set(publisher.credentials) == {"k"}
    assert set(stranger.credentials) == {None}


async def test_reference_to_another_origin_is_not_fetched(tmp_path: Path) -> None:
    publisher, stranger = Publisher(), Publisher()
    async with publisher.publishing() as url, stranger.publishing() as other:
        schemas = [{"$ref": "own.json#/info"}, {"$ref": f"{other}#/info"}]
        paths: dict[str, Json] = {}
        for name, schema in zip(("a", "b"), schemas, strict=True):
            parameter = {"name": "c", "in": "query", "schema": schema}
            paths[f"/{name}"] = {"get": operation(operationId=name, parameters=[parameter])}
        publisher.document = document(paths)
        async with serving(written_config(tmp_path, url, allow_private=True)) as gateway:
            assert await tools_of(gateway) == ["shop_a"]
            [left_out] = gateway.status()["left_out"]
            assert "a different origin" in left_out["reason"]
    assert stranger.seen == []


def referring(*names: str) -> Json:
    """A document with referenced parameters in other documents, and an operation without."""
    paths: dict[str, Json] = {"/plain": {"get": operation(operationId="plain")}}
    for name in names:
        parameter = {"name": "c", "in": "query", "schema": {"$ref": f"{name}.json#/info"}}
        paths[f"/{name}"] = {"get": operation(operationId=name, parameters=[parameter])}
    return document(paths)


async def test_missing_referenced_document_skips_its_operations_only(tmp_path: Path) -> None:
    publisher = Publisher()
    publisher.document, publisher.absent = referring("a", "b"), {"/b.json"}
    async with publisher.publishing() as url:
        absent = f"{url.rpartition('/')[0]}/b.json"
        async with serving(written_config(tmp_path, url, allow_private=True)) as gateway:
            assert await tools_of(gateway) == ["shop_plain", "shop_a"]
            reason = f"{absent} could not be fetched: the server returned 404 Not Found"
            assert gateway.status()["openapi"]["shop"]["problem"] == reason
            [left_out] = gateway.status()["left_out"]
            assert f"`{absent}` could not be fetched" in left_out["reason"]
            publisher.absent = {"/a.json"}  # fetched before, and kept

            async def has_all() -> bool:
                return await tools_of(gateway) == ["shop_plain", "shop_a", "shop_b"]

            await until(has_all)


@pytest.mark.parametrize("reference", ["http://[/b", "//[]@/b"])
async def test_malformed_reference_skips_its_operation_only(tmp_path: Path, reference: str) -> None:
    publisher = Publisher()
    publisher.document = referring("a", reference)
    async with publisher.publishing() as url, serving(written_config(tmp_path, url, allow_private=True)) as gateway:
        assert await tools_of(gateway) == ["shop_plain", "shop_a"]
        assert gateway.status()["openapi"]["shop"]["problem"] is None


def test_missing_referenced_file_is_used_when_created(tmp_path: Path) -> None:
    (tmp_path / "shop.openapi.json").write_bytes(orjson.dumps(referring("a")))
    source, config = OpenApiSource(), written_config(tmp_path)
    before = load_definitions(config, [source])
    assert list(before.document.tools) == ["shop_plain"]
    [left_out] = before.left_out
    assert f"cannot read {tmp_path / 'a.json'}: no such file" in left_out.reason
    (tmp_path / "a.json").write_bytes(orjson.dumps({"info": {"type": "string"}}))
    after = load_definitions(config, [source])
    assert list(after.document.tools) == ["shop_plain", "shop_a"]
    assert not after.left_out


async def test_lock_pins_tools_of_a_document(tmp_path: Path) -> None:
    path = tmp_path / "shop.openapi.json"
    path.write_bytes(orjson.dumps(shop("a")))
    settings = read_settings({"config": written_config(tmp_path)})
    write_lock(settings)
    assert "shop_a" in (tmp_path / LOCK_NAME).read_text()
    assert not compare_lock(settings)[1]
    changed = shop("a")
    changed["paths"]["/a"]["get"]["summary"] = "Something else."
    path.write_bytes(orjson.dumps(changed))
    assert [str(each) for each in compare_lock(settings)[1]]


@pytest.mark.parametrize("value", ["${env:SHOP_KEY}", "x ${env:SHOP_KEY}"])
@pytest.mark.parametrize("place", ["query", "header", "cookie", "path"])
def test_rotated_secret_in_an_override_does_not_change_the_definition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, value: Json
) -> None:
    parameters = [{"name": "key", "in": place, "schema": {}, "required": True}]
    given = document(
        {"/a/{key}" if place == "path" else "/a": {"get": operation(operationId="a", parameters=parameters)}}
    )
    (tmp_path / "shop.openapi.json").write_bytes(orjson.dumps(given))
    config = written_config(tmp_path, override={"a": {"set": {"key": value}}})
    digests = []
    for secret in ("first-secret-of-the-shop", 'second "secret" of the {{ shop }}'):
        monkeypatch.setenv("SHOP_KEY", secret)
        loaded = load_definitions(config, [OpenApiSource()])
        assert loaded.document.tools["shop_a"].http is not None
        assert secret not in str(loaded.sources.written(("tools", "shop_a")))
        digests.append(loaded.sources.digest(("tools", "shop_a")))
    assert digests[0] == digests[1]


def test_written_yaml_shows_characters_that_reorder_or_hide_text() -> None:
    value = {
        "tools": {"a": {"description": "x\u202ey\nlong " + "word " * 40, "k\u200b": "b\x1b[31m", "é": "\U000e0041"}}
    }
    text = as_yaml(value)
    assert yaml.safe_load(text) == value
    assert not any(each in text for each in "\u202e\u200b\x1b\U000e0041")
    assert "é" in text
