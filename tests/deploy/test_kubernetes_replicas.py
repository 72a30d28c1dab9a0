"""Kubernetes accepts the manifests for three replicas, which add a store to the manifests for one."""

import asyncio
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import redis.asyncio as redis
import yaml

from tests.deploy.files import DEPLOY, read
from tests.ports import free_port
from tests.programs import need, need_named_by

FOLDER: Final = DEPLOY / "kubernetes-replicas"
SINGLE: Final = DEPLOY / "kubernetes"


def manifests() -> list[dict[str, Any]]:
    """The manifests of this directory, with the patched Deployment, like `kubectl kustomize`."""
    own = [
        each
        for name in ("redis.yaml", "disruption-budget.yaml")
        for each in yaml.safe_load_all((FOLDER / name).read_text())
    ]
    return [merged(read(SINGLE / "deployment.yaml"), read(FOLDER / "replicas.yaml")), *own]


def merged(base: Any, patch: Any) -> Any:
    """Return a strategic merge: mappings are merged by key, and lists of named objects by name."""
    if isinstance(base, dict) and isinstance(patch, dict):
        return {**base, **{key: merged(base.get(key), value) for key, value in patch.items()}}
    if isinstance(base, list) and all("name" in each for each in [*base, *patch]):
        found = {each.get("mountPath", each["name"]): each for each in base}
        for each in patch:
            key = each.get("mountPath", each["name"])
            found[key] = merged(found.get(key), each)
        return list(found.values())
    return patch


@pytest.fixture
def deployment() -> dict[str, Any]:
    return manifests()[0]


@pytest.mark.build
def test_kubernetes_accepts_each_manifest(tmp_path: Path) -> None:
    python = need_named_by("MCP_GATEWAY_TEST_KUBERNETES", what="a Python with tests/deploy/kubernetes.txt installed")
    for number, manifest in enumerate(manifests()):
        path = tmp_path / f"{number}.yaml"
        path.write_text(yaml.safe_dump(manifest))
        command = [python, "-m", "kubernetes_validate", "--strict", str(path)]
        checked = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_file_is_part_of_the_kustomization() -> None:
    kustomization = read(FOLDER / "kustomization.yaml")
    named = {*kustomization["resources"], *(each["path"] for each in kustomization["patches"])}
    assert {path.name for path in FOLDER.iterdir()} | {"../kubernetes"} == {"kustomization.yaml", *named}
    assert kustomization["namespace"] == read(SINGLE / "kustomization.yaml")["namespace"]


def test_three_replicas_read_the_store_url_from_a_file(deployment: dict[str, Any]) -> None:
    pod = deployment["spec"]["template"]["spec"]
    [container] = pod["containers"]
    environment = {each["name"]: each["value"] for each in container["env"]}
    assert deployment["spec"]["replicas"] == 3
    assert environment["MCP_GATEWAY_STORE_FILE"] == "/run/secrets/mcp-gateway-store/store"
    assert environment["MCP_GATEWAY_SECRET_KEY_FILE"] == "/run/secrets/mcp-gateway/signing_key"
    assert environment["MCP_GATEWAY_STATE_DIR"] == "none"
    assert {each["name"] for each in container["volumeMounts"]} == {each["name"] for each in pod["volumes"]}
    assert container["readinessProbe"]["httpGet"]["path"] == "/-/ready"
    assert "sessionAffinity" not in read(SINGLE / "service.yaml")["spec"]
    assert "affinity" not in (SINGLE / "ingress.yaml").read_text()


def test_labels_services_and_secrets_match(deployment: dict[str, Any]) -> None:
    _, service, redis_set, policy, budget = manifests()
    label = deployment["spec"]["template"]["metadata"]["labels"]
    assert budget["spec"]["selector"]["matchLabels"] == label
    assert budget["spec"]["minAvailable"] < deployment["spec"]["replicas"]
    [source] = policy["spec"]["ingress"][0]["from"]
    assert source["podSelector"]["matchLabels"] == label
    own = redis_set["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"] == policy["spec"]["podSelector"]["matchLabels"] == own
    text = (FOLDER / "kustomization.yaml").read_text()
    assert f"@{service['metadata']['name']}:{service['spec']['ports'][0]['port']}/0" in text
    pods = [deployment["spec"]["template"]["spec"], redis_set["spec"]["template"]["spec"]]
    for secret in [each["secret"] for pod in pods for each in pod["volumes"] if "secret" in each]:
        if secret["secretName"] == "mcp-gateway-store":
            assert all(f"--from-literal={item['key']}=" in text for item in secret["items"])


async def test_redis_reads_its_password_from_a_file(tmp_path: Path) -> None:
    [container] = manifests()[2]["spec"]["template"]["spec"]["containers"]
    (tmp_path / "store_password").write_text("hidden")
    shell, flag, script = container["command"]
    script = script.replace("/run/secrets/redis", str(tmp_path)).replace(
        "END\nreq", f"END\nport {(port := free_port())}\nreq", 1
    )
    need("redis-server")
    process = await asyncio.create_subprocess_exec(shell, flag, script, cwd=tmp_path, stdout=asyncio.subprocess.DEVNULL)
    client = redis.Redis(host="127.0.0.1", port=port, password="hidden")
    try:
        async with asyncio.timeout(30):
            while True:
                try:
                    assert await client.ping()
                    break
                except redis.ConnectionError:
                    await asyncio.sleep(0.05)
        assert (await client.config_get("maxmemory-policy"))["maxmemory-policy"] == "noeviction"
        assert b"hidden" not in Path(f"/proc/{process.pid}/cmdline").read_bytes()
        with pytest.raises(redis.AuthenticationError):
            await redis.Redis(host="127.0.0.1", port=port).ping()
    finally:
        await client.aclose()
        process.kill()
        await process.wait()
