"""Tests for whole responses and for cached header checks."""

import asyncio
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Final

import orjson
import pytest

from gateway.config.models.address import Address
from tests.messages import modern_headers, modern_request
from tests.transports.http_server import http_server

ECHO: Final = {"name": "echo", "arguments": {"text": "hello"}}


def request_of(address: Address, *, version: str = "1.1", target: str = "/mcp", **fields: str) -> bytes:
    body = orjson.dumps(modern_request("tools/call", ECHO))
    head = {
        "Host": str(address),
        "Accept": "application/json, text/event-stream",
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        **modern_headers("tools/call", ECHO),
        **fields,
    }
    lines = [f"POST {target} HTTP/{version}", *(f"{name}: {value}" for name, value in head.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body


async def answer_to(reader: asyncio.StreamReader) -> tuple[str, Mapping[str, str], bytes]:
    async with asyncio.timeout(10):
        status, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
        fields = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        return status, fields, await reader.readexactly(int(fields["content-length"]))


async def test_kept_connection_serves_several_requests() -> None:
    async with http_server() as served:
        reader, writer = await asyncio.open_connection(served.address.host, served.address.port)
        for _ in range(3):
            writer.write(request_of(served.address))
            status, fields, body = await answer_to(reader)
            assert (status, fields["content-type"], fields["server"]) == (
                "HTTP/1.1 200 OK",
                "application/json",
                "mcp-gateway",
            )
            assert parsedate_to_datetime(fields["date"]).tzinfo is not None
            assert orjson.loads(body)["result"]["content"][0]["text"] == "hello"
        writer.close()


@pytest.mark.parametrize(("version", "fields"), [("1.1", {"Connection": "close"}), ("1.0", {})])
async def test_connection_close_is_honoured(version: str, fields: dict[str, str]) -> None:
    async with http_server() as served:
        reader, writer = await asyncio.open_connection(served.address.host, served.address.port)
        writer.write(request_of(served.address, version=version, **fields))
        status, _, body = await answer_to(reader)
        assert status.endswith("200 OK")
        assert orjson.loads(body)["id"] == 1
        async with asyncio.timeout(10):
            assert await reader.read() == b""
        writer.close()


async def test_requests_on_one_connection_are_checked_separately() -> None:
    plain: tuple[dict[str, str], int] = ({}, 200)
    async with http_server() as served:
        reader, writer = await asyncio.open_connection(served.address.host, served.address.port)
        for fields, expected in (
            plain,
            ({"Host": "evil.example.com"}, 421),
            ({"Origin": "http://localhost:3000"}, 200),
            ({"Host": "evil.example.com", "Origin": "http://localhost:3000"}, 421),
            plain,
            ({"target": "http://evil.example.com/mcp"}, 421),
            plain,
            ({"Origin": "https://evil.example.com"}, 403),
            ({"Accept": "text/plain"}, 406),
            ({"Content-Encoding": "gzip"}, 415),
            ({"Mcp-Name": "large"}, 400),
            ({"MCP-Protocol-Version": "2099-01-01"}, 400),
            plain,
        ):
            writer.write(request_of(served.address, **fields))
            status, _, _ = await answer_to(reader)
            assert status.split()[1] == str(expected), fields
        writer.close()


async def test_repeated_head_with_another_content_length_keeps_its_fields() -> None:
    async with http_server() as served:
        for text in ("hello", "hello", "hello world", "hello"):
            params = {"name": "echo", "arguments": {"text": text}}
            assert (await served.modern("tools/call", params)).json["result"]["content"][0]["text"] == text
            assert served.control.fields["mcp-name"] == "echo"
            assert "content-length" not in served.control.fields


async def test_cors_headers_name_only_the_requesting_origin() -> None:
    async with http_server() as served:
        for page in ("http://localhost:3000", "http://127.0.0.1:5173"):
            answer = await served.modern("tools/call", ECHO, Origin=page)
            assert answer.headers["Access-Control-Allow-Origin"] == page
        assert "Access-Control-Allow-Origin" not in (await served.modern("tools/call", ECHO)).headers
