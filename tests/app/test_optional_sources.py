"""What only some files use is imported when a file uses it, at the start or by a reload."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

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
from gateway.cli.commands import COMMANDS, load

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


CERTIFICATES: Final = """
import ssl
from gateway.cli.commands import COMMANDS, load

load(COMMANDS["serve"])
from aiohttp import connector
system = ssl.create_default_context().get_ca_certs()
print(connector._SSL_CONTEXT_VERIFIED.get_ca_certs() == system, connector._SSL_CONTEXT_VERIFIED.verify_mode.name)
"""


def test_requests_of_plugins_are_verified_by_the_certificates_of_the_system() -> None:
    run = subprocess.run([sys.executable, "-c", CERTIFICATES], capture_output=True, text=True, check=True, timeout=120)

    assert run.stdout.split() == ["True", "CERT_REQUIRED"]
