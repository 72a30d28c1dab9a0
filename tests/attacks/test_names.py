"""Host names that resolve to forbidden addresses, or change their address between lookups, are not fetched."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.attacks.names import PRIVATE, PUBLIC
from tests.programs import need_sandboxes


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, list[str]]:
    """The outcomes of fetching from each name."""
    need_sandboxes()
    folder = tmp_path_factory.mktemp("names")
    (folder / "resolv.conf").write_text("nameserver 127.0.0.1\noptions attempts:1 timeout:2\n")
    (folder / "nsswitch.conf").write_text("hosts: files dns\n")
    (folder / "hosts").write_text("127.0.0.1 localhost\n")
    settings = [
        argument
        for name in ("resolv.conf", "nsswitch.conf", "hosts")
        for argument in ("--ro-bind", str(folder / name), os.path.realpath(f"/etc/{name}"))
    ]
    program = shutil.which("bwrap") or ""
    done = subprocess.run(
        [
            *(program, "--unshare-user", "--uid", "0", "--unshare-net", "--cap-add", "CAP_NET_ADMIN"),
            *("--cap-add", "CAP_NET_BIND_SERVICE", "--die-with-parent", "--dev-bind", "/", "/", *settings, "--"),
            *(sys.executable, "-m", "tests.attacks.names"),
        ],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    found: Mapping[str, list[str]] = json.loads(done.stdout)
    return found


def test_public_name_is_reached(said: Mapping[str, list[str]]) -> None:
    assert set(said["public.test"]) == {f"reached {PUBLIC}"}


@pytest.mark.parametrize("name", ["loopback", "private", "metadata", "carrier", "zero", "mapped", "translated"])
def test_name_of_a_private_address_is_not_reached(said: Mapping[str, list[str]], name: str) -> None:
    assert all("which is blocked" in text for text in said[f"{name}.test"]), said[f"{name}.test"]


@pytest.mark.parametrize("name", ["rebinding.test", "both.test"])
def test_name_with_changing_addresses_only_reaches_the_public_one(said: Mapping[str, list[str]], name: str) -> None:
    assert f"reached {PUBLIC}" in said[name]
    assert not [text for text in said[name] if any(f"reached {address}" in text for address in PRIVATE)]


def test_rebinding_name_is_rejected_between_lookups(said: Mapping[str, list[str]]) -> None:
    """As a control, the name must also have resolved to loopback."""
    assert [text for text in said["rebinding.test"] if "has a loopback address" in text]
