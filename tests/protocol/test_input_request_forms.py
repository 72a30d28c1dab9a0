"""Input requests by revision and capability, and the checks of responses."""

from datetime import date
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import ExecutionError, MalformedAnswerError, MissingCapabilityError
from gateway.json_types import Json
from gateway.plugin import ToolError
from gateway.protocol.call.input_requests.requester import limit_tokens
from gateway.protocol.call.input_requests.requests import (
    check_answer,
    checked,
    elicitation,
    read_answer,
    read_input_request,
    read_roots,
    read_sample,
    roots,
    sampling,
    url_elicitation,
)
from gateway.wire.input_requests import InputRequest, check_capabilities, for_revision
from gateway.wire.revisions import LEGACY, MODERN

REVISIONS: Final = (*LEGACY, *MODERN)
NAME: Final = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
FORM: Final = elicitation("Who?", NAME)
URL: Final = url_elicitation("Log in", "https://example.com/login")
TEXT: Final = sampling("Hello", {"maxTokens": 10})
BLOCKS: Final = sampling([{"role": "user", "content": [{"type": "text", "text": "Hello"}]}], {"maxTokens": 10})
TOOLS: Final = sampling("Hello", {"maxTokens": 10, "tools": []})
NEIGHBOURS: Final = sampling("Hello", {"maxTokens": 10, "includeContext": "thisServer"})


def missing(question: InputRequest, declared: Json, revision: str) -> Json:
    """Return the missing capabilities, or None."""
    try:
        check_capabilities({"key": question}, declared, revision)
    except MissingCapabilityError as error:
        return error.capabilities
    return None


@pytest.mark.parametrize(
    ("question", "declared", "lacking"),
    [
        (FORM, {}, {"elicitation": {"form": {}}}),
        (FORM, {"elicitation": None}, {"elicitation": {"form": {}}}),
        (FORM, {"elicitation": {}}, None),
        (FORM, {"elicitation": {"form": {}}}, None),
        (FORM, {"elicitation": {"form": {}, "url": {}}}, None),
        (FORM, {"elicitation": {"url": {}}}, {"elicitation": {"form": {}}}),
        (URL, {}, {"elicitation": {"url": {}}}),
        (URL, {"elicitation": {}}, {"elicitation": {"url": {}}}),
        (URL, {"elicitation": {"form": {}}}, {"elicitation": {"url": {}}}),
        (URL, {"elicitation": {"url": {}}}, None),
        (TEXT, {}, {"sampling": {}}),
        (TEXT, {"sampling": {}}, None),
        (TOOLS, {"sampling": {}}, {"sampling": {"tools": {}}}),
        (TOOLS, {"sampling": {"tools": {}}}, None),
        (NEIGHBOURS, {"sampling": {}}, {"sampling": {"context": {}}}),
        (NEIGHBOURS, {"sampling": {"context": {}}}, None),
        (roots(), {}, {"roots": {}}),
        (roots(), {"roots": {"listChanged": True}}, None),
    ],
)
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_undeclared_capabilities_are_missing(
    question: InputRequest, declared: Json, lacking: Json, revision: str
) -> None:
    assert missing(question, declared, revision) == lacking


@pytest.mark.parametrize("revision", REVISIONS)
def test_capabilities_of_revisions(revision: str) -> None:
    everything: Json = {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}, "context": {}}, "roots": {}}
    assert (missing(FORM, everything, revision) is None) == (revision >= "2025-06-18")
    assert (missing(URL, everything, revision) is None) == (revision >= "2025-11-25")
    assert (missing(TOOLS, everything, revision) is None) == (revision >= "2025-11-25")
    assert missing(TEXT, everything, revision) is None
    assert missing(roots(), everything, revision) is None


def test_elicitation_before_modes_means_forms() -> None:
    assert missing(FORM, {"elicitation": {"url": {}}}, "2025-06-18") is None
    assert missing(NEIGHBOURS, {"sampling": {}}, "2025-06-18") is None


def test_all_missing_capabilities_are_named() -> None:
    with pytest.raises(MissingCapabilityError) as error:
        check_capabilities({"a": FORM, "b": URL, "c": roots(), "d": TEXT}, {"sampling": {}}, "2026-07-28")
    assert error.value.capabilities == {"elicitation": {"form": {}, "url": {}}, "roots": {}}


EVERY_FIELD: Final[dict[str, Json]] = {
    "text": {"type": "string", "title": "Text", "minLength": 1, "format": "email", "default": "a@b.c"},
    "number": {"type": "number", "default": 1.5},
    "flag": {"type": "boolean", "default": True},
    "plain": {"type": "string", "enum": ["a", "b"], "default": "a"},
    "titled": {"type": "string", "oneOf": [{"const": "a", "title": "A"}, {"const": "b", "title": "B"}], "default": "a"},
}


def form(properties: Json) -> InputRequest:
    return elicitation("Fill in", {"type": "object", "properties": properties})


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_newer_revisions_get_unchanged_forms(revision: str) -> None:
    several = {"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}]}}
    question = form({**EVERY_FIELD, "several": several})
    assert for_revision(question, revision) == question


def test_2025_06_18_gets_enum_names_and_boolean_defaults_only() -> None:
    question = InputRequest("elicitation/create", {**form(EVERY_FIELD).params, "mode": "form"})
    cut = for_revision(question, "2025-06-18").params
    assert "mode" not in cut
    assert cut["requestedSchema"]["properties"] == {
        "text": {"type": "string", "title": "Text", "minLength": 1, "format": "email"},
        "number": {"type": "number"},
        "flag": {"type": "boolean", "default": True},
        "plain": {"type": "string", "enum": ["a", "b"]},
        "titled": {"type": "string", "enum": ["a", "b"], "enumNames": ["A", "B"]},
    }


def test_2025_06_18_has_no_multiple_choice() -> None:
    with pytest.raises(ExecutionError, match="field 'many' allows several values"):
        for_revision(form({"many": {"type": "array", "items": {"enum": ["a"]}}}), "2025-06-18")


def test_only_2025_11_25_has_elicitation_ids() -> None:
    first, second = (for_revision(URL, "2025-11-25").params for _ in range(2))
    assert first["elicitationId"] != second["elicitationId"]
    assert {name: value for name, value in first.items() if name != "elicitationId"} == URL.params
    assert for_revision(URL, "2026-07-28") == URL


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18"])
def test_older_revisions_get_one_block_per_message(revision: str) -> None:
    block = {"type": "text", "text": "Hello"}
    in_a_list = sampling([{"role": "user", "content": [block]}], {"maxTokens": 1})
    assert for_revision(in_a_list, revision).params["messages"] == [{"role": "user", "content": block}]
    for content in ([block, block], {"type": "tool_result", "toolUseId": "1", "content": []}):
        with pytest.raises(ExecutionError, match="allows one block per message"):
            for_revision(sampling([{"role": "user", "content": content}], {"maxTokens": 1}), revision)
    audio = sampling([{"role": "user", "content": {"type": "audio", "data": "", "mimeType": "audio/wav"}}], {})
    if revision == "2024-11-05":
        with pytest.raises(ExecutionError, match="of type text or image"):
            for_revision(audio, revision)
    else:
        assert for_revision(audio, revision) == audio


def test_max_tokens_is_limited() -> None:
    assert limit_tokens(TEXT, 5).params["maxTokens"] == 5
    assert limit_tokens(TEXT, 10) == limit_tokens(TEXT, None) == TEXT
    assert limit_tokens(FORM, 5) == FORM


@pytest.mark.parametrize(
    ("question", "schema_problem"),
    [
        (InputRequest("elicitation/create", {}), "needs a `message`"),
        (InputRequest("elicitation/create", {"message": "m"}), 'needs a schema with `"type": "object"`'),
        (elicitation("m", {"properties": {}}), 'needs a schema with `"type": "object"`'),
        (elicitation("m", {"type": "object"}), "needs a schema with `properties`"),
        (form({"deep": {"type": "object"}}), "neither text, a number, a boolean nor a choice: deep"),
        (form({"list": {"type": "array", "items": {"type": "string"}}}), "nor a choice: list"),
        (form({"odd": True}), "nor a choice: odd"),
        (form({"untitled": {"type": "string", "oneOf": [{"const": "a"}]}}), "nor a choice: untitled"),
        (form({"several": {"type": "array", "items": {"anyOf": "a"}}}), "nor a choice: several"),
        (form({"text": {"type": "string", "minLength": "many"}}), "has an invalid schema"),
        (InputRequest("elicitation/create", {"message": "m", "mode": "voice"}), "one of the modes form, url"),
        (url_elicitation("m", "javascript:alert(1)"), "needs a `url`"),
        (url_elicitation("m", "https://"), "needs a `url`"),
        (url_elicitation("m", "https://[::1"), "needs a `url`"),
        (sampling([], {"maxTokens": 1}), "needs `messages`"),
        (sampling([{"role": "system", "content": {"type": "text"}}], {"maxTokens": 1}), "needs `messages`"),
        (sampling([{"role": "user", "content": "text"}], {"maxTokens": 1}), "needs `messages`"),
        (sampling("Hello", {}), "needs `maxTokens`"),
        (sampling("Hello", {"maxTokens": 0}), "needs `maxTokens`"),
        (sampling("Hello", {"maxTokens": True}), "needs `maxTokens`"),
        (elicitation("m", {"type": "object", "properties": {"when": {"default": date(2026, 1, 2)}}}), "nor a choice"),
        (sampling("Hello", {"maxTokens": 1, "metadata": {"x": object()}}), "cannot be encoded as JSON"),
        (sampling("Hello", {"maxTokens": 1, "temperature": float("nan")}), "cannot be encoded as JSON"),
        (sampling([{"role": "user", "content": [{"type": 1}]}], {"maxTokens": 1}), "needs `messages`"),
    ],
)
def test_invalid_request_error_names_the_problem(question: InputRequest, schema_problem: str) -> None:
    with pytest.raises(ToolError) as error:
        checked("key", question)
    assert schema_problem in str(error.value)


@pytest.mark.parametrize("question", [FORM, URL, TEXT, BLOCKS, TOOLS, roots(), form(EVERY_FIELD)])
def test_valid_request_is_unchanged(question: InputRequest) -> None:
    assert checked("key", question) == question


@pytest.mark.parametrize("wire", [None, [], "ping", {}, {"method": "ping"}, {"method": "roots/list", "params": []}])
def test_unknown_request_is_an_error(wire: Json) -> None:
    with pytest.raises(ToolError, match="An input request must be"):
        read_input_request(wire)


def malformed(question: InputRequest, answer: Json) -> str:
    with pytest.raises(MalformedAnswerError) as error:
        check_answer("key", question, answer)
    assert error.value.code == -32602
    return error.value.message


@given(garbage=st.none() | st.integers() | st.text() | st.lists(st.integers()) | st.dictionaries(st.text(), st.text()))
def test_malformed_response_is_an_error(garbage: Json) -> None:
    for question in (FORM, URL, TEXT, roots()):
        malformed(question, garbage)


@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_declined_form_needs_no_content(action: str) -> None:
    answer = {"action": action, "content": {"name": 7}}
    check_answer("key", FORM, answer)
    assert read_answer(answer).action == action
    assert read_answer(answer).content is None


def test_form_content_must_match_the_schema() -> None:
    check_answer("key", FORM, {"action": "accept", "content": {"name": "Ada", "more": 1}})
    contents: list[Json] = [{}, {"name": 7}, [], "Ada", None]
    for content in contents:
        assert "does not match the requested schema" in malformed(FORM, {"action": "accept", "content": content})
    assert "does not match the requested schema" in malformed(FORM, {"action": "accept"})
    assert "one of accept, decline, cancel" in malformed(FORM, {"action": "ok", "content": {"name": "Ada"}})


def test_form_without_fields_needs_no_content() -> None:
    for answer in ({"action": "accept"}, {"action": "accept", "content": None}, {"action": "accept", "content": {}}):
        check_answer("key", form({}), answer)
        assert read_answer(answer).content == {}


def test_accepted_url_needs_no_content() -> None:
    check_answer("key", URL, {"action": "accept"})


def test_sampling_response_has_one_or_more_blocks() -> None:
    block = {"type": "text", "text": "Hi"}
    for content, text in ((block, "Hi"), ([block, {"type": "image"}, block], "HiHi"), ([], "")):
        answer = {"role": "assistant", "content": content, "model": "m", "stopReason": "endTurn"}
        check_answer("key", TEXT, answer)
        assert (read_sample(answer).text, read_sample(answer).model) == (text, "m")
    broken: list[Json] = [
        None,
        "Hi",
        [None],
        {"text": "Hi"},
        {"type": "text"},
        {"type": "text", "text": 7},
        {"type": 1},
    ]
    for content in broken:
        malformed(TEXT, {"role": "assistant", "content": content, "model": "m"})
    malformed(TEXT, {"content": block, "model": 7})
    malformed(TEXT, {"content": block, "model": "m", "stopReason": 7})


def test_roots_must_be_file_uris() -> None:
    answer = {"roots": [{"uri": "file:///home/ada", "name": "home"}, {"uri": "file:///tmp"}]}
    check_answer("key", roots(), answer)
    assert read_roots(answer) == answer["roots"]
    broken: list[Json] = [
        None,
        {},
        [None],
        [{}],
        [{"uri": 7}],
        [{"uri": "https://example.com"}],
        [{"uri": "file:///", "name": 7}],
    ]
    for listed in broken:
        malformed(roots(), {"roots": listed})
