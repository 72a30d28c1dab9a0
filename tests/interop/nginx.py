"""Runs nginx with deploy/nginx/mcp-gateway.conf in front of a daemon, on a free port, in a temporary directory."""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from tests.certificates import Authority
from tests.ports import free_port
from tests.programs import need

SHIPPED: Final = Path(__file__).parents[2] / "deploy" / "nginx" / "mcp-gateway.conf"
PREFIX: Final = "/ops"
SECONDS: Final = 20
MAIN: Final = """\
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log stderr warn;
events {{ worker_connections 256; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/conf.d/*.conf;
}}
"""


@dataclass(kw_only=True)
class Nginx:
    """A running or stopped nginx."""

    folder: Path
    port: int
    url: str
    """The URL of the daemon as clients see it, without a trailing slash."""
    address: str = "127.0.0.1"
    launcher: Sequence[str] = ()
    process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        program = need("nginx")
        with (self.folder / "errors").open("a") as errors:
            self.process = await asyncio.create_subprocess_exec(
                *(
                    *self.launcher,
                    program,
                    "-p",
                    str(self.folder),
                    "-c",
                    str(self.folder / "nginx.conf"),
                    "-e",
                    "stderr",
                ),
                stderr=errors,
            )
        async with asyncio.timeout(SECONDS):
            while not await self._answers():
                assert self.process.returncode is None, (self.folder / "errors").read_text()

    async def stop(self) -> None:
        """Kill nginx, as a power failure would."""
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()

    async def _answers(self) -> bool:
        try:
            _, writer = await asyncio.open_connection(self.address, self.port)
        except ConnectionRefusedError:
            await asyncio.sleep(0.02)
            return False
        writer.close()
        return True


@asynccontextmanager
async def nginx(
    folder: Path,
    *,
    daemon: str,
    authority: Authority | None = None,
    prefix: bool = False,
    second: str = "",
    port: int = 0,
    changes: Mapping[str, str] = MappingProxyType({}),
    address: str = "127.0.0.1",
    launcher: Sequence[str] = (),
) -> AsyncIterator[Nginx]:
    """Run nginx with the shipped file in front of one or two daemons. `changes` replaces lines of the file.

    `launcher` is the start of the command of nginx, for example to run it on another host with this `address`.
    """
    port = port or free_port()
    text = SHIPPED.read_text()
    if authority is not None:
        text = _marked(text, "tls")
        authority.issue(folder / "server.pem", folder / "server.key")
    if prefix:
        text = _marked(text, "prefix")
    if second:
        text = _marked(text, "pair")
    substitutes = {
        "gateway2:8000": second,
        "gateway:8000": daemon,
        "listen 8080;": f"listen {address}:{port};",
        "listen 443 ssl;": f"listen {address}:{port} ssl;",
        "/etc/nginx/tls": str(folder),
        **changes,
    }
    for old, new in substitutes.items():
        text = text.replace(old, new)
    (folder / "conf.d").mkdir()
    (folder / "conf.d" / SHIPPED.name).write_text(text)
    user = "user root;\n" if os.geteuid() == 0 else ""
    (folder / "nginx.conf").write_text(user + MAIN.format(folder=folder))
    scheme = "http" if authority is None else "https"
    url = f"{scheme}://{address}:{port}{PREFIX if prefix else ''}"
    it = Nginx(folder=folder, port=port, url=url, address=address, launcher=launcher)
    await it.start()
    try:
        yield it
    finally:
        await it.stop()


def _marked(text: str, mark: str) -> str:
    """Follow the instructions in the file: remove the marks, and delete the line before each group."""
    marked = rf"[ \t]*#{mark}# ([^\n]*)\n"
    text, count = re.subn(rf"\n[^\n#]*\n{marked}", r"\n        \1\n", text)
    assert count
    return re.sub(marked, r"        \1\n", text)
