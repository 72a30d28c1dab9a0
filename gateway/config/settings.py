"""Settings of the process: flags and MCP_GATEWAY_* environment variables.

Flags take precedence over environment variables, then the configuration file, then defaults. A field that the file can
also set is None unless a flag or variable sets it.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final, Literal
from urllib.parse import parse_qs, unquote

from pydantic import BeforeValidator, SecretStr, ValidationError, ValidatorFunctionWrapHandler, WrapValidator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from gateway.config.machine_facts import usable_processors
from gateway.config.models.address import Address
from gateway.config.models.base import SCOPE
from gateway.config.models.quantities import Duration
from gateway.errors import ConfigError, Problem
from gateway.json_types import Json

PREFIX: Final = "MCP_GATEWAY_"

TOKEN_VARIABLE: Final = PREFIX + "TOKEN"
"""Environment variable with a client's API key or access token. Other users could see the value of a flag."""

MIN_KEY_LENGTH: Final = 16
"""Minimum bytes of a secret key. Clients know signed values, and could find a shorter key by brute force."""

_MAX_WORKERS: Final = 512

NO_STATE: Final = "none"
"""Value of `state_dir` that disables the state directory."""


def _address(value: Json) -> Json:
    return Address.parse(value) if isinstance(value, str) else value


def _scopes(value: Json) -> Json:
    if not isinstance(value, str):
        return value
    scopes = frozenset(filter(None, (scope.strip() for scope in value.split(","))))
    if not all(map(SCOPE.fullmatch, scopes)):
        raise ValueError("expected scopes such as ops.read,ops.write")
    return scopes


def _bare_seconds(value: Json, parse: ValidatorFunctionWrapHandler) -> Json:
    """Parse a string without a unit, such as `30`, as a number of seconds."""
    return parse(float(value) if isinstance(value, str) and value.replace(".", "", 1).isdigit() else value)


def _workers(value: Json) -> Json:
    if value == "auto":
        return None
    try:
        count = int(value)
    except (TypeError, ValueError):
        count = 0
    if not 1 <= count <= _MAX_WORKERS:
        raise ValueError(f"expected a number from 1 to {_MAX_WORKERS}, or auto")
    return count


Seconds = Annotated[Duration, WrapValidator(_bare_seconds)]
LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["json", "console"]


class Settings(BaseSettings):
    # systemd unit files and compose files write `NAME=` for variables that are not set.
    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_ignore_empty=True, frozen=True, extra="forbid", arbitrary_types_allowed=True
    )

    config: Path = Path("config.yaml")
    """The configuration file, or a directory that contains the files."""
    http: Annotated[Address | None, BeforeValidator(_address)] = None
    """Address to listen on. Default: `listen.http` in the file."""
    stdio: bool = False
    """Serve standard input and output. HTTP is then served only if `http` is set too."""
    allow_anonymous: bool = False
    """Allow listening on addresses other than loopback without authentication."""
    scopes: Annotated[frozenset[str] | None, NoDecode, BeforeValidator(_scopes)] = None
    """Scopes of the stdio caller. Default: all scopes. An empty environment variable grants no scopes."""
    view: str | None = None
    """View for the stdio caller. Default: everything."""
    no_watch: bool = False
    """Reload only on SIGHUP or request."""
    poll: Seconds = timedelta(seconds=30)
    """Interval for comparing files while no file events arrive. 0 disables the comparison."""
    state_dir: str | None = None
    """Directory for persistent state, or `none`. Default: the state directory of systemd or of the user."""
    store: SecretStr | None = None
    """URL of the store that replicas share. Default: no store."""
    store_file: Path | None = None
    workers: Annotated[int | None, BeforeValidator(_workers)] = 1
    """Number of worker processes. None means one for each usable processor."""
    drain_timeout: Seconds = timedelta(seconds=10)
    """Time limit for running calls at shutdown."""
    log_level: LogLevel = "info"
    log_format: LogFormat | None = None
    """Format of log lines. Default: console on a terminal, otherwise json."""
    secret_key: SecretStr | None = None
    """Keys for cursors, request states and session ids, newest first. Default: a key in the state directory."""
    secret_key_file: Path | None = None
    """File with the secret keys. It is read again when it changes."""

    @property
    def serves_http(self) -> bool:
        return not self.stdio or self.http is not None

    @property
    def worker_count(self) -> int:
        return usable_processors() if self.workers is None else self.workers

    def signing_keys(self) -> tuple[bytes, ...]:
        """Return the secret keys, newest first.

        Raises:
            ConfigError: `secret_key` and its file are both set, or the file is unreadable or empty.
        """
        return keys_in(self._secret("secret_key"))

    def store_url(self) -> str | None:
        """Return the URL of the store, or None if no store is set.

        Raises:
            ConfigError: `store` and `store_file` are both set, or the file is unreadable or empty.
        """
        try:
            return self._secret("store").decode() or None
        except UnicodeDecodeError as error:
            raise ConfigError.at(variable_of("store_file"), f"cannot read {self.store_file}: {error}") from error

    def _secret(self, field: str) -> bytes:
        """Return the value of a field, or the content of the file in its `_file` field, or b"" if neither is set."""
        value: SecretStr | None = getattr(self, field)
        path: Path | None = getattr(self, f"{field}_file")
        if path is None:
            return b"" if value is None else value.get_secret_value().strip().encode()
        variable = variable_of(f"{field}_file")
        if value is not None:
            raise ConfigError.at(variable, f"cannot be set together with {variable_of(field)}. Set only one of them")
        try:
            # Editors and `echo` add a line break.
            content = path.read_bytes().strip()
        except (OSError, ValueError) as error:
            raise ConfigError.at(variable, f"cannot read {path}: {getattr(error, 'strerror', error)}") from error
        if not content:
            raise ConfigError.at(variable, f"{path} is empty")
        return content


def keys_in(text: bytes) -> tuple[bytes, ...]:
    """Split text into one key per line, ignoring surrounding whitespace and empty lines."""
    return tuple(filter(None, map(bytes.strip, text.splitlines())))


def variable_of(field: str) -> str:
    return PREFIX + field.upper()


def flag_of(field: str) -> str:
    return "--" + field.replace("_", "-")


def read_settings(flags: Mapping[str, Json]) -> Settings:
    """Read the settings from flags, by field name, and from environment variables.

    Raises:
        ConfigError: a value is invalid. Each problem names the flag or variable.
    """
    # Ignoring an empty MCP_GATEWAY_SCOPES would grant all scopes.
    no_scopes = {"scopes": ""} if os.environ.get(variable_of("scopes")) == "" else {}
    try:
        return Settings(**{**no_scopes, **flags})
    except ValidationError as error:
        # The ValidationError quotes the value, which can be a secret.
        raise ConfigError([_problem(detail, flags) for detail in error.errors(include_url=False)]) from None


def own_secrets(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the secrets in MCP_GATEWAY_* variables and in the files that the variables name. Skip unreadable files."""
    for field in ("secret_key", "store"):
        texts = [environ.get(variable_of(field), "")]
        if path := environ.get(variable_of(f"{field}_file")):
            with suppress(OSError, ValueError):
                texts.append(Path(path).read_text(encoding="utf-8", errors="replace"))
        for text in texts:
            yield from map(str.strip, text.splitlines()) if field == "secret_key" else _passwords(text.strip())


def _passwords(url: str) -> Iterator[str]:
    """If a store's URL has a password, yield the URL, and the password with and without percent-encoding."""
    # A password can contain `@`, so the password ends at the last `@`.
    password = url.partition("://")[2].partition("/")[0].rpartition("@")[0].partition(":")[2]
    if password:
        yield from (url, password, unquote(password))
    query = parse_qs(url.partition("?")[2])
    yield from query.get("sentinel_password", ())


def _problem(detail: Mapping[str, Json], flags: Mapping[str, Json]) -> Problem:
    field = str(detail["loc"][0])
    message = detail["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    if detail["type"] == "bool_parsing":
        message = "expected true or false"
    # The message is printed and logged, so possible secrets are not quoted.
    given = "" if "secret" in field or "store" in field else f", not {detail['input']!r}"
    if not message.startswith("expected"):
        message = f"expected {message}"
    return Problem(message=message + given, path=flag_of(field) if field in flags else variable_of(field))
