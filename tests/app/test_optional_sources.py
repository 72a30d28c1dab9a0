"""What only some files use is imported when a file uses it, at the start or by a reload."""

import asyncio
import json
import os
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from aiohttp import web

from tests.certificates import Authority
from tests.local_server import listening

PLAIN: Final = "server: {name: plain}\ntools: {hello: {description: Says hello., content: Hello}}\n"
DOCUMENT: Final = {
    "openapi": "3.1.0",
    "info": {"title": "Shop", "version": "1"},
    "servers": [{"url": "http://127.0.0.1:9"}],
    "paths": {"/goods": {"get": {"operationId": "goods", "responses": {"200": {"description": "All of them."}}}}},
}
PROGRAM: Final = """
import asyncio, json, os, signal, sys
from pathlib import Path
from gateway.cli.command_table import COMMANDS, load

def imported():
    names = ("gateway.upstreams", "gateway.openapi", "gateway.app.workers.supervisor", "rich", "referencing")
    print(json.dumps([name for name in names if any(each.startswith(name) for each in sys.modules)]), flush=True)

async def serve(path):
    settings = read_settings({"config": path, "http": "127.0.0.1:0", "state_dir": "none", "no_watch": True})
    async with Gateway(settings) as gateway:
        await gateway.start()
        imported()
        path.write_text(path.read_text() + "openapi: {shop: {document: shop.json}}\\n")
        os.kill(os.getpid(), signal.SIGHUP)
        async with asyncio.timeout(60):
            while gateway.status()["generation"] == 1:
                await asyncio.sleep(0.01)
        imported()
        listed = await gateway.memory_client().request("tools/list")
        print(json.dumps(sorted(tool["name"] for tool in listed["tools"])), flush=True)

load(COMMANDS["serve"])
from gateway.app.gateway import Gateway
from gateway.config.settings import read_settings
asyncio.run(serve(Path(sys.argv[1])))
"""


def test_a_room_is_imported_once_the_file_uses_it(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(PLAIN)
    (tmp_path / "shop.json").write_text(json.dumps(DOCUMENT))
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, path], capture_output=True, text=True, check=False, timeout=120
    )

    assert not run.returncode, run.stderr
    at_start, after_reload, tools = map(json.loads, run.stdout.splitlines())
    assert at_start == []
    assert after_reload == ["gateway.openapi", "referencing"]
    assert tools == ["hello", "shop_goods"]


COMMANDS: Final = """
import sys
from gateway.cli import main

for words in (["validate", sys.argv[1]], ["call", sys.argv[1], "hello"]):
    assert main(words) == 0
print(*(name for name in ("aiohttp", "gateway.upstreams", "gateway.openapi", "sqlalchemy") if name in sys.modules))
"""


def test_commands_import_what_the_file_uses_and_no_client_without_a_url(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(PLAIN)
    run = subprocess.run(
        [sys.executable, "-c", COMMANDS, path], capture_output=True, text=True, check=False, timeout=120
    )

    assert not run.returncode, run.stderr
    assert run.stdout.splitlines() == ["Hello", ""]


STDIO: Final = """
import asyncio, sys
from pathlib import Path
from gateway.cli.command_table import COMMANDS, load

load(COMMANDS["serve"])
from gateway.app.gateway import Gateway
from gateway.config.settings import read_settings

async def serve(path):
    settings = read_settings({"config": path, "stdio": True, "state_dir": "none", "no_watch": True})
    async with Gateway(settings) as gateway:
        await gateway.start()
        found = [name for name in ("aiohttp", "prometheus_client") if name in sys.modules]
        connector = sys.modules.get("aiohttp.connector")
        if connector is not None and connector._SSL_CONTEXT_VERIFIED.cert_store_stats()["x509"]:
            found.append("the system's certificates")
        Path(sys.argv[2]).write_text(" ".join(found))

asyncio.run(serve(Path(sys.argv[1])))
"""
FETCH: Final = "  fetch: {description: Fetches., http: {url: 'https://127.0.0.1/'}}\n"


@pytest.mark.parametrize(("tools", "imported"), [("", ""), (FETCH, "aiohttp")], ids=["none", "of an HTTP tool"])
def test_stdio_starts_without_the_libraries_of_http_but_those_of_its_tools(
    tmp_path: Path, *, tools: str, imported: str
) -> None:
    path, found = tmp_path / "config.yaml", tmp_path / "found"
    path.write_text(f"server: {{name: plain}}\ntools:\n  hello: {{description: Says hello., content: Hello}}\n{tools}")
    run = subprocess.run(
        [sys.executable, "-c", STDIO, path, found],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )

    assert not run.returncode, run.stderr
    assert found.read_text() == imported


CLIENT: Final = """
import asyncio, ssl, sys
from gateway.cli.command_table import COMMANDS, load

_, run = load(COMMANDS["serve"])
from gateway.lean_imports import import_lean
aiohttp = import_lean("aiohttp")

async def main():
    async with aiohttp.ClientSession() as session:
        try:
            async with session.get(sys.argv[1]) as response:
                print(response.status)
        except aiohttp.ClientConnectorCertificateError:
            print("not trusted")
    return 0

run(main())
"""


@pytest.mark.parametrize(("trusts", "printed"), [(True, "404"), (False, "not trusted")])
async def test_requests_of_plugins_are_verified_by_the_certificates_of_the_system(
    tmp_path: Path, *, trusts: bool, printed: str
) -> None:
    authority, system = Authority(), Authority()
    authority.issue(tmp_path / "server.pem", tmp_path / "server.key")
    (tmp_path / "system.pem").write_text((authority if trusts else system).pem)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    async with listening(web.Application(), tls=context) as port:
        client = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", CLIENT, f"https://127.0.0.1:{port}/"),
            env={**os.environ, "SSL_CERT_FILE": str(tmp_path / "system.pem"), "SSL_CERT_DIR": str(tmp_path / "none")},
            stdout=subprocess.PIPE,
        )
        output, _ = await client.communicate()

    assert output.decode().strip() == printed
