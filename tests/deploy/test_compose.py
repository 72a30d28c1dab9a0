"""compose.yaml mounts existing files, uses the image's commands, and serves a file without warnings."""

from pathlib import Path
from typing import Any, Final

import pytest

from gateway.cli.commands.serve import parser as serve_parser
from tests.deploy.files import DEPLOY, problems_of, read

FOLDER: Final = DEPLOY / "compose"


@pytest.fixture
def services() -> dict[str, Any]:
    found: dict[str, Any] = read(FOLDER / "compose.yaml")["services"]
    return found


def test_every_mount_is_an_existing_read_only_directory(services: dict[str, Any]) -> None:
    mounts = [mount for service in services.values() for mount in service.get("volumes", [])]
    assert len(mounts) == 3
    mounts.remove("state:/var/lib/mcp-gateway")  # the writable volume, which outlives the containers
    for mount in mounts:
        source, _, mode = mount.split(":")
        assert (FOLDER / source).is_dir(), mount
        assert mode == "ro", mount


def test_image_is_built_from_the_project(services: dict[str, Any]) -> None:
    build = services["gateway"]["build"]
    assert (FOLDER / build["context"] / build["dockerfile"]).is_file()


def test_compose_command_is_valid(services: dict[str, Any]) -> None:
    name, *words = services["gateway"]["command"]
    options = serve_parser(name).parse_args(words)
    assert options.config == "/etc/mcp-gateway/config.yaml"
    assert "--allow-anonymous" not in words


def test_container_has_minimal_privileges(services: dict[str, Any]) -> None:
    gateway = services["gateway"]
    assert gateway["read_only"] is True
    assert gateway["cap_drop"] == ["ALL"]
    assert gateway["security_opt"] == ["no-new-privileges:true"]
    assert "ports" not in gateway, "only nginx is reachable from outside"
    assert all(port.startswith("127.0.0.1:") for port in services["nginx"]["ports"])


def test_every_secret_is_documented(services: dict[str, Any]) -> None:
    text = (FOLDER / "compose.yaml").read_text()
    secrets = read(FOLDER / "compose.yaml")["secrets"]
    assert set(services["gateway"]["secrets"]) == set(secrets)
    (making,) = [line for line in text.splitlines() if line.startswith("#") and "openssl rand" in line]
    for name, secret in secrets.items():
        assert f" {name}" in making
        assert secret == {"file": f"./secrets/{name}"}
    assert (FOLDER / ".gitignore").read_text() == "secrets/\n"


def test_configuration_is_valid_without_warnings(tmp_path: Path) -> None:
    assert problems_of(FOLDER / "config" / "config.yaml", secrets="/run/secrets", folder=tmp_path) == []


def test_replicas_file_names_existing_services_and_secrets(services: dict[str, Any]) -> None:
    added = read(FOLDER / "replicas.yaml")
    text = (FOLDER / "replicas.yaml").read_text()
    assert set(added["services"]) - set(services) == {"redis"}
    assert added["services"]["gateway"]["deploy"] == {"replicas": 3}
    assert added["services"]["gateway"]["environment"]["MCP_GATEWAY_STORE_FILE"] == "/run/secrets/store"
    assert "ports" not in added["services"]["redis"]
    for service in added["services"].values():
        assert set(service.get("secrets", ())) <= set(added["secrets"])
    for name, secret in added["secrets"].items():
        assert secret == {"file": f"./secrets/{name}"}
        assert f"> secrets/{name} " in text
