"""The JSON Schema and the reference are current, and match the loader."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import jsonschema_rs
import pytest

from gateway.cli.commands.schema import reference
from gateway.config.loader import load
from gateway.config.models.document import Document
from gateway.config.reading.composer import compose
from gateway.config.reading.nodes import plain
from gateway.config.reading.source_file import SourceFile
from gateway.config.schema import document_schema
from gateway.json_types import Json

PROJECT: Final = Path(__file__).parents[2]
COMMITTED: Final = PROJECT / "config" / "schema.json"
TESTDATA: Final = Path(__file__).parent / "testdata"

SCHEMA: Final = json.loads(COMMITTED.read_text())
"""The committed schema, because generating it is slow. A test checks that it is current."""
VALIDATOR: Final = jsonschema_rs.Draft202012Validator(SCHEMA)

VALID: Final = """\
x-common: &common {timeout: 1.5, tags: [a]}
include:
server: {icons: [{src: "https://example.com/i.png", sizes: any}], page_size: "${env:SIZE}", cache_ttl: 0}
listen: {sse: "${env:SSE}", max_body: 1048576, keepalive: 500ms, allowed_hosts: null}
defaults: {coerce: false, output: {max_size: 64KiB, overflow: error}}
connections:
  api: {base_url: "https://example.com", headers: {A: 1, B: x}, query: {v: 2.5}, retry: {on: [429, 5xx, timeout]}}
  lan: {base_url: "https://example.com", allow_private: [10.0.0.0/8], tls: {ca: ca.pem}}
tools:
  a:
    <<: *common
    input: {x: string, y: integer?, z: {type: array, required: false, within: /srv}}
    shell:
      command: [du, 5, -1.5, [-n, "{{ x }}", 3], {if: y, then: [-v, 2]}]
      env: {A: 1}
      success_codes: [0, "${env:CODE}"]
  b: {input_schema: {type: object}, python: {call: "m:f", timeout: 5m}, output: {schema: {type: object}}}
  c: {python: "m:f", annotations: {read_only: true}, requires: {client: [sampling]}}
  d: {content: Hello, is_error: true}
  e: {content: {image: a.png, annotations: {audience: [user], priority: 1}}}
  f: {content: [Hello, {audio: {base64: AAAA, mime_type: audio/wav}}, {resource: "a:///b"}, {link: {uri: x, name: y}}]}
  g: {http: {url: /x, connection: api, json: null, success: [200, 3xx], allow_private: true}}
  h: {http: {url: /x, json: [1, {a: "{{ b }}"}], method: PUT, cache: 60s}}
resources:
  one: {files: "*.md"}
  two: {files: ["*.md"], root: docs, max_files: 5}
  three: {uri: "x://{a}", text: Hello, complete: {a: [b, c]}}
  four: {uri: "x://{a}", file: a.txt, complete: {a: {command: [ls, "{{ value }}"]}}}
prompts:
  p:
    arguments: {a: Text, b: {required: true, complete: {files: "*.md"}}}
    messages: [{user: Hello}, {assistant: [Hello, {text: there}]}]
"""


def values(text: str) -> Json:
    root, _ = compose(SourceFile(Path("/config.yaml"), text))
    return {} if root is None else plain(root)


def test_committed_schema_is_current() -> None:
    written = json.dumps(document_schema(), indent=2) + "\n"
    assert COMMITTED.read_text(encoding="utf-8") == written, "run `mcp-gateway schema > config/schema.json`"


def test_schema_accepts_every_file_that_loads(tmp_path: Path) -> None:
    main = tmp_path / "config.yaml"
    main.write_text(VALID)
    assert load(main, environ={"SIZE": "5", "SSE": "false", "CODE": "3"}).problems == ()
    assert [f"{error.instance_path}: {error.message}" for error in VALIDATOR.iter_errors(values(VALID))] == []


SEEN_BY_THE_SCHEMA: Final = """
unknown-key unknown-section unknown-word number-for-text text-for-number word-for-flag list-for-mapping
text-for-definition mapping-for-list nothing-for-text zero-for-count exit-code-out-of-range duration size status
language-version missing-key message-role content-block completion input-property command-line-for-argv
"""


@pytest.mark.parametrize("name", SEEN_BY_THE_SCHEMA.split())
def test_schema_rejects_invalid_files(name: str) -> None:
    text = (TESTDATA / f"invalid-{name}.yaml").read_text(encoding="utf-8")
    assert not VALIDATOR.is_valid(values(text))


SHIPPED: Final = sorted(set((PROJECT / "config").rglob("*.yaml")) - set((PROJECT / "config").rglob("*.openapi.yaml")))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_schema_accepts_shipped_files(path: Path) -> None:
    assert [error.message for error in VALIDATOR.iter_errors(values(path.read_text(encoding="utf-8")))] == []


def test_every_key_has_a_description() -> None:
    owners = [("", SCHEMA), *SCHEMA["$defs"].items()]
    undocumented = [
        f"{owner}.{name}"
        for owner, each in owners
        for name, value in each.get("properties", {}).items()
        if not (value.get("description") or SCHEMA["$defs"].get(_reference(value), {}).get("description"))
    ]
    assert undocumented == []


def test_schema_defaults_are_valid() -> None:
    for definition in SCHEMA["$defs"].values():
        for name, value in definition.get("properties", {}).items():
            if "default" in value:
                validator = jsonschema_rs.Draft202012Validator({**value, "$defs": SCHEMA["$defs"]})
                assert validator.is_valid(value["default"]), name


def test_schema_covers_included_files() -> None:
    assert set(SCHEMA["properties"]) == set(Document.model_fields)


def _reference(value: Json) -> str:
    return next((each.rpartition("/")[2] for each in _references(value)), "")


def _references(value: Json) -> Iterator[str]:
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"]
        for each in value.values():
            yield from _references(each)
    elif isinstance(value, list):
        for each in value:
            yield from _references(each)


def test_reference_is_current() -> None:
    committed = (PROJECT / "docs" / "reference.md").read_text()
    assert committed == reference(), "run: mcp-gateway schema --markdown > docs/reference.md"


def test_reference_explains_both_timeouts() -> None:
    definitions = SCHEMA["$defs"]

    def said(name: str) -> str:
        return " ".join(definitions[name]["properties"]["timeout"]["description"].split())

    for name in ("Http", "Connection"):
        assert said(name).startswith("Time limit of one attempt")
        assert "`timeout` limits the whole call, including all attempts" in said(name)
    assert "all attempts" in said("Tool")
