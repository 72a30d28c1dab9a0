"""A new revision only requires the steps in CONTRIBUTING.md. A test adds one to a copy of the package."""

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import orjson
import pytest

import gateway
from gateway.json_types import Json
from tests.messages import initialize_request
from tests.structure import FILES, GATEWAY, tree_of

NEW: Final = "2027-01-01"
KINDS: Final = ("Implementation", "Tool", "ContentBlock", "Capabilities", "Result", "elicitation/create")
"""The rows of `gateway/wire/downgrade.py` that get the member `colour`."""
MEMBERS: Final = (
    ("catalog/compile/wire_definitions.py", "    return _given(\n        name=server.name,", 'colour="red",'),
    ("catalog/compile/wire_definitions.py", "        outputSchema=output_schema,", 'colour="red",'),
    ("executors/content.py", '"type": "text",', '"colour": "red",'),
    ("protocol/methods/lifecycle.py", '    "completions": {},', '"colour": {},'),
    ("protocol/results.py", '"resultType": "complete",', '"colour": "red",'),
    ("protocol/call/input_requests/requests.py", '"requestedSchema": schema', ', "colour": "red"'),
)
"""For each kind: the file that creates a message, a text in the file, and the member that follows the text."""

CONFIG: Final = """\
tools:
  paint: {description: Paints., confirm: Paint?, content: [{text: Done.}]}
  look: {description: Looks., content: [{text: Done.}]}
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with another revision, and a configuration."""
    root = tmp_path_factory.mktemp("copy")
    package = root / "gateway"
    shutil.copytree(Path(gateway.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    follow(package / "wire" / "revisions.py", 'V2026_07_28: Final = "2026-07-28"', f'\nV2027_01_01: Final = "{NEW}"')
    follow(package / "wire" / "revisions.py", "MODERN: Final = (V2026_07_28,", " V2027_01_01,")
    follow(package / "wire" / "downgrade.py", "V2026_07_28", ", V2027_01_01")
    for kind in KINDS:
        follow(package / "wire" / "downgrade.py", f'    "{kind}": {{', '"colour": V2027_01_01, ')
    for path, text, member in MEMBERS:
        follow(package / path, text, member)
    (root / "config.yaml").write_text(CONFIG)
    return root


def follow(path: Path, text: str, addition: str) -> None:
    before, found, after = path.read_text().partition(text)
    assert found, (path, text)
    path.write_text(before + found + addition + after)


def responses(copy: Path, messages: Sequence[Json]) -> list[Json]:
    done = subprocess.run(
        [sys.executable, "-m", "gateway", "serve", "config.yaml", "--stdio"],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy)},
        input=b"\n".join(map(orjson.dumps, messages)),
        capture_output=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return [orjson.loads(line) for line in done.stdout.splitlines()]


def requests(revision: str) -> list[Json]:
    prefix = "io.modelcontextprotocol"
    metadata = {
        f"{prefix}/protocolVersion": revision,
        f"{prefix}/clientCapabilities": {"elicitation": {"form": {}}},
        f"{prefix}/clientInfo": {"name": "test", "version": "1"},
    }
    calls: list[tuple[str, Json]] = [
        ("server/discover", {}),
        ("tools/list", {}),
        ("tools/call", {"name": "look", "arguments": {}}),
        ("tools/call", {"name": "paint", "arguments": {}}),
    ]
    return [
        {"jsonrpc": "2.0", "id": number, "method": method, "params": {**params, "_meta": metadata}}
        for number, (method, params) in enumerate(calls)
    ]


def session(revision: str) -> list[Json]:
    return [
        initialize_request(revision),
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "look", "arguments": {}}},
    ]


@pytest.mark.build
def test_only_the_new_revision_has_its_members(copy: Path) -> None:
    discovered, tools, look, paint = sorted(responses(copy, requests(NEW)), key=lambda message: int(message["id"]))
    assert NEW in discovered["result"]["supportedVersions"]
    assert "colour" in discovered["result"]["capabilities"]
    assert "colour" in discovered["result"]["_meta"]["io.modelcontextprotocol/serverInfo"]
    assert all("colour" in tool for tool in tools["result"]["tools"])
    assert "colour" in look["result"]
    assert "colour" in look["result"]["content"][0]
    [question] = paint["result"]["inputRequests"].values()
    assert "colour" in question["params"]


@pytest.mark.build
@pytest.mark.parametrize("messages", [requests("2026-07-28"), session("2025-11-25"), session("2024-11-05")])
def test_older_revisions_lack_the_new_members(copy: Path, messages: list[Json]) -> None:
    answers = responses(copy, messages)
    assert len(answers) == sum("id" in message for message in messages)
    for answer in answers:
        assert "result" in answer
        assert "colour" not in orjson.dumps(answer).decode()


def test_only_the_package_wire_refers_to_single_revisions() -> None:
    found = [
        f"{path.relative_to(GATEWAY)}: {alias.name}"
        for path in FILES
        if path.parent.name != "wire"
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ImportFrom) and node.module == "gateway.wire.revisions"
        for alias in node.names
        if alias.name.startswith("V2")
    ]
    assert not found, "use a function of `gateway/wire`, so that a new revision changes no other package"
