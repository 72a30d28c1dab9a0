"""Documents rendered without secrets load to the same document."""

from datetime import timedelta
from pathlib import Path

import pytest
import yaml

from gateway.config.loader import load
from gateway.config.models.base import Model
from gateway.config.models.document import Document
from gateway.config.secrets.literal_secrets import masked_document

CONFIG = Path(__file__).parents[2] / "config"
SECRET = "hunter2-hunter2"


@pytest.mark.parametrize(
    "name", ["demo.yaml", "everything.yaml", "examples/input-rules.yaml", "examples/tested-tools.yaml"]
)
def test_masked_document_loads_to_the_same_document(tmp_path: Path, name: str) -> None:
    loaded = load(CONFIG / name, environ={})
    loaded.raise_errors()
    shown = {
        key: value for key, value in masked_document(loaded.document).items() if key not in {"include", "prompt_files"}
    }
    again = tmp_path / "again.yaml"
    again.write_text(yaml.safe_dump(shown, sort_keys=False))
    read = load(again, environ={})
    read.raise_errors()
    for section in ("server", "tools", "resources", "prompts", "connections", "defaults", "limits"):
        assert getattr(read.document, section) == getattr(loaded.document, section)


def test_masked_document_contains_no_secrets(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{SECRET}\n")
    (tmp_path / "config.yaml").write_text(
        f"""
auth: {{api_keys: {{ci: {{secret: "${{file:key}}"}}, old: {{secret: {SECRET}, scopes: [ops.read]}}}}}}
connections:
  api:
    base_url: https://user:{SECRET}@example.com
    headers: {{Authorization: "Bearer ${{env:TOKEN}}", X-Api-Key: {SECRET}, Accept: text/plain}}
tools:
  send:
    input: {{token: {{type: string, description: Any text}}}}
    http: {{connection: api, url: /x, form: {{password: {SECRET}, more: "${{env:TOKEN}}{{{{ token }}}}"}}}}
  run:
    shell: {{command: [echo, "${{file:key}}"], env: {{A: "x ${{env:TOKEN}}"}}}}
"""
    )
    document = load(tmp_path / "config.yaml", environ={"TOKEN": SECRET}).document
    shown = masked_document(document)
    assert SECRET not in str(shown)
    assert shown["connections"]["api"]["headers"] == {
        "Authorization": "Bearer ***",
        "X-Api-Key": "***",
        "Accept": "text/plain",
    }
    assert shown["tools"]["send"]["input"] == {"token": {"type": "string", "description": "Any text"}}
    assert shown["tools"]["send"]["http"]["form"] == {"password": "***", "more": "***{{ token }}"}
    assert shown["tools"]["run"]["shell"]["command"] == ["echo", "***"]
    assert shown["auth"]["api_keys"]["old"]["scopes"] == ["ops.read"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (0.25, "250ms"), (1.5, "1.5s"), (30, "30s"), (90, "90s"), (120, "2m"), (7200, "2h"), (86400, "24h")],
)
def test_masked_document_formats_durations(seconds: float, text: str) -> None:
    class Waiting(Model):
        pause: timedelta

    assert masked_document(Waiting(pause=timedelta(seconds=seconds))) == {"pause": text}


def test_masked_document_omits_defaults() -> None:
    assert masked_document(Document()) == {}
