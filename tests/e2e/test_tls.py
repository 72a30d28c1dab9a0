"""HTTPS: certificates by host name, client certificates, and renewal during calls."""

import asyncio
import ssl
from pathlib import Path

import aiohttp
import pytest

from tests.certificates import Authority
from tests.e2e.daemon import Daemon, post_call, serving, text_of

FILE = """\
listen: {http: "127.0.0.1:0", tls: {cert: server.pem, key: server.key}}
tools:
  echo: {description: Repeat a text., input: {text: string}, content: [{text: "{{ text }}"}]}
"""


class Site:
    """The certificate files and their authority."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority()
        self.config = folder / "config.yaml"
        self.config.write_text(FILE)
        self.cert, self.key = folder / "server.pem", folder / "server.key"
        self.issue("first")

    def issue(self, name: str) -> None:
        self.authority.issue(self.cert, self.key, name=name)

    async def name_shown(self, port: int, *, server_name: str = "localhost") -> str:
        """Return the name in the certificate of a new connection."""
        reader, writer = await connect(port, self.authority.trusting(), server_name=server_name)
        certificate = writer.get_extra_info("peercert")
        writer.close()
        del reader
        return str(certificate["subject"][0][0][1])


async def connect(
    port: int, context: ssl.SSLContext, *, server_name: str = "localhost"
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    async with asyncio.timeout(10):
        return await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=server_name)


async def port_of(daemon: Daemon) -> int:
    return int((await daemon.url()).rpartition(":")[2].removesuffix("/mcp"))


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


async def test_calls_over_https_work_and_the_url_is_https(site: Site) -> None:
    connector = aiohttp.TCPConnector(ssl=site.authority.trusting())
    async with serving(site.config) as daemon, aiohttp.ClientSession(connector=connector) as client:
        url = await daemon.url()
        assert url.startswith("https://127.0.0.1:")
        assert text_of(await post_call(client, url, "echo", text="hello")) == "hello"


async def test_plain_http_and_old_tls_are_rejected(site: Site) -> None:
    async with serving(site.config) as daemon:
        port = await port_of(daemon)
        async with aiohttp.ClientSession() as client:
            with pytest.raises(aiohttp.ClientError):
                await client.get(f"http://127.0.0.1:{port}/-/healthy")
        old = site.authority.trusting()
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await connect(port, old)
        weak = site.authority.trusting()
        weak.maximum_version = ssl.TLSVersion.TLSv1_2
        weak.set_ciphers("AES128-SHA")  # without forward secrecy
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await connect(port, weak)
        assert await site.name_shown(port) == "first"


async def test_renewed_certificate_is_used_for_new_connections(site: Site) -> None:
    connector = aiohttp.TCPConnector(ssl=site.authority.trusting())
    async with serving(site.config, watch=True) as daemon, aiohttp.ClientSession(connector=connector) as client:
        url, port = await daemon.url(), await port_of(daemon)
        kept = await connect(port, site.authority.trusting())
        assert await site.name_shown(port) == "first"
        site.issue("second")
        await daemon.event("reloaded")
        assert await site.name_shown(port) == "second"
        assert await site.name_shown(port, server_name="127.0.0.1") == "second"  # without a server name
        assert text_of(await post_call(client, url, "echo", text="on")) == "on"
        kept[1].write(b"GET /-/healthy HTTP/1.1\r\nHost: localhost\r\n\r\n")
        async with asyncio.timeout(10):
            assert (await kept[0].readline()).startswith(b"HTTP/1.1 200")
        kept[1].close()
        async with client.get(url.replace("/mcp", "/-/status")) as response:
            assert (await response.json())["restart_required"] == []


async def test_invalid_renewed_certificate_is_reported(site: Site) -> None:
    connector = aiohttp.TCPConnector(ssl=site.authority.trusting())
    async with serving(site.config, watch=True) as daemon, aiohttp.ClientSession(connector=connector) as client:
        url, port = await daemon.url(), await port_of(daemon)
        site.key.write_text("no key")
        refused = await daemon.event("reload refused")
        assert "config.yaml:1:60: listen.tls.key" in refused["problem"]
        assert await site.name_shown(port) == "first"
        async with client.get(url.replace("/mcp", "/-/ready")) as response:
            assert "listen.tls.key" in (await response.json())["problems"][0]
        site.issue("second")
        await daemon.event("reloaded")
        assert await site.name_shown(port) == "second"


async def test_unreadable_certificate_is_an_error(site: Site) -> None:
    site.cert.unlink()
    async with serving(site.config) as daemon:
        assert await daemon.exit_code() == 2
    assert "config.yaml:1:43: listen.tls.cert: cannot read" in "".join(daemon.errors)
