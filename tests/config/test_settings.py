"""Flags and environment variables: precedence, parsing and errors."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import pytest

from gateway.config.machine_facts import usable_processors
from gateway.config.models.address import Address
from gateway.config.settings import own_secrets, read_settings
from gateway.errors import ConfigError
from gateway.json_types import Json


@pytest.fixture(autouse=True)
def _without_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for field in ("CONFIG", "HTTP", "STDIO", "SCOPES", "POLL", "LOG_LEVEL", "SECRET_KEY", "SECRET_KEY_FILE"):
        monkeypatch.delenv(f"MCP_GATEWAY_{field}", raising=False)


def problems(flags: Mapping[str, Json]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read_settings(flags)
    return [str(problem) for problem in caught.value.problems]


def test_settings_have_defaults() -> None:
    settings = read_settings({})
    assert settings.config == Path("config.yaml")
    assert settings.http is None
    assert settings.serves_http
    assert settings.drain_timeout == timedelta(seconds=10)


def test_flags_override_variables_and_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_GATEWAY_POLL", "5s")
    assert read_settings({}).poll == timedelta(seconds=5)
    assert read_settings({"poll": "1m"}).poll == timedelta(minutes=1)


def test_empty_variable_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_GATEWAY_HTTP", "")
    assert read_settings({}).http is None


def test_workers_are_a_number_or_auto() -> None:
    assert read_settings({"workers": "4"}).worker_count == 4
    assert read_settings({"workers": "auto"}).worker_count == usable_processors()
    assert problems({"workers": "many"}) == ["--workers: expected a number from 1 to 512, or auto, not 'many'"]


def test_password_of_the_store_is_a_secret(tmp_path: Path) -> None:
    (tmp_path / "store").write_bytes(b"redis://app:p%40ss@h/0\n")
    environ = {"MCP_GATEWAY_STORE_FILE": str(tmp_path / "store"), "MCP_GATEWAY_SECRET_KEY_FILE": str(tmp_path / "no")}
    assert {"p%40ss", "p@ss"} < {*own_secrets(environ)}


def test_store_file_must_be_utf8(tmp_path: Path) -> None:
    (tmp_path / "store").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match=r"MCP_GATEWAY_STORE_FILE: cannot read .*store: 'utf-8' codec"):
        read_settings({"store_file": tmp_path / "store"}).store_url()


def test_bare_number_is_a_duration_in_seconds() -> None:
    assert read_settings({"drain_timeout": "2.5"}).drain_timeout == timedelta(seconds=2.5)


def test_scopes_are_separated_by_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_GATEWAY_SCOPES", "ops.read, ops.write,")
    assert read_settings({}).scopes == frozenset({"ops.read", "ops.write"})
    assert read_settings({"scopes": ""}).scopes == frozenset()
    monkeypatch.setenv("MCP_GATEWAY_SCOPES", "")
    assert read_settings({}).scopes == frozenset()
    assert problems({"scopes": "ops.read ops.write"}) == [
        "--scopes: expected scopes such as ops.read,ops.write, not 'ops.read ops.write'"
    ]


@pytest.mark.parametrize(
    ("stdio", "http", "serves"), [(False, None, True), (True, None, False), (True, "127.0.0.1:0", True)]
)
def test_stdio_disables_http_unless_given(stdio: bool, http: str | None, serves: bool) -> None:  # noqa: FBT001 - a table
    flags: dict[str, Json] = {"stdio": stdio} | ({"http": http} if http else {})
    assert read_settings(flags).serves_http is serves


def test_invalid_settings_name_their_flag_or_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_GATEWAY_STDIO", "maybe")
    monkeypatch.setenv("MCP_GATEWAY_LOG_LEVEL", "trace")
    assert sorted(problems({"http": "localhost", "poll": "soon"})) == [
        "--http: expected host:port such as 127.0.0.1:8000, [::1]:8000 or :8000 (every interface), not 'localhost'",
        "--poll: expected a duration such as 500ms, 30s, 15m or 2h (a bare number is seconds), not 'soon'",
        "MCP_GATEWAY_LOG_LEVEL: expected 'debug', 'info', 'warning' or 'error', not 'trace'",
        "MCP_GATEWAY_STDIO: expected true or false, not 'maybe'",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:8000", Address("127.0.0.1", 8000)),
        ("localhost:0", Address("localhost", 0)),
        ("[::1]:80", Address("::1", 80)),
        (":9000", Address("0.0.0.0", 9000)),
    ],
)
def test_valid_addresses_are_parsed(text: str, expected: Address) -> None:
    assert Address.parse(text) == expected


@pytest.mark.parametrize("text", ["", "8000", "host:", "host:65536", "::1:80", "http://a:1", "a b:1", "u@h:1", "h:1\n"])
def test_invalid_addresses_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="expected host:port"):
        Address.parse(text)


@pytest.mark.parametrize(("text", "shown"), [(":80", "127.0.0.1:80"), ("[::]:80", "[::1]:80"), ("h:1", "h:1")])
def test_wildcard_address_is_reached_over_loopback(text: str, shown: str) -> None:
    assert str(Address.parse(text).from_here) == shown


def test_secret_key_file_loses_its_last_newline(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("correct horse battery\n")
    assert read_settings({"secret_key_file": tmp_path / "key"}).signing_keys() == (b"correct horse battery",)


def test_secret_key_variable_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_GATEWAY_SECRET_KEY", "correct horse battery")
    settings = read_settings({})
    assert settings.signing_keys() == (b"correct horse battery",)
    assert "correct horse battery" not in repr(settings)


@pytest.mark.parametrize(
    ("content", "key", "message"),
    [
        (None, None, "MCP_GATEWAY_SECRET_KEY_FILE: cannot read"),
        ("", None, "is empty"),
        ("x", "y", "cannot be set together with"),
    ],
)
def test_invalid_secret_key_is_rejected(tmp_path: Path, content: str | None, key: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / "key").write_text(content)
    settings = read_settings({"secret_key_file": tmp_path / "key"} | ({"secret_key": key} if key else {}))
    with pytest.raises(ConfigError, match=message):
        settings.signing_keys()
