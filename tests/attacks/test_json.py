"""Any bytes sent as JSON get a JSON-RPC response, and never an internal error."""

import json
from typing import Final

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.json_types import Json, JsonObject
from tests.attacks.client import LEGACY_ACCEPT, Answer, initialize
from tests.attacks.payloads import SHELL, TEXTS
from tests.attacks.target import Plan, Target
from tests.e2e.daemon import call
from tests.messages import ENVELOPE, MODERN, modern_request

INTERNAL_ERROR: Final = -32603

PLAN = Plan(
    file="""
    plugins: [plugins]
    tools:
      echo:
        description: Repeat a text.
        input: {text: string}
        content: [{text: "{{ text }}"}]
      count:
        description: Give back a number, through a program.
        input: {n: integer}
        shell: {script: 'printf %s "$INPUT_N"'}
      large:
        description: Return a number that a program printed.
        shell: {command: [printf, '%s', '{"n":18446744073709551617}']}
        output: {format: json}
      take:
        description: Take anything, in every way that there is.
        input_schema: {type: object}
        content: [{text: "{{ inputs | tojson }}"}]
      structured:
        description: Return the arguments.
        input: {value: {}}
        python: "house:structured"
      nested:
        description: A list, which may also come as its JSON.
        input: {value: array}
        shell: {command: [printf, '%s', "--", "{{ value | tojson }}"]}
      nested_script:
        description: The same for a script.
        input: {value: array}
        shell: {script: 'cat "$INPUTS_FILE" > /dev/null; echo done'}
      nested_plugin:
        description: The same for a function.
        input: {value: array}
        python: "house:structured"
      nested_request:
        description: The same for a failing request.
        input: {value: array}
        http: {url: "http://127.0.0.1:9/", allow_private: true, method: POST, json: {value: "{{ value }}"}}
      strict:
        description: All keywords that could be slow.
        input:
          pattern: {type: string, required: false, pattern: "^(a+)+$"}
          several: {type: array, required: false, uniqueItems: true}
          choice: {type: array, required: false, items: {enum: [a, b]}}
          mail: {type: string, required: false, format: email}
          address: {type: string, required: false, format: uri}
        content: [{text: fits}]
    prompts:
      say:
        description: A prompt.
        arguments: {text: {description: A text.}}
        messages: [{user: "{{ text }}"}]
    resources:
      one: {uri: "x://one", text: one}
      any: {uri: "x:///{name}", text: "{{ name }}"}
    """,
    files={
        "plugins/house.py": """
    def structured(value: object = None) -> dict:
        return {"value": value}
    """
    },
)


def assert_answer(answer: Answer) -> Json:
    """Check that a message is a JSON-RPC response and not an internal error."""
    assert answer.status < 500, answer
    message = answer.json
    assert message["jsonrpc"] == "2.0"
    assert ("result" in message) != ("error" in message)
    assert message.get("error", {}).get("code") != INTERNAL_ERROR, message
    return message


def post(target: Target, body: bytes, *, method: str = "tools/call", name: str = "echo") -> Answer:
    fields = [("MCP-Protocol-Version", MODERN), ("Mcp-Method", method), ("Mcp-Name", name)]
    return target.client.post(body, fields=fields)


VALID: Final = orjson.dumps(call("echo", text="x"))

NOT_JSON: Final[dict[str, bytes]] = {
    "nothing": b"",
    "white space": b" \n ",
    "a byte order mark": b"\xef\xbb\xbf" + VALID,
    "UTF-16": VALID.decode().encode("utf-16"),
    "UTF-32": VALID.decode().encode("utf-32"),
    "Latin-1": VALID.replace(b'"x"', b'"\xe9"'),
    "an overlong slash": VALID.replace(b'"x"', b'"\xc0\xaf"'),
    "an overlong NUL": VALID.replace(b'"x"', b'"\xc0\x80"'),
    "a surrogate in bytes": VALID.replace(b'"x"', b'"\xed\xa0\x80"'),
    "beyond Unicode": VALID.replace(b'"x"', b'"\xf4\x90\x80\x80"'),
    "half a character": VALID.replace(b'"x"', b'"\xe2\x82"'),
    "a lone surrogate": VALID.replace(b'"x"', b'"\\ud800"'),
    "surrogates in the wrong order": VALID.replace(b'"x"', b'"\\udc00\\ud800"'),
    "a raw control character": VALID.replace(b'"x"', b'"\x01"'),
    "a raw newline": VALID.replace(b'"x"', b'"\n"'),
    "NUL at the end": VALID + b"\0",
    "trailing characters": VALID + b"x",
    "two messages": VALID + VALID,
    "two messages on two lines": VALID + b"\n" + VALID,
    "NaN": VALID.replace(b'"x"', b"NaN"),
    "Infinity": VALID.replace(b'"x"', b"-Infinity"),
    "an incomplete number": VALID.replace(b'"x"', b"1" * 100_000),
    "an incomplete exponent": VALID.replace(b'"x"', b"1e" + b"9" * 100_000),
    "hexadecimal": VALID.replace(b'"x"', b"0x10"),
    "a leading zero": VALID.replace(b'"x"', b"010"),
    "a leading plus": VALID.replace(b'"x"', b"+1"),
    "single quotes": VALID.replace(b'"', b"'"),
    "a comment": b"/* */" + VALID,
    "a trailing comma": VALID[:-1] + b",}",
    "a bad escape": VALID.replace(b'"x"', b'"\\x41"'),
    "unclosed brackets": b"[" * 1_000_000,
    "unclosed objects": b'{"a":' * 500_000,
    "deep and closed": b"[" * 100_000 + b"]" * 100_000,
    "truncated": VALID[: len(VALID) // 2],
}


@pytest.mark.parametrize("body", NOT_JSON.values(), ids=list(NOT_JSON))
def test_invalid_json_is_a_parse_error(target: Target, body: bytes) -> None:
    answer = post(target, body)
    assert (answer.status, assert_answer(answer)["error"]["code"]) == (400, -32700)
    assert assert_answer(post(target, VALID))["result"]["content"][0]["text"] == "x"


@pytest.mark.parametrize("cut", range(0, len(VALID), 7))
def test_truncated_message_is_a_parse_error(target: Target, cut: int) -> None:
    assert assert_answer(post(target, VALID[:cut]))["error"]["code"] == -32700


def nested(depth: int, open_: bytes, close: bytes) -> bytes:
    return open_ * depth + b"1" + close * depth


@pytest.mark.parametrize(("open_", "close"), [(b"[", b"]"), (b'{"a":', b"}"), (b'[{"a":', b"}]")])
@pytest.mark.parametrize("depth", [100, 253, 255, 500, 1000])
def test_deep_nesting_is_rejected_everywhere(target: Target, depth: int, open_: bytes, close: bytes) -> None:
    deep = nested(depth, open_, close)
    template = orjson.dumps(modern_request("tools/call", {"name": "take", "arguments": {"a": "HERE"}}))
    for body in (
        template.replace(b'"HERE"', deep),
        template.replace(b'"_meta":{', b'"_meta":{"deep":%b,' % deep),
        template.replace(b'"name":"take"', b'"name":%b' % deep),
        template.replace(b'"id":1', b'"id":%b' % deep),
        template.replace(b'"method":"tools/call"', b'"method":%b' % deep),
        deep,
    ):
        message = assert_answer(post(target, body, name="take"))
        assert message["error"]["code"] in {-32600, -32700}, message
    shallow = template.replace(b'"HERE"', nested(10, open_, close))
    assert "result" in assert_answer(post(target, shallow, name="take"))


@pytest.mark.parametrize("tool", ["nested", "nested_script", "nested_plugin", "nested_request"])
@pytest.mark.parametrize("depth", [64, 250, 300, 900, 1020, 100_000])
def test_nesting_in_json_text_is_limited(target: Target, tool: str, depth: int) -> None:
    """The nesting limit of requests does not apply to lists that are passed as JSON text (`coerce`)."""
    result = target.client.call(tool, {"value": "[" * depth + "]" * depth})
    assert "content" in result, result
    assert "correlation id" not in result["content"][0]["text"], result
    assert target.client.call(tool, {"value": "[[1]]"})["content"]


@pytest.mark.parametrize("written", ["18446744073709551617", "-9223372036854775809", "9" * 300, "9" * 4300])
def test_integers_are_not_changed(target: Target, written: str) -> None:
    """An integer of any length arrives unchanged, anywhere. A float of that size is not written as an integer."""
    template = orjson.dumps(modern_request("tools/call", {"name": "count", "arguments": {"n": "HERE"}}))
    whole = written.encode()
    with_token = template.replace(b'"_meta":{', b'"_meta":{"progressToken":%b,' % whole)
    for body in (
        template.replace(b'"HERE"', whole),
        template.replace(b'"HERE"', b'"%b"' % whole),  # `coerce` converts it to the number
        with_token.replace(b'"HERE"', whole),
    ):
        result = assert_answer(post(target, body, name="count"))["result"]
        assert result["content"][0]["text"] == written
    inside = template.replace(b'"count"', b'"structured"').replace(b'"n":"HERE"', b'"value":{"a":[%b]}' % whole)
    assert b'"structuredContent":{"value":{"a":[%b]}}' % whole in post(target, inside, name="structured").body
    as_id = assert_answer(post(target, template.replace(b'"id":1', b'"id":%b' % whole), name="count"))
    assert as_id["error"]["code"] == -32600, as_id
    assert "up to 64 bits" in as_id["error"]["message"]
    floating = template.replace(b'"HERE"', b"1%b.0" % (b"0" * 25))
    assert assert_answer(post(target, floating, name="count"))["result"]["content"][0]["text"] == "1e+25"


def test_large_integers_of_a_backend_are_preserved(target: Target) -> None:
    body = orjson.dumps(modern_request("tools/call", {"name": "large", "arguments": {}}))
    assert b'"structuredContent":{"n":18446744073709551617}' in post(target, body, name="large").body


DUPLICATES: Final[dict[str, tuple[bytes, bytes]]] = {
    "the method": (b'"method":"tools/call"', b'"method":"tools/list","method":"tools/call"'),
    "the name": (b'"name":"echo"', b'"name":"nothing","name":"echo"'),
    "an argument": (b'"text":"x"', b'"text":"y","text":"x"'),
}


@pytest.mark.parametrize(("one", "two"), DUPLICATES.values(), ids=list(DUPLICATES))
def test_header_fields_match_the_used_duplicate_member(target: Target, one: bytes, two: bytes) -> None:
    """Intermediaries must see the same call in the header fields and in the body."""
    assert one in VALID
    assert assert_answer(post(target, VALID.replace(one, two)))["result"]["content"][0]["text"] == "x"
    if b"text" not in one:
        other = post(target, VALID.replace(one, two), method="tools/list", name="nothing")
        assert assert_answer(other)["error"]["code"] == -32020


IDS: Final[list[tuple[Json, bool]]] = [
    (0, True),
    (-1, True),
    (2**53, True),
    (2**64 - 1, True),
    ("", True),
    ("\0\n\u2028\U0001f600", True),
    ("x" * 100_000, True),
    ('"}],\n\ndata: {}', True),
    (1.0, False),
    (1.5, False),
    (2**64, False),
    (None, False),
    (True, False),
    (False, False),
    ([], False),
    ([1], False),
    ({}, False),
    ({"toString": 1}, False),
]


@pytest.mark.parametrize(("request_id", "is_taken"), IDS, ids=lambda value: str(value)[:20])
def test_request_id_is_returned_unchanged_or_rejected(target: Target, request_id: Json, is_taken: bool) -> None:  # noqa: FBT001 - a table's column
    body = json.dumps(call("echo", text="x", request_id=request_id)).encode()
    message = assert_answer(post(target, body))
    if is_taken:
        assert (message["id"], type(message["id"])) == (request_id, type(request_id))
        assert message["result"]["content"][0]["text"] == "x"
    else:
        assert message["error"]["code"] == -32600
        assert message.get("id") is None


META: Final[list[Json]] = [
    *(None, True, 0, 1.5, "", "x", [], {}),
    *([{}], {"io.modelcontextprotocol/protocolVersion": None}, {"a": "x" * 100_000}),
]


@pytest.mark.parametrize("key", [*ENVELOPE, "io.modelcontextprotocol/clientInfo", "io.modelcontextprotocol/logLevel"])
@pytest.mark.parametrize("value", META, ids=lambda value: str(value)[:20])
def test_any_envelope_is_accepted_or_rejected(target: Target, key: str, value: Json) -> None:
    message = call("echo", text="x")
    message["params"]["_meta"][key] = value
    assert_answer(post(target, orjson.dumps(message)))


@pytest.mark.parametrize("value", [*META, "-1", "2026-07-28\n", "9999-99-99", "2026-07-28, 2026-07-28", "é"])
def test_any_meta_is_accepted_or_rejected(target: Target, value: Json) -> None:
    for key in ("progressToken", "traceparent", "tracestate", "baggage", "io.modelcontextprotocol/subscriptionId", ""):
        message = call("echo", text="x")
        message["params"]["_meta"][key] = value
        assert assert_answer(post(target, orjson.dumps(message)))["result"]["content"][0]["text"] == "x"
    message = call("echo", text="x")
    message["params"]["_meta"] = value
    assert_answer(post(target, orjson.dumps(message)))


NAMES: Final = ("__proto__", "constructor", "__class__", "__init__", "toString", "hasOwnProperty", "$ref", "$where", "")


@pytest.mark.parametrize("name", NAMES)
def test_special_names_are_only_data(target: Target, name: str) -> None:
    assert orjson.loads(target.client.text("take", {name: {name: name}})) == {name: {name: name}}
    assert target.client.call("structured", {"value": {name: name}})["structuredContent"]["value"] == {name: name}
    assert f"/{name} is not a known argument" in target.client.refusal("echo", {"text": "x", name: 1})
    for method, member in (("tools/call", "name"), ("prompts/get", "name"), ("resources/read", "uri")):
        assert target.client.modern(method, {member: name}).code == -32602
    assert target.client.modern(name, {}).code == -32601


METHODS: Final = (
    *("tools/call", "tools/list", "prompts/get", "prompts/list", "resources/read", "resources/list"),
    *("resources/templates/list", "completion/complete", "server/discover", "ping", "logging/setLevel"),
    *("resources/subscribe", "initialize", "notifications/initialized", "notifications/cancelled"),
)
MEMBERS: Final = st.sampled_from(NAMES) | st.text(max_size=8)
ANY_JSON: Final = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
    | st.sampled_from(TEXTS + SHELL + NAMES),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(MEMBERS, children, max_size=4),
    max_leaves=12,
)
WORDS: Final = st.sampled_from(
    (
        *("name", "uri", "arguments", "cursor", "ref", "argument", "value", "type", "context", "_meta", "level"),
        *("text", "notifications", "inputResponses", "requestState", "protocolVersion", "capabilities", "clientInfo"),
        *("requestId", "progressToken"),
    )
)
KNOWN: Final = st.sampled_from(
    ["echo", "take", "say", "x://one", "x:///a", "x:///{name}", "ref/prompt", "ref/resource"]
)
PARAMS: Final = st.dictionaries(WORDS, ANY_JSON | KNOWN | st.dictionaries(WORDS, ANY_JSON | KNOWN), max_size=6)


@given(method=st.sampled_from(METHODS), params=PARAMS)
def test_any_parameters_of_a_modern_request_get_a_response(target: Target, method: str, params: JsonObject) -> None:
    fields = params.get("_meta")
    message = modern_request(method, {**params, "_meta": fields if isinstance(fields, dict) else {}})
    name = params.get("name", params.get("uri"))
    mirrored = name if isinstance(name, str) and name.isascii() and name.isprintable() else ""
    assert_answer(post(target, json.dumps(message).encode(), method=method, name=mirrored.strip()))


@given(method=st.sampled_from(METHODS), params=PARAMS | ANY_JSON)
def test_any_parameters_in_a_session_get_a_response(target: Target, method: str, params: Json) -> None:
    with target.client.session() as session:
        answer = session.post(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode())
        assert_answer(answer)
        assert session.ask("ping")["result"] == {}


@given(message=ANY_JSON | st.lists(ANY_JSON, max_size=5) | st.dictionaries(WORDS, ANY_JSON))
def test_any_json_without_a_session_gets_a_response(target: Target, message: Json) -> None:
    answer = target.client.post(json.dumps(message).encode(), fields=[("Accept", LEGACY_ACCEPT)])
    assert "error" in assert_answer(answer)


@given(params=st.dictionaries(st.sampled_from(["protocolVersion", "capabilities", "clientInfo", "_meta"]), ANY_JSON))
def test_failed_initialize_leaves_no_session(target: Target, params: JsonObject) -> None:
    body = json.dumps({**initialize(), "params": params}).encode()
    answer = target.client.post(body, fields=[("Accept", LEGACY_ACCEPT)])
    session_id = answer.headers.get("mcp-session-id")
    assert ("result" in assert_answer(answer)) == (session_id is not None)
    if session_id is not None:
        ended = target.client.request("DELETE", "/mcp", fields=[("Mcp-Session-Id", session_id)])
        assert ended.status == 204


def test_batch_entries_fail_separately_and_never_nest(target: Target) -> None:
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    with target.client.session("2025-03-26") as session:
        answer = session.post([ping, [ping], 7, {**ping, "id": "x"}, {**ping, "id": None}, initialize()])
        replies = answer.json
        assert [reply.get("id") for reply in replies if "result" in reply] == [1, "x"]
        assert len([reply for reply in replies if reply.get("error", {}).get("code") == -32600]) == 4
        assert session.post([ping] * 101).code == -32600
        assert session.post([]).code == -32600
        assert len(session.post([{**ping, "id": number} for number in range(100)]).json) == 100
        same = session.post([ping] * 10).json
        assert all(reply["id"] == 1 for reply in same)
    with target.client.session("2025-11-25") as session:
        assert session.post([ping]).code == -32600


SLOW: Final[dict[str, tuple[JsonObject, bool]]] = {
    "a pattern that backtracks": ({"pattern": "a" * 50_000 + "!"}, False),
    "a matching text for this pattern": ({"pattern": "a" * 50_000}, True),
    "very many items that differ": ({"several": list(range(200_000))}, True),
    "very many lists that differ": ({"several": [[number] for number in range(50_000)]}, True),
    "very many objects that differ at the end": ({"several": [{"a" * 50: n} for n in range(20_000)]}, True),
    "very many invalid items": ({"choice": ["c"] * 200_000}, False),
    "an email address with many dots": ({"mail": "a@" + "a." * 100_000}, False),
    "an email address with many percent signs": ({"address": "x:" + "%" * 300_000}, False),
    "a missing member": ({"x" * 300_000: 1}, False),
    "very many missing members": ({f"n{number}": 1 for number in range(50_000)}, False),
}


@pytest.mark.parametrize(("arguments", "fits"), SLOW.values(), ids=list(SLOW))
def test_validation_time_and_error_length_are_bounded(
    target: Target,
    arguments: JsonObject,
    fits: bool,  # noqa: FBT001 - a table's column
) -> None:
    """Without bounds, each of these would exceed the client's timeout."""
    if fits:
        assert target.client.text("strict", arguments) == "fits"
    else:
        assert len(target.client.refusal("strict", arguments)) < 100_000
