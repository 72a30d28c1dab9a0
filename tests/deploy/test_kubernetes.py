"""Kubernetes accepts the manifests. They use the daemon's paths, and mount every directory that it writes to."""

import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from gateway import __version__
from gateway.app.gateway import CLEAN_UP_SECONDS
from gateway.cli.commands.serve import parser as serve_parser
from gateway.config.settings import read_settings
from tests.deploy.files import DEPLOY, problems_of, read
from tests.programs import need_named_by

FOLDER: Final = DEPLOY / "kubernetes"
MANIFESTS: Final = sorted(read(FOLDER / "kustomization.yaml")["resources"])
SECRETS: Final = "/run/secrets/mcp-gateway"


@pytest.fixture
def pod() -> dict[str, Any]:
    found: dict[str, Any] = read(FOLDER / "deployment.yaml")["spec"]["template"]["spec"]
    return found


@pytest.fixture
def container(pod: dict[str, Any]) -> dict[str, Any]:
    [found] = pod["containers"]
    return dict(found)


@pytest.mark.build
@pytest.mark.parametrize("manifest", MANIFESTS)
def test_kubernetes_accepts_the_manifest(manifest: str) -> None:
    python = need_named_by("MCP_GATEWAY_TEST_KUBERNETES", what="a Python with tests/deploy/kubernetes.txt installed")
    command = [python, "-m", "kubernetes_validate", "--strict", str(FOLDER / manifest)]
    checked = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_file_is_part_of_the_kustomization() -> None:
    kustomization = read(FOLDER / "kustomization.yaml")
    generated = [file for each in kustomization["configMapGenerator"] for file in each["files"]]
    there = {path.name for path in FOLDER.iterdir()}
    assert there == {"kustomization.yaml", *kustomization["resources"], *generated}


def test_configuration_is_mounted_as_a_directory(pod: dict[str, Any], container: dict[str, Any]) -> None:
    mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
    assert mounts["config"] == {"name": "config", "mountPath": "/etc/mcp-gateway", "readOnly": True}
    assert not any("subPath" in mount for mount in mounts.values())
    [generator] = read(FOLDER / "kustomization.yaml")["configMapGenerator"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes["config"]["configMap"]["name"] == generator["name"]
    assert generator["options"] == {"disableNameSuffixHash": True}, "an update would start another pod instead"


def test_probes_use_public_paths(container: dict[str, Any]) -> None:
    paths = {name: container[name]["httpGet"]["path"] for name in ("startupProbe", "readinessProbe", "livenessProbe")}
    assert paths == {"startupProbe": "/-/ready", "readinessProbe": "/-/ready", "livenessProbe": "/-/healthy"}


def test_admin_listener_is_only_reachable_for_probes_and_monitoring(container: dict[str, Any]) -> None:
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert read(FOLDER / "config.yaml")["listen"]["admin"] == f"0.0.0.0:{ports['admin']}"
    assert {container[f"{name}Probe"]["httpGet"]["port"] for name in ("startup", "readiness", "liveness")} == {"admin"}
    policy = read(FOLDER / "network-policy.yaml")["spec"]
    assert [rule["ports"] for rule in policy["ingress"]] == [[{"port": "http"}], [{"port": "admin"}]]
    monitoring = DEPLOY / "kubernetes-monitoring"
    service = read(monitoring / "admin-service.yaml")
    monitor = read(monitoring / "service-monitor.yaml")["spec"]
    assert service["spec"]["selector"] == policy["podSelector"]["matchLabels"]
    assert service["metadata"]["labels"] == monitor["selector"]["matchLabels"]
    assert [port["name"] for port in service["spec"]["ports"]] == [each["port"] for each in monitor["endpoints"]]


def test_image_has_a_version_and_temporary_volumes_a_size(pod: dict[str, Any]) -> None:
    [image] = read(FOLDER / "kustomization.yaml")["images"]
    assert image["newTag"] == __version__
    volumes = [volume["emptyDir"] for volume in pod["volumes"] if "emptyDir" in volume]
    assert volumes
    assert all("sizeLimit" in volume for volume in volumes)


def test_pod_runs_unprivileged_with_a_read_only_root(pod: dict[str, Any], container: dict[str, Any]) -> None:
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["automountServiceAccountToken"] is False
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_termination_grace_period_covers_the_drain(pod: dict[str, Any], container: dict[str, Any]) -> None:
    name, *words = container["args"]
    options = serve_parser(name).parse_args(words)
    drain = read_settings({"drain_timeout": options.drain_timeout}).drain_timeout.total_seconds()
    pause = float(container["lifecycle"]["preStop"]["exec"]["command"][-1])
    assert pod["terminationGracePeriodSeconds"] >= pause + drain + CLEAN_UP_SECONDS


def test_service_and_ingress_select_the_pod(container: dict[str, Any]) -> None:
    deployment, service = read(FOLDER / "deployment.yaml"), read(FOLDER / "service.yaml")
    assert service["spec"]["selector"] == deployment["spec"]["template"]["metadata"]["labels"]
    [port] = service["spec"]["ports"]
    assert port["targetPort"] == container["ports"][0]["name"]
    [rule] = read(FOLDER / "ingress.yaml")["spec"]["rules"]
    [path] = rule["http"]["paths"]
    assert path["backend"]["service"] == {"name": service["metadata"]["name"], "port": {"name": port["name"]}}


def test_configuration_is_valid_and_its_secrets_are_documented(tmp_path: Path) -> None:
    assert problems_of(FOLDER / "config.yaml", secrets=SECRETS, folder=tmp_path) == []
    text = (FOLDER / "kustomization.yaml").read_text()
    for name in ("signing_key", "team_key", "operator_key"):
        assert f"--from-literal={name}=" in text
