"""Results for the model from outcomes of backends."""

import base64

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.catalog.compile.backends import BACKENDS
from gateway.config.models.definition_keys import Output
from gateway.config.secrets.redactor import Redactor
from gateway.config.secrets.secret_encodings import longest_form_of
from gateway.executors.invocation import Blocks, Failure, Outcome, RawOutput, Relayed, ToolResult, Value
from gateway.executors.output.compiler import compile_output
from gateway.executors.output.output_store import OutputStore
from gateway.executors.output.size_limit import OutputCounters
from gateway.json_types import ABSENT, Json
from tests.executors.recording import make_invocation, make_scope, messages_of

SECRET = "s3cr3t-t0k3n"
PNG = b"\x89PNG\r\n\x1a\n\0\0"


async def shape(
    outcome: Outcome,
    *,
    backend: str = "http",
    output_store: OutputStore | None = None,
    counters: OutputCounters | None = None,
    arguments: dict[str, Json] | None = None,
    **fields: Json,
) -> ToolResult:
    scope = make_scope({name: {} for name in arguments or {}})
    shaper = compile_output(
        Output.model_validate(fields),
        traits=BACKENDS[backend].output,
        scope=scope,
        redactor=Redactor([SECRET]),
        output_store=output_store or OutputStore(),
        counters=counters or OutputCounters(),
    )
    assert messages_of(scope) == []
    return shaper.shape(outcome, make_invocation(arguments or {}))


def raw(data: bytes | str, media_type: str | None = None, **variables: Json) -> RawOutput:
    return RawOutput(data=data.encode() if isinstance(data, str) else data, media_type=media_type, variables=variables)


def text_of(result: ToolResult) -> str:
    [block] = result.content
    assert block["type"] == "text"
    text = block["text"]
    assert isinstance(text, str)
    return text


def error_of(result: ToolResult) -> str:
    assert result.is_error
    assert result.structured is ABSENT
    return text_of(result)


async def test_text_is_cleaned_and_masked() -> None:
    result = await shape(raw(f"\x1b[31mred\x1b[0m\a {SECRET}\tü\n"), backend="shell")
    assert text_of(result) == "red ***\tü\n"
    assert result.structured is ABSENT
    assert not result.is_error


@pytest.mark.parametrize(
    ("stdout", "stderr", "text"),
    [
        ("10%\r20%\rdone\r\n", "", "10%\n20%\ndone\n"),
        ("", "warned", "stderr:\nwarned"),
        ("\n", "warned", "stderr:\nwarned"),
        ("said", "warned", "said"),
    ],
)
async def test_text_of_a_command_has_output_and_errors(stdout: str, stderr: str, text: str) -> None:
    assert text_of(await shape(raw(stdout, exit_code=0, stderr=stderr), backend="shell")) == text


async def test_raw_output_keeps_escapes_and_masks_secrets() -> None:
    assert text_of(await shape(raw(f"\x1b[31m{SECRET}"), raw=True)) == "\x1b[31m***"


async def test_invalid_utf8_is_replaced() -> None:
    assert text_of(await shape(raw(b"a\xffb"), backend="shell")) == "a\N{REPLACEMENT CHARACTER}b"


@pytest.mark.parametrize(
    ("text", "codec", "media_type"),
    [
        ("ü", "latin-1", 'text/plain; charset="ISO-8859-1"'),
        ("ü€", "cp1252", "text/plain; charset=latin1"),
        ("ł", "iso-8859-2", "text/plain;charset='iso-8859-2'"),
        ("ł", "cp1250", "text/plain; boundary=x; Charset = Windows-1250 ;x=y"),
        ("Ж", "koi8-r", "text/plain; charset=KOI8-R"),
        ("Ж", "cp866", "text/plain; charset=ibm866"),
        ("中", "gbk", "text/plain; charset=gb2312"),
        ("日", "cp932", "text/plain; charset=x-sjis"),
        ("日本", "iso-2022-jp", "text/plain; charset=ISO-2022-JP"),
        ("ก", "cp874", "text/plain; charset=windows-874"),
        ("Ж", "cp1251", "text/plain charset:win-1251"),
        ("Ж", "cp1251", 'text/plain; charset=\\"windows-1251\\"'),
        ("Ж", "cp1251", 'text/plain; charset="cp-1251'),
        ("Ж", "iso-8859-5", "text/plain; charset=ISO_8859-5:1988"),
        ("é", "utf-8", "text/plain; charset=utf8"),
        ("é", "utf-8", "text/plain; charset=rot13"),
        ("é", "utf-8", "text/plain; charset=undefined"),
        ("é", "utf-8", "text/plain; charset=x-unknown"),
        ("é", "utf-8", 'text/plain; charset=""'),
        ("é", "utf-8-sig", "text/plain; charset=iso-8859-1"),
        ("é", "utf-16", "text/plain"),
        ("é", "utf-32", None),
        ("\ufeffé", "utf-8", None),
        ('<?xml version="1.0" encoding="windows-1251"?><a>Ж</a>', "cp1251", "application/xml"),
        ('<?xml version="1.0" encoding="utf-16"?><a>Ж</a>', "utf-16-le", "application/xml"),
        ("<a>Ж</a>", "utf-16-be", "image/svg+xml"),
        ("<!doctype html><html><head><meta charset=gbk><p>中", "gbk", "text/html"),
        ('<meta http-equiv="Content-Type" content="text/html; charset=euc-kr">한', "euc-kr", "text/html"),
        ('<meta charset="utf-16">é', "utf-8", "text/html"),
        ('<meta charset="gbk">é', "utf-8", "text/html; charset=utf-8"),
        ("<meta charset=gbk> é", "utf-8", "text/plain"),
    ],
)
async def test_text_is_read_in_the_encoding_that_it_declares(text: str, codec: str, media_type: str | None) -> None:
    assert text_of(await shape(raw(text.encode(codec), media_type))) == text


async def test_json_is_read_in_the_encoding_that_it_declares() -> None:
    for data, media_type in [
        ('{"a": "ü"}'.encode("latin-1"), "application/json; charset=iso-8859-1"),
        ('{"a": "ü"}'.encode("utf-16"), "application/json"),
        ('{"a": "ü"}'.encode("utf-16-le"), "application/problem+json"),
        ('{"a": "ü"}'.encode("utf-32-be"), "application/json"),
        (b"\xef\xbb\xbf" + '{"a": "ü"}'.encode(), "application/json"),
    ]:
        assert (await shape(raw(data, media_type))).structured == {"a": "ü"}


async def test_empty_output_is_no_content() -> None:
    assert (await shape(raw(b""))).content == []
    assert (await shape(raw(b"", "application/json"))).content == []


@pytest.mark.parametrize(
    "media_type", ["application/json", "application/problem+json; charset=utf-8", "APPLICATION/JSON"]
)
async def test_json_response_is_text_and_structure(media_type: str) -> None:
    result = await shape(raw('{"a": [1, "\\u001b[1mx s3cr3t-t0k3n"]}', media_type))
    assert result.structured == {"a": [1, "x ***"]}
    assert text_of(result) == '{"a":[1,"x ***"]}'


async def test_json_output_of_a_command_is_text_by_default() -> None:
    output = raw('{"a": 1}')
    assert (await shape(output, backend="shell")).structured is ABSENT
    for fields in ({"format": "json"}, {"schema": {"type": "object"}}, {"select": "@"}):
        assert (await shape(output, backend="shell", **fields)).structured == {"a": 1}


async def test_invalid_json_with_a_json_type_is_text() -> None:
    assert text_of(await shape(raw("<html>", "application/json"))) == "<html>"


async def test_invalid_json_is_an_error_that_shows_its_start() -> None:
    text = error_of(await shape(raw("Oops " + "x" * 1000), format="json"))
    assert text.startswith("The output is not JSON (")
    assert ". It starts with: Oops xxx" in text
    assert len(text) < 400
    deep = error_of(await shape(raw("[" * 900 + "]" * 900), format="json"))
    assert deep


async def test_select_returns_a_part() -> None:
    output = raw('{"user": {"login": "a"}, "n": 1}', "application/json")
    assert (await shape(output, select="{by: user.login, n: n}")).structured == {"by": "a", "n": 1}
    assert text_of(await shape(output, select="user.login", format="text")) == "a"
    assert text_of(await shape(output, select="user", format="text")) == '{"login":"a"}'
    assert (await shape(output, select="gone")).structured is None


async def test_select_without_a_match_is_an_error() -> None:
    text = error_of(await shape(raw("[1]", "application/json"), select="sum(a)"))
    assert text.startswith("`select` cannot be applied to the output: ")


async def test_output_template_changes_only_the_text() -> None:
    result = await shape(
        raw('{"n": 3}', "application/json", status=200, headers={"x-a": "b"}),
        template="{{ who }} has {{ result.n }} ({{ status }}, {{ headers['x-a'] }}, {{ inputs.who }})\x1b[0m",
        arguments={"who": "Ann"},
    )
    assert text_of(result) == "Ann has 3 (200, b, Ann)"
    assert result.structured == {"n": 3}


async def test_command_template_has_exit_code_and_stderr() -> None:
    output = raw("out\n", exit_code=3, stderr=f"warned {SECRET}")
    result = await shape(output, backend="shell", template="{{ exit_code }} {{ stderr }} {{ result }}")
    assert text_of(result) == "3 warned *** out\n"


async def test_schema_mismatch_is_an_error_with_details() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    assert (await shape(raw('{"n": 1}'), schema=schema)).structured == {"n": 1}
    text = error_of(await shape(raw('{"n": "x"}'), schema=schema))
    assert text.startswith("The output does not match the tool's output schema:\n- /n ")


async def test_output_schema_can_be_of_any_type() -> None:
    assert (await shape(raw("[1]"), schema={"type": "array"})).structured == [1]
    assert (await shape(Value(value=7), backend="python", schema={"type": "integer"})).structured == 7
    assert (await shape(Value(value=None), backend="python", schema={})).structured is None


@pytest.mark.parametrize(
    ("value", "text", "structured"),
    [
        ("plain", "plain", ABSENT),
        (7, "7", ABSENT),
        (True, "true", ABSENT),
        ({"a": 1}, '{"a":1}', {"a": 1}),
        ([1], "[1]", [1]),
    ],
)
async def test_function_result_is_text_and_lists_and_objects_are_structured(
    value: Json, text: str, structured: Json
) -> None:
    result = await shape(Value(value=value), backend="python")
    assert text_of(result) == text
    assert result.structured == structured


async def test_none_is_no_content() -> None:
    assert await shape(Value(value=None), backend="python") == ToolResult(content=())


@pytest.mark.parametrize("kind", ["image", "audio"])
async def test_media_are_blocks_by_their_type(kind: str) -> None:
    result = await shape(raw(PNG, f"{kind}/x-it; a=b"))
    assert result.content == ({"type": kind, "data": base64.b64encode(PNG).decode(), "mimeType": f"{kind}/x-it"},)
    named = await shape(raw(PNG), backend="shell", format=kind, mime_type=f"{kind}/y")
    assert named.content[0]["mimeType"] == f"{kind}/y"


async def test_image_with_another_media_type_is_an_error() -> None:
    text = error_of(await shape(raw("<html>", "text/html"), format="image"))
    assert text == "The output is text/html, but must be image/…"


async def test_svg_is_text() -> None:
    assert text_of(await shape(raw("<svg/>", "image/svg+xml"))) == "<svg/>"


async def test_bytes_are_an_embedded_blob() -> None:
    for result in (
        await shape(raw(b"\xff\0"), format="binary", mime_type="application/pdf"),
        await shape(raw(b"\xff\0", "application/pdf")),
        await shape(raw(b"\xff\0", "application/pdf"), backend="python"),
    ):
        [block] = result.content
        assert block["type"] == "resource"
        assert block["resource"]["blob"] == base64.b64encode(b"\xff\0").decode()
        assert block["resource"]["mimeType"] == "application/pdf"
        assert block["resource"]["uri"].startswith("ni:///sha-256;")
    [block] = (await shape(raw(b"text", "application/octet-stream"), backend="python")).content
    assert block["type"] == "resource"


async def test_blocks_pass_through_cleaned_and_masked() -> None:
    blocks = (
        {"type": "text", "text": f"\x1b[1m{SECRET}", "annotations": {"priority": 1}},
        {"type": "image", "data": "AAAA", "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "x:y", "text": SECRET}},
    )
    result = await shape(Blocks(content=blocks, is_error=True), backend="content")
    assert result.is_error
    assert list(result.content) == [
        {"type": "text", "text": "***", "annotations": {"priority": 1}},
        blocks[1],
        {"type": "resource", "resource": {"uri": "x:y", "text": "***"}},
    ]


async def test_failure_is_cleaned_masked_and_truncated() -> None:
    text = error_of(await shape(Failure(text=f"\x1b[1mexit 3 {SECRET} " + "x" * 10_000), max_size=100))
    assert text.startswith("exit 3 *** xxx")
    assert "bytes omitted" in text
    assert len(text) < 4200


async def test_truncation_keeps_head_and_tail_and_names_the_omission() -> None:
    text = text_of(await shape(raw("a" * 60 + "b" * 60), max_size=40))
    assert text == f"{'a' * 20}\n[… 80 of 120 bytes omitted …]\n{'b' * 20}"


async def test_bytes_omitted_by_the_backend_are_counted() -> None:
    output = RawOutput(data=b"a" * 100 + b"b" * 100, omitted=1000)
    torn = longest_form_of(SECRET) - 1  # possibly half a secret, so it is dropped on both sides
    kept = 100 - torn
    assert text_of(await shape(output, backend="shell")) == f"{'a' * kept}\n[… 1000 bytes omitted …]\n{'b' * kept}"
    assert "is too large" in error_of(await shape(output, backend="shell", format="json"))


@given(text=st.text(min_size=1), max_size=st.integers(min_value=1, max_value=40))
async def test_truncation_never_splits_a_character(text: str, max_size: int) -> None:
    result = await shape(raw(text.encode(errors="replace")), raw=True, max_size=max_size)
    shown = text_of(result)
    if "bytes omitted" in shown:
        head, _, tail = shown.partition("\n[…")
        tail = tail.partition("…]\n")[2]
        assert text.encode(errors="replace").decode().startswith(head)
        assert text.encode(errors="replace").decode().endswith(tail)
        assert len((head + tail).encode()) <= max_size


async def test_secret_is_masked_before_truncation() -> None:
    for size in range(4, 60):
        shown = text_of(await shape(raw("x" * 20 + SECRET + "y" * 20), max_size=size))
        assert SECRET[:4] not in shown
        assert SECRET[-4:] not in shown


async def test_overflow_can_be_an_error() -> None:
    text = error_of(await shape(raw("x" * 100), max_size=40, overflow="error"))
    assert text == "The output is too large: 100 bytes, but the limit is 40 (max_size)"


async def test_overflow_can_be_stored_for_the_caller() -> None:
    output_store = OutputStore()
    result = await shape(raw("ü" * 50), max_size=41, overflow="resource", output_store=output_store)
    text, link = result.content
    uri = link["uri"]
    assert text["text"].startswith(
        "ü" * 20 + "\n[… 59 of 100 bytes omitted; the whole output is available as the resource"
    )
    assert link == {
        "type": "resource_link",
        "uri": uri,
        "name": "output",
        "title": "The whole output",
        "mimeType": "text/plain",
        "size": 100,
    }
    assert await output_store.read(uri, caller="tester") == {"uri": uri, "mimeType": "text/plain", "text": "ü" * 50}


@pytest.mark.parametrize(
    ("size", "fields", "expected"),
    [
        (10, {}, {}),
        (100, {}, {"truncate": 1}),
        (100, {"overflow": "error"}, {"error": 1}),
        (100, {"overflow": "resource"}, {"resource": 1}),
        (100, {"format": "binary"}, {"error": 1}),
    ],
)
async def test_outputs_over_the_limit_are_counted(size: int, fields: dict[str, Json], expected: dict[str, int]) -> None:
    counters = OutputCounters()
    await shape(raw("x" * size), max_size=40, counters=counters, **fields)
    assert counters.overflows == {"truncate": 0, "resource": 0, "error": 0, **expected}


async def test_structure_over_the_limit_is_omitted_or_an_error() -> None:
    output = raw(orjson.dumps({"a": "x" * 100}), "application/json")
    result = await shape(output, max_size=40)
    assert result.structured is ABSENT
    assert "bytes omitted" in text_of(result)
    assert "is too large" in error_of(await shape(output, max_size=40, schema={"type": "object"}))
    output_store = OutputStore()
    result = await shape(output, max_size=40, schema={"type": "object"}, overflow="resource", output_store=output_store)
    assert result.is_error
    assert result.content[1]["type"] == "resource_link"
    kept = await output_store.read(result.content[1]["uri"], caller="tester")
    assert kept is not None
    assert orjson.loads(kept["text"]) == {"a": "x" * 100}


async def test_media_without_room_are_linked_or_an_error() -> None:
    output = raw(PNG * 20, "image/png")
    assert "is too large: 200 bytes" in error_of(await shape(output, max_size=100))
    output_store = OutputStore()
    [link] = (await shape(output, max_size=100, overflow="resource", output_store=output_store)).content
    kept = await output_store.read(link["uri"], caller="tester")
    assert kept is not None
    assert kept["mimeType"] == "image/png"
    assert base64.b64decode(kept["blob"]) == PNG * 20


async def test_output_of_an_unknown_type_is_text_if_it_is_utf8() -> None:
    assert text_of(await shape(raw("ü", "application/x-own"))) == "ü"
    [block] = (await shape(raw(b"\xff", "application/x-own"))).content
    assert block["type"] == "resource"


async def test_outcome_must_have_the_declared_kind_of_content() -> None:
    blocks = Blocks(content=({"type": "text", "text": "x"},))
    assert "returned content blocks" in error_of(await shape(blocks, backend="python", schema={"type": "object"}))
    image = await shape(Value(value={"a": 1}), backend="python", format="image", mime_type="image/png")
    assert error_of(image) == "The tool declares image content, but its function returned no bytes"


async def test_output_settings_also_apply_to_upstream_results() -> None:
    result = Relayed(content=({"type": "text", "text": '{"a": [1, 2]}'},))
    assert (await shape(result, backend="upstream", select="a")).structured == [1, 2]
    assert text_of(await shape(result, backend="upstream")) == '{"a": [1, 2]}'


async def test_structured_upstream_result_over_the_limit_is_an_error() -> None:
    result = Relayed(content=(), structured={"a": "x" * 100})
    shaped = await shape(result, backend="upstream", max_size=50, overflow="resource")
    assert (shaped.is_error, shaped.structured) == (True, ABSENT)
    assert [block["type"] for block in shaped.content] == ["text", "resource_link"]


MISTAKES: list[tuple[str, dict[str, Json], str]] = [
    ("http", {"select": "foo["}, "select: not a valid JMESPath expression: "),
    ("http", {"select": ""}, "select: not a valid JMESPath expression: "),
    ("http", {"select": "lenght(@)"}, "select: JMESPath has no function `lenght`; did you mean `length`?"),
    ("http", {"schema": {"type": "objekt"}}, "schema.type: not a valid schema: "),
    ("http", {"template": "{{ exit_code }}"}, "template: `exit_code` is not an input"),
    ("shell", {"template": "{{ status }}"}, "template: `status` is not an input"),
    ("http", {"format": "text", "schema": {}}, "schema: requires structured content, but `format: text` has none"),
    ("http", {"format": "image", "select": "a"}, "select: requires text or JSON, but `format` is image"),
    ("shell", {"format": "image"}, "format: requires `mime_type`, such as image/png"),
    ("content", {"schema": {}}, "schema: has no effect, because `content` is sent as written"),
    ("sql", {"format": "csv"}, "format: has no effect, because database rows are not csv"),
    ("content", {"format": "json", "max_size": 5}, "format: has no effect"),
    ("http", {"format": "audio", "mime_type": "image/png"}, "mime_type: expected audio/…, to match `format`"),
    ("http", {"mismatch": "accept"}, "mismatch: requires `schema`"),
]


@pytest.mark.parametrize(("backend", "fields", "message"), MISTAKES)
def test_mistake_is_a_load_error(backend: str, fields: dict[str, Json], message: str) -> None:
    scope = make_scope()
    config = Output.model_validate(fields)
    compile_output(
        config,
        traits=BACKENDS[backend].output,
        scope=scope,
        redactor=Redactor(),
        output_store=OutputStore(),
        counters=OutputCounters(),
    )
    assert len(messages_of(scope)) == 1
    assert messages_of(scope)[0].startswith(message)


@pytest.mark.parametrize(
    "number", ["18446744073709551617", "-9223372036854775809", "115792089237316195423570985008687907853"]
)
async def test_integer_of_any_length_is_preserved(number: str) -> None:
    output = raw(f'{{"wei":{number},"list":[{number}]}}', "application/json")
    variants: list[dict[str, Json]] = [{}, {"schema": {"type": "object", "properties": {"wei": {"type": "integer"}}}}]
    for fields in variants:
        result = await shape(output, **fields)
        assert text_of(result) == f'{{"wei":{number},"list":[{number}]}}'
        assert result.structured == {"wei": int(number), "list": [int(number)]}
    assert text_of(await shape(output, select="wei")) == number
    assert text_of(await shape(output, format="json", template="{{ result.wei }} {{ result.list | tojson }}")) == (
        f"{number} [{number}]"
    )
    refused = await shape(output, schema={"type": "object", "properties": {"wei": {"type": "string"}}})
    assert f"was {number}" in error_of(refused)


DECLARED: Json = {"type": "object", "properties": {"n": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("data", "structured", "count"),
    [
        ('{"n":1}', {"n": 1}, 0),
        ('{"n":"one"}', {"n": "one"}, 1),
        ("[1]", {"result": [1]}, 1),
        ("null", {"result": None}, 1),
    ],
)
async def test_accepted_schema_mismatch_is_returned_and_counted(data: str, structured: Json, count: int) -> None:
    counters = OutputCounters()
    result = await shape(raw(data, "application/json"), counters=counters, schema=DECLARED, mismatch="accept")
    assert (result.structured, result.is_error, counters.mismatches) == (structured, False, count)


async def test_invalid_json_is_an_error_even_if_mismatches_are_accepted() -> None:
    result = await shape(raw("<html>", "text/html"), schema=DECLARED, mismatch="accept")
    assert result.is_error
    assert "<html>" in text_of(result)
