"""The Helm chart renders manifests that Kubernetes accepts, and that match those in deploy/kubernetes."""

import json
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from gateway import __version__
from tests.deploy.files import DEPLOY, problems_of, read
from tests.programs import need_named_by

CHART: Final = DEPLOY / "helm" / "mcp-gateway"
PLAIN: Final = DEPLOY / "kubernetes"
_SCRIPT: Final = """\
import json, sys
from helm_python import Chart, lint
chart, values = json.load(sys.stdin)
print(json.dumps([lint(chart, values, strict=True), Chart.load(chart).render(values, name="tools", namespace="mcp")]))
"""
EVERYTHING: Final = {
    "replicaCount": 3,
    "store": {"secretName": "mcp-gateway-store"},
    "files": {"plugin.py": "def hi() -> str:\n    return 'hi'\n"},
    "extraArgs": ["--log-level", "debug"],
    "extraEnv": [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "api", "key": "token"}}}],
    "ingress": {"enabled": True, "className": "nginx", "annotations": {"a": "b"}, "tlsSecretName": "tls"},
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "imagePullSecrets": [{"name": "registry"}],
    "podAnnotations": {"a": "b"},
    "podLabels": {"team": "tools"},
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "tools", "operator": "Exists"}],
    "affinity": {"podAntiAffinity": {}},
}

Manifests = dict[str, dict[str, Any]]


def run(values: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    python = need_named_by("MCP_GATEWAY_TEST_KUBERNETES", what="a Python with tests/deploy/kubernetes.txt installed")
    given = json.dumps([str(CHART), values])
    return subprocess.run(
        [python, "-c", _SCRIPT], input=given, capture_output=True, text=True, timeout=120, check=False
    )


def rendered(values: dict[str, Any]) -> Manifests:
    """Return the manifests by kind and name, after `helm lint`."""
    done = run(values)
    assert done.returncode == 0, done.stderr
    report, files = json.loads(done.stdout)
    assert [each for each in report["messages"] if each["severity"] > 1] == []
    texts = [text for name, text in files.items() if name.endswith(".yaml")]
    documents = [each for text in texts for each in yaml.safe_load_all(text) if each]
    return {f"{each['kind']} {each['metadata']['name']}": each for each in documents}


@pytest.fixture(scope="module")
def single() -> Manifests:
    return rendered({})


@pytest.fixture(scope="module")
def everything() -> Manifests:
    return rendered(EVERYTHING)


def test_chart_has_the_version_of_the_program() -> None:
    chart = read(CHART / "Chart.yaml")
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


def test_default_configuration_is_valid_and_has_the_port_of_the_chart(tmp_path: Path) -> None:
    values = read(CHART / "values.yaml")
    (tmp_path / "values.yaml").write_text(values["config"])
    (tmp_path / "secrets").mkdir()
    secrets = "/run/secrets/mcp-gateway"
    assert problems_of(tmp_path / "values.yaml", secrets=secrets, folder=tmp_path / "secrets") == []
    assert yaml.safe_load(values["config"])["listen"]["admin"] == f"0.0.0.0:{values['service']['adminPort']}"


@pytest.mark.build
@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything"])
def test_kubernetes_accepts_the_rendered_manifests(values: dict[str, Any], tmp_path: Path) -> None:
    python = need_named_by("MCP_GATEWAY_TEST_KUBERNETES", what="a Python with tests/deploy/kubernetes.txt installed")
    manifests = rendered(values)
    for name, manifest in manifests.items():
        if manifest["kind"] == "ServiceMonitor":  # a custom resource without a published schema
            continue
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump(manifest))
        command = [python, "-m", "kubernetes_validate", "--strict", str(path)]
        checked = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.build
def test_default_pod_matches_the_plain_manifest(single: Manifests) -> None:
    assert set(single) == {
        "ConfigMap tools-mcp-gateway",
        "Deployment tools-mcp-gateway",
        "NetworkPolicy tools-mcp-gateway",
        "Service tools-mcp-gateway",
        "Service tools-mcp-gateway-admin",
    }
    pod = single["Deployment tools-mcp-gateway"]["spec"]["template"]["spec"]
    plain = read(PLAIN / "deployment.yaml")["spec"]["template"]["spec"]
    [container], [plain_container] = pod.pop("containers"), plain.pop("containers")
    assert container.pop("image") == f"registry.example.com/mcp-gateway:{__version__}"
    plain_container.pop("image")
    assert container.pop("imagePullPolicy") == "IfNotPresent"
    assert container == plain_container
    [config] = [each for each in pod["volumes"] if each["name"] == "config"]
    config["configMap"]["name"] = "mcp-gateway"
    assert pod == plain


@pytest.mark.build
def test_services_policies_and_monitor_select_the_pod(everything: Manifests) -> None:
    labels = everything["Deployment tools-mcp-gateway"]["spec"]["template"]["metadata"]["labels"]
    policy = everything["NetworkPolicy tools-mcp-gateway"]["spec"]
    budget = everything["PodDisruptionBudget tools-mcp-gateway"]["spec"]
    services = [each for name, each in everything.items() if name.startswith("Service ")]
    selectors = [each["spec"]["selector"] for each in services]
    for selector in (*selectors, policy["podSelector"]["matchLabels"], budget["selector"]["matchLabels"]):
        assert selector.items() <= labels.items()
    monitor = everything["ServiceMonitor tools-mcp-gateway"]["spec"]
    admin = everything["Service tools-mcp-gateway-admin"]
    assert monitor["selector"]["matchLabels"].items() <= admin["metadata"]["labels"].items()
    assert monitor["endpoints"][0]["port"] == admin["spec"]["ports"][0]["name"]
    assert [rule["ports"] for rule in policy["ingress"]] == [[{"port": "http"}], [{"port": "admin"}]]
    [rule] = everything["Ingress tools-mcp-gateway"]["spec"]["rules"]
    backend = rule["http"]["paths"][0]["backend"]["service"]
    assert f"Service {backend['name']}" in everything


@pytest.mark.build
def test_values_reach_the_pod(everything: Manifests) -> None:
    deployment = everything["Deployment tools-mcp-gateway"]["spec"]
    pod = deployment["template"]["spec"]
    [container] = pod["containers"]
    environment = {each["name"]: each.get("value") for each in container["env"]}
    assert deployment["replicas"] == 3
    assert environment["MCP_GATEWAY_STORE_FILE"] == "/run/secrets/mcp-gateway-store/store"
    assert environment["MCP_GATEWAY_STATE_DIR"] == "none"
    assert "TOKEN" in environment
    assert container["args"][-2:] == ["--log-level", "debug"]
    assert {each["name"] for each in container["volumeMounts"]} == {each["name"] for each in pod["volumes"]}
    data = everything["ConfigMap tools-mcp-gateway"]["data"]
    assert data["plugin.py"] == EVERYTHING["files"]["plugin.py"]  # type: ignore[index]
    assert data["config.yaml"] == read(CHART / "values.yaml")["config"]


@pytest.mark.build
def test_replicas_without_a_store_are_rejected() -> None:
    done = run({"replicaCount": 2})
    assert done.returncode != 0
    assert "set store.secretName" in done.stderr
