"""Reads file arguments such as `photo=@path`, for inputs that are files according to the schema of the tool.

For other inputs, text that starts with `@` is sent unchanged, as in `handle=@ada`.
"""

import base64
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from gateway.cli.client.remote import GatewayClient, every_page
from gateway.cli.user_input import input_bytes
from gateway.json_types import Json, JsonObject
from gateway.language.files.media_types import media_type_of


async def with_files(client: GatewayClient, params: JsonObject) -> JsonObject:
    """Replace each `tools/call` argument that names a file with the content of the file, as a data URI.

    Raises:
        ConfigError: a file cannot be read.
        RpcError: the server does not list its tools.
    """
    arguments: JsonObject = params.get("arguments", {})
    if not any(map(_names_files, arguments.values())):
        return params
    tools = await every_page(client, "tools/list", "tools")
    schema: JsonObject = next((tool["inputSchema"] for tool in tools if tool["name"] == params["name"]), {})
    members = schema.get("properties", {})
    read = {name: _read(name, value, members.get(name, {})) for name, value in arguments.items()}
    return {**params, "arguments": read}


def _names_files(value: Json) -> bool:
    if isinstance(value, list):
        return bool(value) and all(isinstance(item, str) and item.startswith("@") for item in value)
    return isinstance(value, str) and value.startswith("@")


def _read(name: str, value: Json, schema: JsonObject) -> Json:
    if not _names_files(value):
        return value
    if _is_file(schema) and isinstance(value, str):
        return _data_uri(value[1:], where=f"{name}={value}")
    if _is_file(schema.get("items")):
        given = value if isinstance(value, list) else [value]
        return [_data_uri(each[1:], where=f"{name}={each}") for each in given]
    # The input is not a file. If a key is repeated, the last value is sent.
    return value[-1] if isinstance(value, list) else value


def _is_file(schema: Json) -> bool:
    return isinstance(schema, Mapping) and schema.get("contentEncoding") == "base64"


def _data_uri(path: str, *, where: str) -> str:
    data = input_bytes(path, where=where)
    return data_uri(data, media_type=media_type_of(path) or "", name="" if path == "-" else Path(path).name)


def data_uri(data: bytes, *, media_type: str, name: str) -> str:
    """Encode a file as a data URI (RFC 2397) with the file name as a parameter."""
    parameter = f";name={quote(name, safe='')}" if name else ""
    return f"data:{media_type}{parameter};base64,{base64.b64encode(data).decode()}"
