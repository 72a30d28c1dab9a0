"""Compiled resources, templates and globs."""

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote_to_bytes

import pytest

from gateway.catalog.catalog import Catalog
from gateway.errors import ResourceNotFoundError
from gateway.json_types import JsonObject
from tests.catalog.conftest import Compile
from tests.executors.recording import make_invocation

AWKWARD_NAMES = ["my file.md", "a:b.md", "[x].md", "50%.md", "c#.md", "q?.md", "ü.md", "a+b.md", "\udcff.md"]
ENCODED = [
    "50%25.md", "%5Bx%5D.md", "a%2Bb.md", "a%3Ab.md", "c%23.md", "my%20file.md", "q%3F.md", "%C3%BC.md", "%FF.md",
]  # fmt: skip


async def read(catalog: Catalog, uri: str) -> JsonObject:
    """Read a resource like a request, and return the first of its contents."""
    found = catalog.resource(uri)
    if found is None:
        raise ResourceNotFoundError(uri)
    resource, variables = found
    [contents] = resource.contents(await resource.executor.execute(make_invocation(variables)), uri)
    return contents


async def suggestions(catalog: Catalog, value: str, **others: str) -> list[str]:
    [template] = catalog.resource_templates
    [completer] = template.completers.values()
    return list((await completer(value, others, make_invocation())).values)


def write(folder: Path, files: Mapping[str, bytes]) -> None:
    for name, data in files.items():
        path = Path(os.fsdecode(os.fsencode(folder) + b"/" + os.fsencode(name)))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


async def test_text_and_blob_resources(compiled: Compile) -> None:
    catalog = compiled("""
        resources:
          about: {uri: "demo://about", text: "Hello\\n", mime_type: text/markdown, title: About, description: D}
          logo: {uri: "demo://logo", blob: "iVBORw0KGgo=", mime_type: image/png}
    """)
    assert await read(catalog, "demo://about") == {
        "uri": "demo://about",
        "mimeType": "text/markdown",
        "text": "Hello\n",
    }
    assert await read(catalog, "demo://logo") == {"uri": "demo://logo", "mimeType": "image/png", "blob": "iVBORw0KGgo="}
    assert catalog.resources["demo://about"].definition == {
        "uri": "demo://about",
        "name": "about",
        "title": "About",
        "description": "D",
        "mimeType": "text/markdown",
    }


async def test_uri_with_variables_becomes_a_template(compiled: Compile) -> None:
    catalog = compiled("""
        resources:
          data: {uri: "test://template/{id}/data", mime_type: application/json, text: '{"id": {{ id | tojson }}}'}
    """)
    assert catalog.resources == {}
    [template] = catalog.resource_templates
    assert template.definition["uriTemplate"] == "test://template/{id}/data"
    contents = await read(catalog, "test://template/a%22b/data")
    assert contents["text"] == '{"id": "a\\"b"}'
    with pytest.raises(ResourceNotFoundError):
        await read(catalog, "test://template/a/b/data")


async def test_exact_uri_precedes_templates(compiled: Compile) -> None:
    catalog = compiled("""
        resources:
          any: {uri: "x:{a}", text: "any {{ a }}"}
          some: {uri: "x:b{a}", text: "some {{ a }}"}
          one: {uri: "x:b", text: one}
    """)
    assert (await read(catalog, "x:b"))["text"] == "one"
    assert (await read(catalog, "x:bc"))["text"] == "any bc"
    assert [str(problem) for problem in catalog.warnings if "overlaps" in problem.message] != []


def test_interpolated_braces_are_not_expressions(compiled: Compile) -> None:
    catalog = compiled('resources: {a: {uri: "x:${env:PART}/{id}", text: "{{ id }}"}}', PART="{b}")
    [template] = catalog.resource_templates
    assert template.uri_template == "x:%7Bb%7D/{id}"
    assert catalog.resource("x:%7Bb%7D/1") is not None


async def test_files_with_unusual_names_become_resources(compiled: Compile, tmp_path: Path) -> None:
    write(tmp_path / "docs", {name: os.fsencode(name) for name in AWKWARD_NAMES})
    catalog = compiled('resources: {docs: {files: "docs/*.md", description: Notes, title: All}}')
    assert sorted(catalog.resources) == sorted(f"docs:///{name}" for name in ENCODED)
    for name, encoded in zip(
        sorted(AWKWARD_NAMES, key=os.fsencode), sorted(ENCODED, key=unquote_to_bytes), strict=True
    ):
        uri = f"docs:///{encoded}"
        resource = catalog.resources[uri]
        assert resource.name == "docs"
        assert resource.definition["name"] == os.fsencode(name).decode(errors="replace")
        assert resource.definition["mimeType"] == "text/markdown"
        assert resource.definition["size"] == len(os.fsencode(name))
        assert resource.definition["annotations"]["lastModified"].endswith("Z")
        assert "title" not in resource.definition
        contents = await read(catalog, uri)
        assert (contents["uri"], contents["mimeType"]) == (uri, "text/markdown")
        assert contents.get("text", name) == name


async def test_glob_has_a_template_for_new_files(compiled: Compile, tmp_path: Path) -> None:
    write(tmp_path / "docs", {"a.md": b"a", "sub/b.md": b"b"})
    catalog = compiled('resources: {docs: {files: "docs/**/*.md", mime_type: text/x-notes}}')
    [template] = catalog.resource_templates
    assert template.definition == {"name": "docs", "uriTemplate": "docs:///{+path}", "mimeType": "text/x-notes"}
    write(tmp_path / "docs", {"sub/new.md": b"new", "sub/no.txt": b"no"})
    assert await read(catalog, "docs:///sub/new.md") == {
        "uri": "docs:///sub/new.md",
        "mimeType": "text/x-notes",
        "text": "new",
    }
    for path in ("sub/no.txt", "../config.yaml", "%2e%2e/config.yaml", "sub"):
        with pytest.raises(ResourceNotFoundError):
            await read(catalog, f"docs:///{path}")


async def test_paths_are_suggested_as_they_were_listed(compiled: Compile, tmp_path: Path) -> None:
    write(tmp_path / "docs", {"guide.md": b"", "old/guide.md": b"", "notes.md": b""})
    catalog = compiled('resources: {docs: {files: "docs/**/*.md"}}')
    assert await suggestions(catalog, "g") == ["guide.md", "old/guide.md"]


def test_files_can_have_a_prefix_and_several_globs(compiled: Compile, tmp_path: Path) -> None:
    write(tmp_path / "docs", {"a.md": b"", "b.txt": b"", "c.py": b"", ".hidden.md": b""})
    catalog = compiled('resources: {My docs: {root: docs, files: ["*.md", "*.txt"], uri: "wiki://main/{+page}"}}')
    assert list(catalog.resources) == ["wiki://main/a.md", "wiki://main/b.txt"]
    assert catalog.resource("wiki://main/b.txt") is not None


def test_too_many_or_no_files_cause_warnings(compiled: Compile, tmp_path: Path) -> None:
    write(tmp_path / "docs", {f"{number}.md": b"" for number in range(5)})
    catalog = compiled("""
        resources:
          docs: {files: "docs/*.md", max_files: 3}
          none: {files: "docs/*.txt"}
    """)
    assert len(catalog.resources) == 3
    assert [problem.message for problem in catalog.warnings] == [
        "more than 3 files match, so some are not listed. Increase `max_files`",
        "no file matches",
    ]


async def test_file_resource_returns_current_content(compiled: Compile, tmp_path: Path) -> None:
    write(tmp_path, {"log.txt": b"old"})
    catalog = compiled('resources: {log: {uri: "demo://log", file: log.txt, max_size: 10B}}')
    write(tmp_path, {"log.txt": b"new"})
    assert await read(catalog, "demo://log") == {"uri": "demo://log", "mimeType": "text/plain", "text": "new"}


async def test_resource_function_returns_contents(compiled: Compile, tmp_path: Path) -> None:
    write(
        tmp_path / "plugins",
        {"pages.py": b'def page(name: str) -> dict[str, str]:\n    """A page."""\n    return {"name": name}\n'},
    )
    catalog = compiled("""
        plugins: [plugins]
        resources: {page: {uri: "page://{name}", python: "pages:page"}}
    """)
    [template] = catalog.resource_templates
    assert template.definition["description"] == "A page."
    contents = await read(catalog, "page://a%20b")
    assert contents == {"uri": "page://a%20b", "mimeType": "application/json", "text": '{"name":"a b"}'}
