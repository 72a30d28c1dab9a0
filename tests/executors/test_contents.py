"""Contents of resources."""

import base64

import pytest

from gateway.config.secrets.redactor import Redactor
from gateway.errors import ExecutionError
from gateway.executors.invocation import Blocks, Failure, Outcome, RawOutput, Value
from gateway.executors.output.contents import ContentsShaper
from gateway.executors.output.sanitizer import Sanitizer
from gateway.json_types import Json

SECRET = "s3cr3t-t0k3n"


def shaper(mime_type: str | None = None, max_size: int = 1000) -> ContentsShaper:
    return ContentsShaper(
        mime_type=mime_type, max_size=max_size, sanitizer=Sanitizer(redactor=Redactor([SECRET]), keeps_controls=True)
    )


def only(outcome: Outcome, *, uri: str = "a://x", mime_type: str | None = None) -> Json:
    [contents] = shaper(mime_type).contents(outcome, uri=uri)
    assert contents["uri"] == uri
    return {name: value for name, value in contents.items() if name != "uri"}


def blob(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.mark.parametrize(
    ("data", "media_type", "uri", "contents"),
    [
        (b"# Hi", None, "docs:///a.md", {"mimeType": "text/markdown", "text": "# Hi"}),
        (b"x", None, "a://x", {"mimeType": "text/plain", "text": "x"}),
        (
            b"{}",
            "application/json; charset=utf-8",
            "a://x",
            {"mimeType": "application/json; charset=utf-8", "text": "{}"},
        ),
        (b"\xff", None, "a://x", {"mimeType": "application/octet-stream", "blob": blob(b"\xff")}),
        (b"\xff", None, "a://x.wav?q=1", {"mimeType": "audio/wav", "blob": blob(b"\xff")}),
        (b"%PDF", "application/pdf", "a://x", {"mimeType": "application/pdf", "text": "%PDF"}),
        (b"\xff\xd8", "image/jpeg", "a://x", {"mimeType": "image/jpeg", "blob": blob(b"\xff\xd8")}),
        (b"x", "application/octet-stream", "a://x", {"mimeType": "application/octet-stream", "text": "x"}),
        (b"\xff", "text/plain", "a://x", {"mimeType": "text/plain", "blob": blob(b"\xff")}),
        ("Ж".encode("cp1251"), "text/plain; charset=cp1251", "a://x", {"mimeType": "text/plain", "text": "Ж"}),
        ("Ж".encode("utf-16"), None, "docs:///a.txt", {"mimeType": "text/plain", "text": "Ж"}),
        (b"<svg/>", "image/svg+xml", "a://x", {"mimeType": "image/svg+xml", "text": "<svg/>"}),
        (SECRET.encode(), "text/plain", "a://x", {"mimeType": "text/plain", "text": "***"}),
        (b"\x1b[1m", "text/plain", "a://x", {"mimeType": "text/plain", "text": "\x1b[1m"}),
        (b"", None, "a://x", {"mimeType": "text/plain", "text": ""}),
    ],
)
def test_contents_are_text_if_they_are_utf8_and_a_blob_otherwise(
    data: bytes, media_type: str | None, uri: str, contents: Json
) -> None:
    assert only(RawOutput(data=data, media_type=media_type), uri=uri) == contents


def test_declared_bytes_are_always_a_blob() -> None:
    declared = RawOutput(data=b"text", is_blob=True)
    assert only(declared) == {"mimeType": "application/octet-stream", "blob": blob(b"text")}
    assert only(declared, mime_type="text/plain") == {"mimeType": "text/plain", "blob": blob(b"text")}


def test_configured_media_type_takes_precedence() -> None:
    assert only(RawOutput(data=b"x", media_type="text/html"), mime_type="text/plain")["mimeType"] == "text/plain"


@pytest.mark.parametrize(
    ("value", "contents"),
    [
        ("x", {"mimeType": "text/plain", "text": "x"}),
        ({"a": 1}, {"mimeType": "application/json", "text": '{"a":1}'}),
        (7, {"mimeType": "application/json", "text": "7"}),
    ],
)
def test_function_result_is_text_or_json(value: Json, contents: Json) -> None:
    assert only(Value(value=value)) == contents


def test_content_blocks_become_contents() -> None:
    blocks = (
        {"type": "text", "text": "x"},
        {"type": "image", "data": "AAAA", "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "b://y", "text": SECRET}},
        {"type": "resource", "resource": {"uri": "b://z", "blob": "AAAA"}},
        {"type": "resource_link", "uri": "c://z", "name": "z"},
    )
    assert list(shaper().contents(Blocks(content=blocks), uri="a://x")) == [
        {"uri": "a://x", "mimeType": "text/plain", "text": "x"},
        {"uri": "a://x", "mimeType": "image/png", "blob": "AAAA"},
        {"uri": "b://y", "text": "***"},
        {"uri": "b://z", "blob": "AAAA"},
    ]


def test_failure_is_an_error() -> None:
    with pytest.raises(ExecutionError, match=r"^exit 3: \*\*\*$"):
        shaper().contents(Failure(text=f"exit 3: {SECRET}"), uri="a://x")


@pytest.mark.parametrize(
    "outcome",
    [
        RawOutput(data=b"x" * 1001),
        RawOutput(data=b"x", omitted=5000),
        Value(value="x" * 1001),
        Blocks(content=({"type": "image", "data": "A" * 2000, "mimeType": "image/png"},)),
    ],
)
def test_resource_over_the_limit_is_an_error(outcome: Outcome) -> None:
    with pytest.raises(ExecutionError, match=r"^The resource has [0-9]+ bytes, but its `max_size` is 1000$"):
        shaper().contents(outcome, uri="a://x")


def test_value_under_a_non_text_name_is_sanitized() -> None:
    for keeps_controls in (True, False):
        sanitizer = Sanitizer(redactor=Redactor([SECRET]), keeps_controls=keeps_controls)
        assert sanitizer.json({7: f"is {SECRET}"}) == {7: "is ***"}
