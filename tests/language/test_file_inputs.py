"""Files from callers: decoding, errors, and the schema for clients."""

import base64
from typing import Final
from urllib.parse import quote

import pytest

from gateway.json_types import Json, JsonObject
from gateway.language.files.decoding import FileRefusedError, FileRule, decoded_file
from gateway.language.files.file_argument import FileArgument
from gateway.language.files.file_inputs import compile_file_inputs
from tests.executors.recording import make_scope, messages_of

PNG: Final = b"\x89PNG\r\n\x1a\n" + bytes(range(248, 256)) * 3 + b"?>"
STANDARD: Final = base64.b64encode(PNG).decode()
URL_SAFE: Final = base64.urlsafe_b64encode(PNG).decode()
ANY: Final = FileRule()
IMAGE: Final = FileRule(max_size=64, media_types=("image/*",))


@pytest.mark.parametrize(
    "text",
    [
        STANDARD,
        URL_SAFE,
        STANDARD.rstrip("="),
        URL_SAFE.rstrip("="),
        "\r\n".join(STANDARD[at : at + 8] for at in range(0, len(STANDARD), 8)),
        f"  {STANDARD}\n",
        f"data:image/png;base64,{STANDARD}",
        f"DATA:image/PNG;name=a.png;BASE64,{quote(STANDARD, safe='')}",
        f"data:;base64,{URL_SAFE}",
        f"data:image/png,{quote(PNG)}",
    ],
)
def test_common_encodings_are_decoded(text: str) -> None:
    for rule in (ANY, IMAGE):
        file = decoded_file(text, rule)
        assert (file.data, file.media_type) == (PNG, "image/png")


NOT_BASE64: Final = "must be a file's bytes as base64"
REFUSED: Final[dict[str, str]] = {
    "not base64!": NOT_BASE64,
    "aGVs*G8=": NOT_BASE64,
    "aGVsbG8=aGVsbG8=": NOT_BASE64,
    "=aGVsbG8": NOT_BASE64,
    "aGVsb": NOT_BASE64,
    "aGVsbG8==": NOT_BASE64,
    "aGVsbA=": NOT_BASE64,
    "aGVsbG8====": NOT_BASE64,
    "aGVsbG9": NOT_BASE64,
    "+_+_": NOT_BASE64,
    "aGVsbG8\x00": NOT_BASE64,
    "ａＧＶｓ": NOT_BASE64,
    "аGVs": NOT_BASE64,
    "\ud800": NOT_BASE64,
    "/etc/passwd": "not a path, name or URL",
    "../secret.key": "not a path, name or URL",
    "C:\\secret.txt": "not a path, name or URL",
    "file:///etc/passwd": "not a path, name or URL",
    "http://169.254.169.254/latest": "not a path, name or URL",
    "photo.png": "not a path, name or URL",
    "data:image/png;base64": "no comma",
    "data:" + "a" * 2000 + ",x": "no comma",
    "data:no type;base64,aGVs": "with a valid media type",
    "data:image/png\r\nX-Evil: 1;base64,aGVs": "with a valid media type",
    'data:image/png"; x="y;base64,aGVs': "with a valid media type",
    "data:image/png;base64,%%%": "must be a file's bytes",
    "data:image/png;base64,aGVs,bG8=": NOT_BASE64,
    # Characters and padding that resemble base64.
    "٠١٢٣": NOT_BASE64,
    "aGVs\u200bbG8=": NOT_BASE64,
    "aGVs\u00a0bG8=": NOT_BASE64,
    "aGVs\u2028bG8=": NOT_BASE64,
    "\u202eaGVs": NOT_BASE64,
    "aGVsbG8＝": NOT_BASE64,
    "aGVsbG8\u0301": NOT_BASE64,
    "aGVs–aGVs": NOT_BASE64,
    "aGVs%3D": NOT_BASE64,
    "a===": NOT_BASE64,
    "=": NOT_BASE64,
    "==": NOT_BASE64,
    "====": NOT_BASE64,
    "aGVs=": NOT_BASE64,
    "aGVs====": NOT_BASE64,
    "aGVsbG8=\x00": NOT_BASE64,
    "aGVsbG8=a": NOT_BASE64,
    "aGVsbA==bA==": NOT_BASE64,
    "aGVsbA=a=": NOT_BASE64,
    "aGVsbB==": NOT_BASE64,
    "aGVsbG9=": NOT_BASE64,
    "_G+s": NOT_BASE64,
    "-/aa": NOT_BASE64,
    "aGVs.bG8": NOT_BASE64,
    "aGVs;bG8": NOT_BASE64,
    "aGVs#bG8": NOT_BASE64,
    '"aGVsbG8="': NOT_BASE64,
    '{"file": "x"}': NOT_BASE64,
    "[aGVs]": NOT_BASE64,
    "b'aGVs'": NOT_BASE64,
    "<svg onload=x>": NOT_BASE64,
    "-----BEGIN FILE-----!": NOT_BASE64,
    "@photo.png": NOT_BASE64,
    "ftp://a/b": "not a path, name or URL",
    "https://a.example/b?c=d": "not a path, name or URL",
    "~/.ssh/id_rsa": "not a path, name or URL",
    "./a.b": "not a path, name or URL",
    # `data:` URIs that are truncated, repeated, or have invalid parameters.
    "data:": "no comma",
    "data:image/png": "no comma",
    "data:image/png;base64;aGVs": "no comma",
    "data:image;base64,aGVs": "with a valid media type",
    "data:/;base64,aGVs": "with a valid media type",
    "data:*/*;base64,aGVs": "with a valid media type",
    "data:image/png/x;base64,aGVs": "with a valid media type",
    "data:image/p\x00ng;base64,aGVs": "with a valid media type",
    "data:imägе/png;base64,aGVs": "with a valid media type",
    "data:" + "a" * 128 + "/b;base64,aGVs": "with a valid media type",
    "data:image/png;base64,aGVs%00": NOT_BASE64,
    "data:image/png;base64,aGVs%FF": NOT_BASE64,
    "data:image/png;base64,%2Fetc%2Fpasswd%21": "must be a file's bytes",
    "data:;base64,aGVsb": NOT_BASE64,
    "data:;base64;base64,aGVsb": NOT_BASE64,
    "data:image/png;base64,data:image/png;base64,aGVs": NOT_BASE64,
}


@pytest.mark.parametrize("text", REFUSED)
def test_malformed_file_is_rejected(text: str) -> None:
    with pytest.raises(FileRefusedError) as refused:
        decoded_file(text, ANY)
    assert REFUSED[text] in str(refused.value)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (base64.b64encode(PNG + bytes(64)).decode(), "at most 64B, was 98B"),
        ("data:image/png," + "%00" * 65, "at most 64B, was 65B"),
        ("data:text/html;base64," + STANDARD, "must be image/*, was text/html"),
        ("JVBERi0xLjc=", "the content is application/pdf"),
        ("PHNjcmlwdD4=", "the content is text/plain"),
        ("", "the content is text/plain"),
        ("UEsDBAAA", "the content is application/zip"),
        ("H4sIAAAA", "the content is application/gzip"),
        ("IIlQTkcNChoK", "the type cannot be detected"),
        ("data:image/*;base64,iVBORw0KGgo=", "with a valid media type"),
        ("data:text/plain,%89PNG%0D%0A%1A%0A", "must be image/*, was text/plain"),
    ],
)
def test_file_that_violates_the_rule_is_rejected(text: str, message: str) -> None:
    with pytest.raises(FileRefusedError, match=r"^must be ") as refused:
        decoded_file(text, IMAGE)
    assert message in str(refused.value)


def test_file_without_a_media_type_has_the_accepted_or_detected_type() -> None:
    csv = base64.b64encode(b"a,b\n1,2\n").decode()
    assert decoded_file(csv, FileRule(media_types=("text/csv",))).media_type == "text/csv"
    assert decoded_file(csv, FileRule(media_types=("image/*", "text/*"))).media_type == "text/plain"
    assert decoded_file(csv, ANY).media_type is None


def test_file_name_is_decoded_and_empty_file_is_accepted() -> None:
    assert decoded_file("data:text/plain;name=%22a%0D%0Ab%22%2F..%2F%C3%BC;base64,", ANY).name == '"a\r\nb"/../ü'
    assert decoded_file("", ANY).data == b""


SCHEMA: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "photo": {"type": "file", "max_size": 9, "media_types": ["image/png"], "description": "It."},
        "maybe": {"type": ["file", "null"]},
        "pages": {"type": "array", "items": {"$ref": "#/$defs/page"}},
        "either": {"anyOf": [{"type": "file"}, {"type": "array", "items": {"type": "file"}}]},
        "named": {"type": "object", "additionalProperties": {"type": "file"}},
        "text": {"type": "string"},
    },
    "$defs": {
        "page": {
            "type": "object",
            "properties": {"scan": {"type": "file"}, "inner": {"$ref": "#/$defs/page"}, "no": {"type": "string"}},
        }
    },
}


def test_files_are_decoded_at_all_places_of_a_schema() -> None:
    scope = make_scope()
    shown, places = compile_file_inputs(SCHEMA, scope.problems, place=lambda path: path)
    assert messages_of(scope) == []
    assert places is not None
    assert '"file"' not in str(shown).replace("'", '"')
    photo = shown["properties"]["photo"]
    assert photo["description"] == "It. A file (image/png, at most 9 bytes), as base64 or as a data: URI."
    assert (photo["contentEncoding"], photo["contentMediaType"]) == ("base64", "image/png")
    one, two = "b25l", "dHdv"
    given: dict[str, Json] = {
        "maybe": None,
        "pages": [{"scan": one, "no": one, "inner": {"inner": {"scan": two}}}],
        "either": [one, two],
        "named": {"a": one},
        "text": one,
    }
    first, second = FileArgument(b"one"), FileArgument(b"two")
    decoded, errors = places.decoded(given)
    assert errors == []
    assert decoded == {
        "maybe": None,
        "pages": [{"scan": first, "no": one, "inner": {"inner": {"scan": second}}}],
        "either": [first, second],
        "named": {"a": first},
        "text": one,
    }
    assert str(places.decoded({"pages": [{}, {"scan": "!"}], "named": {"x/y": "!"}})[1][1]).startswith("/named/x~1y ")
    assert one not in str(places.described({**given, "text": "", "pages": f'[{{"scan": "{one}"}}]'}))


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "file", "pattern": "x"}, "`pattern` cannot be used with `type: file`"),
        ({"type": "file", "x-mcp-header": "X"}, "`x-mcp-header` cannot be used with `type: file`"),
        ({"type": "file", "max_size": 0}, "max_size: "),
        ({"type": "file", "media_types": ["png"]}, "media_types.0: expected a media type"),
        ({"type": "file", "default": "!"}, "default: the default is invalid"),
        ({"type": ["file", "string"]}, "can be combined only with `null`"),
        ({"anyOf": [{"type": "file"}, {"type": "string"}]}, "cannot be alternatives"),
        ({"not": {"type": "file"}}, "is not supported here"),
        ({"type": "array", "prefixItems": [{"type": "file"}]}, "is not supported here"),
    ],
)
def test_unsupported_file_input_is_a_load_error(schema: JsonObject, message: str) -> None:
    scope = make_scope()
    compile_file_inputs({"properties": {"x": schema}}, scope.problems, place=lambda path: path)
    assert [each for each in messages_of(scope) if message in each]


def test_max_size_that_exceeds_a_message_is_a_warning() -> None:
    for max_size, said in (("4MiB", 1), ("3MiB", 1), ("2MiB", 0)):
        scope = make_scope()
        schema: JsonObject = {"properties": {"x": {"type": "file", "max_size": max_size}}}
        compile_file_inputs(schema, scope.problems, place=lambda path: path, max_body=4 * 2**20)
        found = [each for each in messages_of(scope) if "does not fit in a request as base64" in each]
        assert len(found) == said, max_size
        assert all("`listen.max_body` is " in each for each in found)
