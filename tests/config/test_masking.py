"""Secrets that stand in the file itself are covered where its lines are shown."""

from pathlib import Path

import pytest

from gateway.config.diagnostics import render
from gateway.config.loader import load
from gateway.config.secrets import Redactor
from gateway.errors import ConfigError

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


def test_lines_of_a_file_that_is_not_yaml_are_covered_by_their_looks(tmp_path: Path) -> None:
    assert SECRET not in shown(tmp_path, f"a: [\nheaders: {{X-Api-Key: {SECRET}, a: ]\n")
    assert SECRET not in shown(tmp_path, f'a: b\n  password: "{SECRET}"\n')


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
