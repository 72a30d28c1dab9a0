"""A multipart/form-data operation, from the document to the server."""

from pathlib import Path
from typing import Any

import orjson
from aiohttp import web

from tests.behaviour.inside import product
from tests.local_server import listening
from tests.openapi.shop_documents import document, operation

CONTENT = {
    "multipart/form-data": {
        "schema": {
            "type": "object",
            "required": ["photo", "meta"],
            "properties": {
                "photo": {"type": "string", "format": "binary"},
                "meta": {"type": "object", "properties": {"tags": {"type": "array", "items": {"type": "string"}}}},
            },
        }
    }
}


async def test_binary_and_json_parts_are_sent_as_declared(tmp_path: Path) -> None:
    parts: list[tuple[Any, ...]] = []

    async def handle(request: web.Request) -> web.Response:
        async for part in await request.multipart():
            data: Any = await part.read()  # type: ignore[union-attr]
            parts.append((part.name, part.headers.get("Content-Type"), bytes(data)))  # type: ignore[union-attr]
        return web.json_response({"ok": True})

    post = operation(operationId="upload", summary="Upload.", requestBody={"required": True, "content": CONTENT})
    shop = orjson.dumps(document({"/photos": {"post": post}}))
    application = web.Application()
    application.router.add_post("/photos", handle)
    async with listening(application) as port:
        file = f"""
        connections: {{shop: {{base_url: "http://127.0.0.1:{port}", allow_private: true}}}}
        openapi: {{shop: {{document: shop.json, connection: shop, include: {{methods: [post]}}}}}}
        """
        async with product(tmp_path, file, {"shop.json": shop}) as client:
            result = await client.call("shop_upload", photo="iVBORw0KGgo=", meta={"tags": ["a"]})
    assert not result.get("isError"), result
    assert parts == [
        ("photo", "image/png", b"\x89PNG\r\n\x1a\n"),
        ("meta", "application/json", b'{"tags":["a"]}'),
    ]
