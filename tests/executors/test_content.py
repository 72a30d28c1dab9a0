"""Content blocks in wire form, and their errors at load."""

import base64
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from gateway.config.models.content import Block
from gateway.errors import ExecutionError, ResourceNotFoundError
from gateway.executors.content import compile_blocks, content_executor
from gateway.executors.files.executor import FileReader
from gateway.executors.invocation import Blocks
from gateway.json_types import Json, JsonObject
from gateway.threads import DaemonThreadPool
from tests.executors.recording import RecordingContext, make_invocation, make_scope, messages_of

TEXT = {"type": "string"}
NO_URI = "is not a URI. A URI starts with a scheme, as in docs:///guide.md"
PNG = b"\x89PNG\r\n\x1a\n"


class ReadingContext(RecordingContext):
    """Serves two resources."""

    async def read_resource(self, uri: str) -> Sequence[JsonObject]:
        if uri != "docs:///a%20b.md":
            raise ResourceNotFoundError(uri)
        return [{"uri": uri, "text": "one"}, {"uri": uri, "text": "two"}]


@pytest.fixture
async def reader() -> AsyncIterator[FileReader]:
    async with DaemonThreadPool(2) as threads:
        yield FileReader(threads=threads, max_size=100)


async def render(
    reader: FileReader, *blocks: Json, arguments: JsonObject | None = None, folder: Path = Path("/")
) -> list[JsonObject]:
    arguments = arguments or {}
    scope = make_scope(dict.fromkeys(["name", "uri"], TEXT), optional=["name", "uri"], folder=folder)
    template = compile_blocks([Block.model_validate(block) for block in blocks], scope=scope, reader=reader)
    assert messages_of(scope) == []
    return list(await template.render(make_invocation(arguments, context=ReadingContext())))


def problems_of(block: Json, *, folder: Path) -> list[str]:
    scope = make_scope({"name": TEXT}, folder=folder)
    compile_blocks(
        [Block.model_validate(block)], scope=scope, reader=FileReader(threads=DaemonThreadPool(1), max_size=1)
    )
    return messages_of(scope)


async def test_text_is_a_template_of_the_arguments(reader: FileReader) -> None:
    assert await render(reader, {"text": "Hello {{ name }}!"}, arguments={"name": "{{ x }}"}) == [
        {"type": "text", "text": "Hello {{ x }}!"}
    ]
    assert await render(reader, {"text": "Hello {{ name }}!"}) == [{"type": "text", "text": "Hello !"}]


async def test_block_has_its_annotations(reader: FileReader) -> None:
    annotations = {"audience": ["user"], "priority": 0.5, "last_modified": "2026-01-01T00:00:00Z"}
    [block] = await render(reader, {"text": "x", "annotations": annotations})
    assert block["annotations"] == {"audience": ["user"], "priority": 0.5, "lastModified": "2026-01-01T00:00:00Z"}


async def test_image_file_is_read_at_each_call(reader: FileReader, tmp_path: Path) -> None:
    (tmp_path / "logo.png").write_bytes(PNG)
    [block] = await render(reader, {"image": "logo.png"}, folder=tmp_path)
    assert block == {"type": "image", "data": base64.b64encode(PNG).decode(), "mimeType": "image/png"}


async def test_media_can_be_inline(reader: FileReader) -> None:
    data = base64.b64encode(PNG).decode()
    [block] = await render(reader, {"audio": {"base64": f"{data[:4]}\n {data[4:]}\n", "mime_type": "audio/wav"}})
    assert block == {"type": "audio", "data": data, "mimeType": "audio/wav"}


async def test_missing_or_grown_file_is_an_error_without_its_directory(reader: FileReader, tmp_path: Path) -> None:
    (tmp_path / "logo.png").write_bytes(PNG)
    scope = make_scope(folder=tmp_path)
    template = compile_blocks([Block.model_validate({"image": "logo.png"})], scope=scope, reader=reader)
    (tmp_path / "logo.png").write_bytes(b"x" * 101)
    with pytest.raises(ExecutionError, match="larger than 100 bytes"):
        await template.render(make_invocation())
    (tmp_path / "logo.png").unlink()
    with pytest.raises(ExecutionError, match=r"^The file logo\.png no longer exists$"):
        await template.render(make_invocation())


async def test_resource_is_embedded_unchanged(reader: FileReader, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("ü")
    (tmp_path / "b.bin").write_bytes(b"\xff")
    blocks = await render(
        reader,
        {"resource": {"uri": "test://x", "mime_type": "text/plain", "text": "Hi {{ name }}"}},
        {"resource": {"uri": "test://{name}", "file": "a.md"}},
        {"resource": {"uri": "{+uri}", "file": "b.bin"}},
        {"resource": {"uri": "test://y", "base64": "AAA="}},
        arguments={"name": "a b", "uri": "x://y/z"},
        folder=tmp_path,
    )
    assert [block["resource"] for block in blocks] == [
        {"uri": "test://x", "mimeType": "text/plain", "text": "Hi a b"},
        {"uri": "test://a%20b", "mimeType": "text/markdown", "text": "ü"},
        {"uri": "x://y/z", "mimeType": "application/octet-stream", "blob": "/w=="},
        {"uri": "test://y", "blob": "AAA="},
    ]


async def test_resource_reference_is_read_as_the_caller(reader: FileReader) -> None:
    blocks = await render(reader, {"resource": "docs:///{name}.md"}, arguments={"name": "a b"})
    assert [block["resource"]["text"] for block in blocks] == ["one", "two"]
    assert blocks == await render(reader, {"resource": "{+uri}"}, arguments={"uri": "docs:///a%20b.md"})


async def test_unknown_resource_reference_is_a_tool_error(reader: FileReader) -> None:
    scope = make_scope()
    blocks = compile_blocks([Block.model_validate({"resource": "docs:///no"})], scope=scope, reader=reader)
    with pytest.raises(ResourceNotFoundError):
        await blocks.render(make_invocation(context=ReadingContext()))
    with pytest.raises(ExecutionError, match="No resource has the URI docs:///no"):
        await content_executor(blocks, is_error=False).execute(make_invocation(context=ReadingContext()))


async def test_link_names_a_resource(reader: FileReader) -> None:
    link = {"uri": "docs:///{name}", "name": "n", "title": "t", "description": "d", "mime_type": "a/b", "size": 3}
    assert await render(reader, {"link": link}, arguments={"name": "x"}) == [
        {
            "type": "resource_link",
            "uri": "docs:///x",
            "name": "n",
            "title": "t",
            "description": "d",
            "mimeType": "a/b",
            "size": 3,
        }
    ]


async def test_fixed_error_has_is_error(reader: FileReader) -> None:
    blocks = compile_blocks([Block(text="no")], scope=make_scope(), reader=reader)
    outcome = await content_executor(blocks, is_error=True).execute(make_invocation())
    assert outcome == Blocks(content=({"type": "text", "text": "no"},), is_error=True)


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({"image": "no.png"}, "image.file: the file `no.png` does not exist"),
        ({"image": "notes.md"}, "image: text/markdown is not a type of image. Set `mime_type`, such as image/png"),
        ({"audio": "x.unknown"}, "audio: requires `mime_type`, such as audio/wav"),
        ({"image": {"base64": "A", "mime_type": "image/png"}}, "image.base64: is not valid base64"),
        ({"resource": "guide.md"}, f"resource.uri: `guide.md` {NO_URI}"),
        ({"link": {"uri": "a/b", "name": "n"}}, f"link.uri: `a/b` {NO_URI}"),
        (
            {"resource": {"uri": "a:b", "mime_type": "x/y"}},
            "resource.mime_type: requires `text`, `file` or `base64`. Otherwise the type comes from the resource",
        ),
    ],
)
def test_mistake_is_a_load_error(tmp_path: Path, block: Json, message: str) -> None:
    (tmp_path / "notes.md").write_text("x")
    (tmp_path / "x.unknown").write_text("x")
    assert problems_of(block, folder=tmp_path) == [f"0.{message}"]


def test_unknown_input_is_reported_at_each_use(tmp_path: Path) -> None:
    for block in (
        {"text": "{{ nam }}"},
        {"resource": "docs:///{nam}"},
        {"resource": {"uri": "a:b", "text": "{{ nam }}"}},
        {"link": {"uri": "a:{nam}", "name": "n"}},
    ):
        [message] = problems_of(block, folder=tmp_path)
        assert "did you mean `name`?" in message
