"""The examples of the reference are valid files that contain their section."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from gateway.cli.commands.validate import check
from gateway.config.loader import load
from gateway.config.models.base import Model
from gateway.config.schema import document_schema, reference_examples
from gateway.config.settings import read_settings
from gateway.json_types import Json
from tests.certificates import Authority

EXAMPLES: Final = reference_examples()
SECTIONS: Final = set(document_schema()["$defs"])
VARIABLES: Final = ("CLIENT_SECRET", "IDP_SECRET", "SHOP_TOKEN", "TICKETS_TOKEN", "WIKI_PASSWORD")
FILES: Final = {
    "ann.key": "a" * 40,
    "ci.key": "b" * 40,
    "ci-old.key": "c" * 40,
    "ops.key": "d" * 40,
    "db.password": "e" * 40,
    "chart.html": "<!doctype html><title>Chart</title>",
    "quotas.csv": "user,quota\nada,5\n",
    "services.txt": "web\nworker\n",
    "docs/page.md": "A page.",
    "notes/a.md": "A note.",
    "templates/a.html": "A template.",
    "runbooks/web.md": "Restart it.",
    "logo.png": "PNG",
    "skills/tidy/SKILL.md": "---\nname: tidy\ndescription: How to tidy up.\n---\nTidy up.\n",
    "plugins/texts.py": "def measure(text: str) -> int:\n    '''Measure a text.'''\n    return len(text)\n",
    "shop.openapi.yaml": (
        "openapi: 3.1.0\ninfo: {title: Shop, version: '1'}\nservers: [{url: 'https://shop.example.com/v1'}]\npaths:\n"
        "  /items/{id}:\n    get:\n      operationId: getItem\n      tags: [items]\n      parameters:\n"
        "        - {name: id, in: path, required: true, schema: {type: integer}}\n"
        "        - {name: currency, in: query, schema: {type: string}}\n"
        "      responses: {'200': {description: An item.}}\n"
        "  /admin/items:\n    get:\n      operationId: adminItems\n      responses: {'200': {description: All.}}\n"
    ),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    authority = Authority()
    authority.issue(tmp_path / "server.pem", tmp_path / "server.key")
    (tmp_path / "ca.pem").write_text(authority.pem)
    for name in ("shop.db", "notes.db"):
        sqlite3.connect(tmp_path / name).close()
    for name in VARIABLES:
        monkeypatch.setenv(name, "a-secret-value")
    return tmp_path


def models_in(value: Json) -> Iterator[str]:
    if isinstance(value, Model):
        yield type(value).__name__
        yield from models_in([getattr(value, name) for name in value.model_fields_set])
    elif isinstance(value, dict):
        yield from models_in(list(value.values()))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from models_in(item)


def test_most_sections_have_an_example() -> None:
    assert set(EXAMPLES) - {"Document"} <= SECTIONS
    assert len(EXAMPLES) >= 0.8 * len(SECTIONS), SECTIONS - set(EXAMPLES)


@pytest.mark.parametrize("section", EXAMPLES)
def test_example_is_valid_and_contains_its_section(section: str, folder: Path) -> None:
    path = folder / "config.yaml"
    path.write_text(EXAMPLES[section])
    assert [str(problem) for problem in check(read_settings({"config": path}))[1]] == []
    assert section in models_in(load(path).document)
