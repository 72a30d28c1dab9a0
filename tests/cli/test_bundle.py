"""`mcp-gateway bundle`: the bundle works, and contains no secrets and no files of other directories."""

import json
import os
import subprocess
import sys
import tomllib
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from gateway import __version__
from gateway.cli.credential_files import holds_private_key
from tests.cli.typed import Finished, Run
from tests.messages import initialize_request, legacy_request
from tests.node import NodePackage, find_package
from tests.programs import linux_only, skip_or_fail

PROJECT = Path(__file__).parents[2]
SECRET = "hunter2-hunter2-hunter2"
CONFIG = """\
server: {name: Ops & Co, title: Ops, instructions: Look first., version: 1.2.3}
include: [tools.d/*.yaml]
plugins: [plugins]
tools:
  greet: {description: "Says hello.\\nAnd more.", python: "hello:greet"}
  ask:
    description: Asks an API.
    http:
      url: "https://api.example.com"
      headers: {Authorization: "Bearer ${env:API_TOKEN}", X-Key: "${file:key.txt}"}
resources:
  notes: {files: "notes/**/*.md"}
  elsewhere: {files: "../elsewhere/*.md"}
"""


@pytest.fixture
def folder(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    del run  # which has moved here
    for path, text in {
        "ops/config.yaml": CONFIG,
        "ops/tools.d/one.yaml": "tools: {one: {description: One., content: '1'}}\n",
        "ops/plugins/hello.py": 'def greet(name: str) -> str:\n    return f"Hello, {name}!"\n',
        "ops/plugins/__pycache__/hello.pyc": "cached",
        "ops/notes/deep/a.md": "A.",
        "ops/notes/b.txt": "not asked for",
        "ops/key.txt": SECRET,
        "ops/unrelated.txt": "unrelated",
        "ops/notes/tls.md": "-----BEGIN EC PRIVATE KEY-----\nx\n",
        "elsewhere/e.md": "E.",
    }.items():
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (tmp_path / "ops/key.txt").chmod(0o600)
    (tmp_path / "ops/notes/link.md").symlink_to(tmp_path / "elsewhere/e.md")
    monkeypatch.setenv("API_TOKEN", SECRET)
    return tmp_path


OPENSSL = (
    "openssl genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out k.txt",
    "openssl genpkey -algorithm ED25519 -outform DER -out k.txt",
    "openssl genpkey -algorithm RSA -outform DER -out k.txt",
    "openssl genpkey -algorithm RSA -out r.txt && openssl rsa -in r.txt -traditional -outform DER -out k.txt",
    "openssl ecparam -genkey -name prime256v1 -noout -outform DER -out k.txt",
    "openssl genpkey -algorithm RSA -out r && openssl pkcs8 -topk8 -in r -passout pass:x -outform DER -out k.txt",
    """openssl req -x509 -newkey rsa:2048 -nodes -keyout r.txt -out c.txt -subj /CN=x
       openssl pkcs12 -export -in c.txt -inkey r.txt -passout pass:x -out k.txt""",
    "openssl genpkey -algorithm ED25519 -out r.txt && (head -c 100000 /dev/zero; cat r.txt) > k.txt",
    "openssl genpkey -algorithm ED25519 -out r.txt && iconv -t UTF-16 < r.txt > k.txt",
    """openssl genpkey -algorithm ED25519 -out r.txt && awk '{printf "%s\\\\n", $0}' r.txt > k.txt""",
    "printf 'Bag\n  -----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl\n' > k.txt",
    "printf '# x\nPuTTY-User-Key-File-3: ssh-ed25519\n' > k.txt",
    "printf -- '---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----\nP2/5\n' > k.txt",
    "printf -- '-----BEGIN PGP PRIVATE KEY BLOCK-----\nVersion: 1\n\nlQ==' > k.txt",
    """printf '{"kty":"EC","crv":"P-256","d":"x","x":"y"}' > k.txt""",
    "openssl genpkey -algorithm ED25519 -out r.txt && (printf 'tls.key: '; base64 -w 0 < r.txt) > k.txt",
    "openssl genpkey -algorithm RSA -out r.txt && (echo 'client-key-data: |'; base64 r.txt | sed 's/^/  /') > k.txt",
    "printf 'clusters: []\nusers:\n- name: a\n  user:\n    token: eyJhbGciOiJSUzI1NiJ9.x\n' > k.txt",
    """printf '{"clusters":[],"users":[{"user":{"token":"eyJhbGciOiJSUzI1NiJ9.x"}}]}' > k.txt""",
    """openssl req -x509 -newkey ed25519 -nodes -keyout k.txt -out r.txt -subj /CN=x
       (echo 'clusters:'; printf 'certificate-authority-data: '; base64 -w 0 r.txt; printf '\nusers: []\n') > c.txt""",
)


@pytest.mark.parametrize("made_by", OPENSSL)
def test_private_key_is_detected_by_content(made_by: str, tmp_path: Path) -> None:
    subprocess.run(["sh", "-ec", made_by], cwd=tmp_path, check=True, capture_output=True, timeout=60)
    assert holds_private_key((tmp_path / "k.txt").read_bytes())
    if (tmp_path / "c.txt").exists():
        assert not holds_private_key((tmp_path / "c.txt").read_bytes())
    assert not holds_private_key(b'if "-----BEGIN PRIVATE KEY-----" in text: raise InvalidPrivateKeyError(text)')


def test_credential_files_are_omitted_and_listed(run: Run, folder: Path) -> None:
    out = ["notes/.git", "plugins/.env", "plugins/.env.local", "plugins/.ssh", "plugins/sub/id_rsa", "plugins/.netrc"]
    out += ["plugins/prod.env", "plugins/kubeconfig"]
    for name in out:
        path = folder / "ops" / name / "a.md" if name.endswith(("git", "ssh")) else folder / "ops" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    finished = run("bundle", "ops/config.yaml", "-o", "out.mcpb")
    assert finished.code == 0
    with zipfile.ZipFile("out.mcpb") as archive:
        assert not [name for name in archive.namelist() if any(each in name for each in out)]
    for name in out:
        assert finished.hints.count(f"contains a secret: {folder}/ops/{name}\n") == (name != "notes/.git")


def test_configuration_with_private_key_is_rejected(run: Run, folder: Path) -> None:
    key = "-----BEGIN PRIVATE KEY-----\n      MC4CAQAwBQYDK2VwBCIEIAAAAAAAAAAA\n"
    (folder / "ops/tools.d/one.yaml").write_text(f"x-key: |\n      {key}")
    finished = run("bundle", "ops/config.yaml", "-o", "out.mcpb")
    assert finished.code == 2
    assert "one.yaml contains a private key" in finished.hints


@pytest.fixture(scope="module")
def official_tool() -> NodePackage:
    found = find_package(PROJECT / "tests/interop", name="@anthropic-ai/mcpb", variable="MCP_GATEWAY_TEST_INSPECTOR")
    return skip_or_fail(found) if isinstance(found, str) else found


def bundled(run: Run, *words: str) -> Finished:
    return run("bundle", "ops/config.yaml", "-o", "ops.mcpb", *words)


def test_bundle_contains_used_files_without_secrets(run: Run, folder: Path) -> None:
    finished = bundled(run)
    assert finished.code == 0, finished.hints
    with zipfile.ZipFile(folder / "ops.mcpb") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    assert set(members) == {
        "manifest.json",
        "pyproject.toml",
        f"mcp_gateway_daemon-{__version__}-py3-none-any.whl",
        "server/start.py",
        "server/config.yaml",
        "server/tools.d/one.yaml",
        "server/plugins/hello.py",
        "server/notes/deep/a.md",
    }
    assert not [name for name, content in members.items() if SECRET.encode() in content]
    assert f"contains a secret: {folder}/ops/key.txt" in finished.hints
    assert f"contains a secret: {folder}/ops/notes/tls.md" in finished.hints
    assert f"outside the configuration's directory: {folder}/elsewhere/e.md" in finished.hints
    first = (folder / "ops.mcpb").read_bytes()
    assert bundled(run).code == 0
    assert (folder / "ops.mcpb").read_bytes() == first


def test_bundle_contains_a_wheel_that_its_project_file_names(run: Run, folder: Path) -> None:
    assert bundled(run).code == 0
    with zipfile.ZipFile(folder / "ops.mcpb") as archive:
        project = tomllib.loads(archive.read("pyproject.toml").decode())
        wheel = archive.read(project["tool"]["uv"]["sources"]["mcp-gateway-daemon"]["path"])
    assert project["project"]["dependencies"] == ["mcp-gateway-daemon"]
    with zipfile.ZipFile(BytesIO(wheel)) as archive:
        names = archive.namelist()
        [record] = [name for name in names if name.endswith(".dist-info/RECORD")]
        recorded = archive.read(record).decode().splitlines()
    assert "gateway/console/static/index.html" in names
    assert [line.split(",")[0] for line in recorded] == names


@pytest.mark.parametrize(
    ("more", "extras"),
    [
        ("databases: {notes: {url: 'sqlite:notes.db'}, shop: {url: 'mysql+asyncmy://app@db/shop'}}", "[mysql,sql]"),
        ("databases: {facts: {url: 'duckdb:facts.duckdb'}}", "[duckdb]"),
        ("connections: {api: {base_url: 'https://api.example.com', auth: {bearer: '${env:API_TOKEN}'}}}", ""),
        ("connections: {api: {base_url: 'https://api.example.com', auth: {authorization_code: {}}}}", "[auth]"),
    ],
)
def test_bundle_installs_extras_of_its_file(run: Run, folder: Path, more: str, extras: str) -> None:
    config = folder / "ops" / "config.yaml"
    config.write_text(f"{config.read_text()}{more}\n")
    assert bundled(run).code == 0
    with zipfile.ZipFile(folder / "ops.mcpb") as archive:
        project = tomllib.loads(archive.read("pyproject.toml").decode())
    assert project["project"]["dependencies"] == [f"mcp-gateway-daemon{extras}"]


def test_package_option_replaces_the_wheel(run: Run, folder: Path) -> None:
    requirement = "mcp-gateway-daemon @ git+https://git.example.com/gateway"
    assert bundled(run, "--package", requirement).code == 0
    with zipfile.ZipFile(folder / "ops.mcpb") as archive:
        project = tomllib.loads(archive.read("pyproject.toml").decode())
        assert not [name for name in archive.namelist() if name.endswith(".whl")]
    assert project["project"]["dependencies"] == [requirement]


def test_manifest_asks_for_variables(run: Run, folder: Path) -> None:
    bundled(run, "--author", "Ada")
    with zipfile.ZipFile(folder / "ops.mcpb") as archive:
        manifest: dict[str, Any] = json.loads(archive.read("manifest.json"))
    assert (manifest["name"], manifest["version"], manifest["author"]) == ("ops-co", "1.2.3", {"name": "Ada"})
    assert {"name": "greet", "description": "Says hello."} in manifest["tools"]
    assert manifest["server"]["mcp_config"]["env"] == {"API_TOKEN": "${user_config.api_token}"}
    asked = manifest["user_config"]["api_token"]
    assert (asked["required"], asked["sensitive"]) == (True, True)


def test_program_of_a_bundle_serves_it(run: Run, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    (folder / "ops/config.yaml").write_text(CONFIG.replace(', X-Key: "${file:key.txt}"', "").split("  elsewhere:")[0])
    assert bundled(run).code == 0
    directory = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(folder / "ops.mcpb") as archive:
        archive.extractall(directory)
    greet = legacy_request("tools/call", {"name": "greet", "arguments": {"name": "Ada"}}, request_id=2)
    done = subprocess.run(
        [sys.executable, directory / "server/start.py"],
        env={**os.environ, "API_TOKEN": SECRET, "MCP_GATEWAY_STATE_DIR": "none"},
        input="".join(json.dumps(message) + "\n" for message in (initialize_request(), greet)),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    answers = {message["id"]: message for message in map(json.loads, done.stdout.splitlines()) if "id" in message}
    assert answers[2]["result"]["content"] == [{"type": "text", "text": "Hello, Ada!"}]


@pytest.mark.build
def test_official_tool_accepts_the_manifest(official_tool: NodePackage, run: Run, folder: Path) -> None:
    bundled(run)
    with zipfile.ZipFile(folder / "ops.mcpb") as archive:
        archive.extract("manifest.json", folder)
    checked = subprocess.run(
        [official_tool.node, official_tool.directory / "dist/cli/cli.js", "validate", folder / "manifest.json"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (checked.returncode, checked.stderr) == (0, "")
    assert "passes" in checked.stdout


def test_plugin_outside_the_directory_is_rejected(run: Run, folder: Path) -> None:
    (folder / "ops/plugins").rename(folder / "plugins")
    (folder / "ops/config.yaml").write_text(CONFIG.replace("[plugins]", "[../plugins]"))
    finished = bundled(run)
    assert finished.code == 2
    assert f"{folder}/plugins/hello.py is outside {folder}/ops" in finished.hints
    assert not (folder / "ops.mcpb").exists()


def test_invalid_file_is_not_bundled(run: Run, folder: Path) -> None:
    (folder / "ops/config.yaml").write_text("tools: {a: {}}\n")
    assert bundled(run).code == 2
    assert [path.name for path in folder.glob("*.mcpb*")] == []


@linux_only
def test_unreadable_file_is_reported(run: Run, folder: Path) -> None:
    (folder / "ops/plugins/odd").symlink_to("/proc/self/mem")  # a file whose first byte cannot be read
    finished = bundled(run)
    assert finished.code == 2
    assert "/mem: cannot be read: Input/output error" in finished.hints
    assert not (folder / "ops.mcpb").exists()


def test_unwritable_bundle_is_reported(run: Run, folder: Path) -> None:
    finished = run("bundle", "ops/config.yaml", "-o", str(folder / "nowhere/ops.mcpb"))
    assert finished.code == 2
    assert "nowhere/ops.mcpb: cannot be written: No such file or directory" in finished.hints


def test_bundle_replaces_only_files(run: Run, folder: Path) -> None:
    os.mkfifo(folder / "device")
    finished = run("bundle", "ops/config.yaml", "-o", str(folder / "device"))
    assert finished.code == 2
    assert "device: cannot be written: Is not a regular file" in finished.hints
    assert (folder / "device").is_fifo()
