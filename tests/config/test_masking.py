"""Secrets that stand in the file itself are covered where its lines are shown."""

import base64
from pathlib import Path

import pytest

from gateway.config.diagnostics import render
from gateway.config.loader import load
from gateway.config.secret_forms import forms_of
from gateway.config.secrets import Redactor
from gateway.errors import ConfigError
from gateway.json_types import Json

SECRET = "hunter2-hunter2"


def shown(tmp_path: Path, text: str) -> str:
    main = tmp_path / "config.yaml"
    main.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load(main, environ={}).raise_errors()
    assert SECRET not in str(caught.value)
    return render(caught.value.problems, colour=False)


@pytest.mark.parametrize(
    "line",
    [
        f"connections: {{c: {{base_url: 'https://x', headers: {{Authorization: Bearer {SECRET}}}, oops: 1}}}}",
        f"connections: {{c: {{base_url: 'https://x', headers: {{X-Api-Key: '{SECRET}'}}, oops: 1}}}}",
        f"connections: {{c: {{oops: 1, base_url: 'https://x', headers: {{Cookie: {SECRET}}}}}}}",
        f"connections: {{c: {{base_url: 'https://u:{SECRET}@x', oops: 1}}}}",
        f"connections: {{c: {{base_url: 'https://x', query: {{access_token: {SECRET}}}, oops: 1}}}}",
        f"tools: {{t: {{shell: {{command: [a], env: {{DB_PASSWORD: {SECRET}}}, oops: 1}}}}}}",
        f"tools: {{t: {{shell: {{command: [curl, -H, 'Authorization: Bearer {SECRET}'], oops: 1}}}}}}",
        f"tools: {{t: {{http: {{url: 'https://x', json: {{token: ['{SECRET}']}}, oops: 1}}}}}}",
        f"tools: {{t: {{http: {{url: 'https://x', json: {{token: {{a: '{SECRET}'}}}}, oops: 1}}}}}}",
        f"tools: {{t: {{shell: {{command: [mysql, --password={SECRET}, a], oops: 1}}}}}}",
        f"tools: {{t: {{http: {{url: 'https://x/?a=b&api_key={SECRET}&c=d', oops: 1}}}}}}",
        f"tools: {{t: {{http: {{url: 'https://x', form: {{secret: '${{env:X:-{SECRET}}}'}}, oops: 1}}}}}}",
        f"auth: {{api_keys: {{ci: {{secret: {SECRET}, oops: 1}}}}}}",
        f"x: &a {{Authorization: {SECRET}}}",
    ],
)
def test_a_literal_secret_is_covered_and_the_caret_stays(tmp_path: Path, line: str) -> None:
    text = "x-h: &h {}\n" + line if not line.startswith("x:") else f"x-{line}\nconnections: {{c: {{headers: *a}}}}\n"
    drawn = shown(tmp_path, text)
    assert SECRET not in drawn
    first, source, caret = drawn.split("\n")[-3:]
    if "oops" in first:
        assert source[caret.index("^") :].startswith("oops")


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("auth: {api_keys: {ci: {secret: 27182818284590452}}}", "27182818284590452"),
        ("auth: {api_keys: {ci: {secret: [2.7182818]}}}", "2.7182818"),
        (f"auth: {{api_keys: {{ci: {SECRET}}}}}", SECRET),
        (f"auth: {{api_keys: {SECRET}}}", SECRET),
        ("tools: {t: {shell: {env: {PASSWORD: 27182818}, oops: 1}}}", "27182818"),
    ],
)
def test_a_literal_secret_in_the_wrong_form_or_place_is_not_quoted(tmp_path: Path, text: str, secret: str) -> None:
    assert secret not in shown(tmp_path, text)


def test_lines_of_a_file_that_is_not_yaml_are_covered_by_their_looks(tmp_path: Path) -> None:
    assert SECRET not in shown(tmp_path, f"a: [\nheaders: {{X-Api-Key: {SECRET}, a: ]\n")
    assert SECRET not in shown(tmp_path, f'a: b\n  password: "{SECRET}"\n')


def test_a_callers_key_is_masked_where_it_is_echoed_though_it_was_written_into_the_file(tmp_path: Path) -> None:
    main = tmp_path / "config.yaml"
    main.write_text("auth: {api_keys: {ci: {secret: [a-key-of-ci-012345, production]}}}", encoding="utf-8")
    assert load(main, environ={}).redactor.text("a-key-of-ci-012345 of production") == "*** of production"


def test_a_secret_over_several_lines_is_covered_on_each(tmp_path: Path) -> None:
    text = (
        f"tools:\n  t:\n    shell:\n      command: [a]\n      env: {{TOKEN: 'a\n       {SECRET}\n       b', A: true}}\n"
    )
    drawn = shown(tmp_path, text)
    assert SECRET not in drawn
    assert "quote it" in drawn


def test_inputs_that_are_called_like_secrets_are_shown(tmp_path: Path) -> None:
    assert "token: strin" in shown(tmp_path, "tools: {t: {input: {token: string}, oops: 1, shell: {command: [a]}}}\n")


def test_a_secret_is_never_quoted_however_short_it_is(tmp_path: Path) -> None:
    (tmp_path / "pin").write_text("t3l\n", encoding="utf-8")
    text = (
        'include: ["${file:pin}", "${file:pin}.yaml"]\nprompt_files: ["x${file:pin}"]\n'
        'tools: {t: {shell: {command: "run ${file:pin}"}}, u: {timeout: "${file:pin}", shell: "${file:pin}"}}\n'
    )
    drawn = shown(tmp_path, text)
    assert drawn.count("config.yaml:") == 6
    assert "t3l" not in drawn


@pytest.mark.parametrize(
    "echoed",
    ['hunter2/+ü"2', "hunter2%2F%2B%C3%BC%222", "hunter2/%2B%C3%BC%222", 'hunter2/+ü\\"2', 'hunter2/+\\u00fc\\"2'],
    ids=["as it is", "in a query", "in a path", "in JSON", "in ASCII JSON"],
)
def test_a_secret_is_masked_in_the_form_in_which_it_was_sent(echoed: str) -> None:
    assert Redactor(['hunter2/+ü"2']).text(f"got <{echoed}> and 2") == "got <***> and 2"


@pytest.mark.parametrize("before", ["", "u", "u:", "ada:", "ada:x"])
@pytest.mark.parametrize("after", ["", ":", "::", ":::"])
def test_a_secret_is_masked_wherever_it_stands_in_base64(before: str, after: str) -> None:
    encoded = base64.b64encode(f"{before}{SECRET}{after}".encode()).decode()
    masked = Redactor([SECRET]).text(f"Basic {encoded}")
    assert "***" in masked
    assert len(masked) <= len("Basic ***") + 16, "what is left of it are the characters that its neighbours share"


@pytest.mark.parametrize("echoed", ["hunter2%2f%2b%c3%bc%222", "hunter2/%2B%C3%BC%222", "hunter2/+ü&quot;2"])
def test_small_hexadecimal_and_other_people_s_encoding_are_masked(echoed: str) -> None:
    assert Redactor(['hunter2/+ü"2']).text(f"<{echoed}>") == "<***>"


def test_each_line_of_a_key_is_masked() -> None:
    redactor = Redactor(["-----BEGIN KEY-----\nMIIEvQIBADANBg\nab\n-----END KEY-----\n"])
    assert redactor.text("1: MIIEvQIBADANBg, 2: ab") == "1: ***, 2: ab"


@pytest.mark.parametrize("value", [{"pin": 1234567890}, [[1234567890]], {"1234567890": None}, {"a": -1234567890}])
def test_a_secret_of_digits_is_masked_where_it_is_a_number(value: Json) -> None:
    assert "1234567890" not in str(Redactor(["1234567890"]).json(value))


def test_what_holds_no_secret_is_passed_on_as_it_is() -> None:
    value = {"a": [1, 2.5, None, True, "text"]}
    assert Redactor(["1234567890"]).json(value) is value
    assert Redactor(['with "marks"']).json(value) == value


def test_what_could_be_half_a_secret_at_a_cut_is_left_out_whatever_it_is() -> None:
    redactor = Redactor([SECRET])
    longest = max(map(len, forms_of(SECRET))) - 1
    for size in range(1, len(SECRET)):
        for torn in (SECRET[:size], SECRET[-size:], "x" * size):
            assert redactor.before_gap("a" * 50 + torn) == ("a" * 50 + torn)[:-longest]
            assert redactor.after_gap(torn + "b" * 50) == (torn + "b" * 50)[longest:]
    assert Redactor().before_gap("nothing to hide") == Redactor().after_gap("nothing to hide") == "nothing to hide"


def test_short_secrets_are_covered_where_they_stand_alone() -> None:
    redactor = Redactor(["t3l", "x", ""])
    assert (
        redactor.strictly("no `t3l`, nor `x`, in /a/t3l/x/b; hotel t3lx")
        == "no `***`, nor `***`, in /a/***/***/b; hotel t3lx"
    )
    assert redactor.text("`t3l` and `x`") == "`t3l` and `x`"
