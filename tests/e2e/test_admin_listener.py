"""`listen.admin`: the admin paths are served only on a separate listener."""

from hashlib import sha256
from pathlib import Path

import aiohttp
import pytest

from tests.e2e.daemon import Daemon, call, post_call, serving, text_of

FILE = """\
listen: {{http: "127.0.0.1:0", admin: "{admin}"}}
tools:
  echo: {{description: Repeat a text., input: {{text: string}}, content: [{{text: "{{{{ text }}}}"}}]}}
"""
OWN = ("/-/healthy", "/-/ready", "/-/status", "/-/config", "/metrics")


def written(folder: Path, *, admin: str) -> Path:
    config = folder / "config.yaml"
    config.write_text(FILE.format(admin=admin))
    return config


async def bases(daemon: Daemon) -> tuple[str, str]:
    """Return the base URLs of the main listener and the admin listener."""
    main, admin = await daemon.url(), (await daemon.event("listening for operators"))["url"]
    return main.removesuffix("/mcp"), str(admin).removesuffix("/-/status")


async def test_admin_paths_are_only_on_the_admin_listener(tmp_path: Path) -> None:
    async with serving(written(tmp_path, admin="127.0.0.1:0")) as daemon, aiohttp.ClientSession() as client:
        main, admin = await bases(daemon)
        for path in OWN:
            async with client.get(admin + path) as response:
                assert response.status == 200, path
            async with client.get(main + path) as response:
                assert response.status == 404, path
        async with client.post(admin + "/-/reload") as response:
            assert (await response.json())["problems"] == []
        async with client.post(main + "/-/reload") as response:
            assert response.status == 404
        assert text_of(await post_call(client, main + "/mcp", "echo", text="x")) == "x"
        async with client.post(admin + "/mcp", json=call("echo", text="x")) as response:
            assert response.status == 404


async def test_admin_listener_rejects_browsers(tmp_path: Path) -> None:
    async with serving(written(tmp_path, admin="127.0.0.1:0")) as daemon, aiohttp.ClientSession() as client:
        _, admin = await bases(daemon)
        async with client.get(admin + "/-/status", headers={"Host": "evil.example.com"}) as response:
            assert response.status == 421
        async with client.post(admin + "/-/reload", headers={"Origin": "http://localhost:3000"}) as response:
            assert response.status == 404


async def test_admin_listener_beyond_loopback_requires_a_setting(tmp_path: Path) -> None:
    config = written(tmp_path, admin="0.0.0.0:0")
    async with serving(config) as daemon:
        assert await daemon.exit_code() == 2
    said = "".join(daemon.errors)
    assert "listen.admin" in said
    assert "--allow-anonymous" in said
    async with serving(config, "--allow-anonymous") as daemon, aiohttp.ClientSession() as client:
        _, admin = await bases(daemon)
        async with client.get(admin.replace("0.0.0.0", "127.0.0.1") + "/-/status") as response:
            assert response.status == 200


@pytest.mark.parametrize(("admin", "status"), [("127.0.0.1:0", 200), ("0.0.0.0:0", 401)])
async def test_operators_beyond_loopback_must_authenticate(tmp_path: Path, admin: str, status: int) -> None:
    config = written(tmp_path, admin=admin)
    key = "operator-key-0123456"
    auth = (
        f"auth: {{api_keys: {{operator: {{sha256: {sha256(key.encode()).hexdigest()}, scopes: ['gateway:admin']}}}}}}\n"
    )
    config.write_text(config.read_text() + auth)
    async with serving(config) as daemon, aiohttp.ClientSession() as client:
        url = (await bases(daemon))[1].replace("0.0.0.0", "127.0.0.1")
        async with client.get(url + "/-/status") as response:
            assert response.status == status
        async with client.get(url + "/-/status", headers={"X-API-Key": key}) as response:
            assert (await response.json())["auth"]["api_keys"] == ["operator"]
        async with client.get(url + "/-/ready") as response:
            assert response.status == 200


@pytest.mark.parametrize("admin", ["9090", "localhost", "127.0.0.1:99999"])
async def test_invalid_admin_address_is_an_error(tmp_path: Path, admin: str) -> None:
    async with serving(written(tmp_path, admin=admin)) as daemon:
        assert await daemon.exit_code() == 2
    assert "listen.admin: expected host:port" in "".join(daemon.errors)
