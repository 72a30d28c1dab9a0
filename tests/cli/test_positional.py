import io
from pathlib import Path

import pytest

from gateway.cli.user_input import arguments_of, name_and_pairs, split_config
from gateway.errors import ConfigError
from gateway.json_types import Json


@pytest.mark.parametrize(
    ("words", "config", "rest"),
    [
        (["a.yaml", "tool", "k=v"], "a.yaml", ["tool", "k=v"]),
        (["ops/config", "tool"], "ops/config", ["tool"]),
        (["tool", "k=a.yaml"], None, ["tool", "k=a.yaml"]),
        (["docs:///a/b.yml"], None, ["docs:///a/b.yml"]),
        (["disk.usage"], None, ["disk.usage"]),
        ([], None, []),
    ],
)
def test_first_word_is_the_file_only_if_it_looks_like_one(
    words: list[str], config: str | None, rest: list[str]
) -> None:
    assert split_config(words, url=None) == (config, rest)


def test_directory_name_is_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.d").mkdir()
    monkeypatch.chdir(tmp_path)
    assert split_config(["config.d", "tool"], url=None) == ("config.d", ["tool"])


def test_tool_can_have_the_name_of_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "deploy").mkdir()
    monkeypatch.chdir(tmp_path)
    for words in (["deploy"], ["deploy", "branch=main"]):
        assert split_config(words, url=None, needs_name=True) == (None, words)
    assert split_config(["deploy", "tool"], url=None, needs_name=True) == ("deploy", ["tool"])
    assert split_config(["deploy"], url=None) == ("deploy", [])


def test_no_word_is_the_file_with_a_url() -> None:
    assert split_config(["a.yaml"], url="http://localhost") == (None, ["a.yaml"])


@pytest.mark.parametrize(
    ("pairs", "arguments"),
    [
        (["name=Ada"], {"name": "Ada"}),
        (["name="], {"name": ""}),
        (["n=3"], {"n": "3"}),
        (["n:=3", "on:=true", "list:=[1, 2]", "none:=null"], {"n": 3, "on": True, "list": [1, 2], "none": None}),
        (["url=http://x/?a=b"], {"url": "http://x/?a=b"}),
        (["text=@home"], {"text": "@home"}),
        (["user-id=1", "a=1", "a=2"], {"user-id": "1", "a": "2"}),
    ],
)
def test_words_are_parsed_as_arguments(pairs: list[str], arguments: dict[str, Json]) -> None:
    assert arguments_of(pairs) == arguments


def test_words_extend_the_json_object() -> None:
    assert arguments_of(["b=x"], json='{"a": 1, "b": 2}') == {"a": 1, "b": "x"}


def test_text_can_come_from_a_file_or_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "notes.txt").write_text("one\ntwo\n")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"three")))
    assert arguments_of([f"a@={tmp_path}/notes.txt", "b@=-"]) == {"a": "one\ntwo\n", "b": "three"}


def test_text_from_a_file_is_its_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "notes.txt").write_bytes("ü\r\nb\r".encode())
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("ü\r\n".encode()), encoding="latin-1"))
    assert arguments_of([f"a@={tmp_path}/notes.txt", "b@=-"]) == {"a": "ü\r\nb\r", "b": "ü\r\n"}


@pytest.mark.parametrize(
    ("pairs", "json", "message"),
    [
        (["name"], None, "name: expected key=text"),
        (["=x"], None, "=x: expected key=text"),
        ([":=1"], None, ":=1: expected key=text"),
        (["n:={"], None, "n:={: is not JSON"),
        (["n@=/nowhere"], None, "n@=/nowhere: cannot be read"),
        (["n@=/nowhere\udcff"], None, "n@=/nowhere\udcff: cannot be read"),
        (["n@=-"], None, "n@=-: cannot be read: is not UTF-8 (byte 0xff in line 2)"),
        (["n@=/"], None, "n@=/: cannot be read: Is a directory"),
        (["n@=/dev/zero"], None, "n@=/dev/zero: cannot be read: it is larger than 256 MiB"),
        (["n=a\udcff"], None, "n=a\udcff: is not valid UTF-8"),
        (["n\udcff=a"], None, "n\udcff=a: is not valid UTF-8"),
        (["n\udcff:=1"], None, "n\udcff:=1: is not valid UTF-8"),
        ([], "[1]", "--json: expected an object"),
        ([], "{", "--json: is not JSON"),
    ],
)
def test_invalid_words_are_reported(
    pairs: list[str], json: str | None, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a\n\xff")))
    with pytest.raises(ConfigError) as caught:
        arguments_of(pairs, json=json)
    assert str(caught.value).startswith(message)


def test_tool_name_is_text() -> None:
    assert name_and_pairs(["ü", "a=b"], "TOOL") == ["ü", "a=b"]
    with pytest.raises(ConfigError, match="is not valid UTF-8"):
        name_and_pairs(["a\udcff"], "TOOL")
