"""The settings of the process: flags and MCP_GATEWAY_… variables. The file's content is `Document`.

The order is flag, variable, file, default: a field that the file may answer too is None here when it was not given.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final, Literal
from urllib.parse import parse_qs, unquote

from pydantic import BeforeValidator, SecretStr, ValidationError, ValidatorFunctionWrapHandler, WrapValidator
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from gateway.config.cpu_quota import usable_processors
from gateway.config.models.address import Address
from gateway.config.models.auth import SCOPE
from gateway.config.models.quantities import Duration
from gateway.errors import ConfigError, Problem
from gateway.json_types import Json

PREFIX: Final = "MCP_GATEWAY_"
"""The beginning of the environment variables."""

TOKEN_VARIABLE: Final = PREFIX + "TOKEN"
"""The variable with the API key or access token of a client. No flag, because other users see arguments (ps(1))."""

MIN_KEY_LENGTH: Final = 16
"""Bytes of a signing key that clients, who hold what it signed and may try at home, do not find."""

_MAX_WORKERS: Final = 512

NO_STATE: Final = "none"
"""The value of `state_dir` that turns the state directory off."""


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
    """Take `30` from a flag or variable, where all is text, as the file takes the number 30."""
    return parse(float(value) if isinstance(value, str) and value.replace(".", "", 1).isdigit() else value)


def _switch(value: Json) -> Json:
    if isinstance(value, str):
        if value.lower() not in _SWITCHES:
            raise ValueError("expected true or false")
        return _SWITCHES[value.lower()]
    return value


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


_SWITCHES: Final = {"true": True, "1": True, "yes": True, "on": True} | dict.fromkeys(
    ("false", "0", "no", "off"), False
)
Switch = Annotated[bool, BeforeValidator(_switch)]
Seconds = Annotated[Duration, WrapValidator(_bare_seconds)]
LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["json", "console"]


class Settings(BaseSettings):
    """The process's options."""

    # An empty variable is an unset one: unit and compose files write `NAME=` for "not given".
    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_ignore_empty=True, frozen=True, extra="forbid", arbitrary_types_allowed=True
    )

    config: Path = Path("config.yaml")
    """The file, or a directory that is read as all its files."""
    http: Annotated[Address | None, BeforeValidator(_address)] = None
    """Where to listen; None: as the file's `listen.http` says."""
    stdio: Switch = False
    """Speak MCP on standard input and output; over HTTP as well only if `http` is given too."""
    allow_anonymous: Switch = False
    """Listen beyond loopback without authentication."""
    scopes: Annotated[frozenset[str] | None, NoDecode, BeforeValidator(_scopes)] = None
    """Scopes of a stdio caller; None: all. The one field whose variable has a meaning when it is empty."""
    view: str | None = None
    """The view that a stdio caller is served; None: the whole."""
    no_watch: Switch = False
    """Reload on SIGHUP and request alone."""
    poll: Seconds = timedelta(seconds=30)
    """How often files are compared where no event comes; 0 never."""
    state_dir: str | None = None
    """The directory of what survives a restart; `none`: there is none; None: systemd's, or the user's."""
    store: SecretStr | None = None
    """The URL of the store that several replicas share; None: this process is the only one."""
    store_file: Path | None = None
    """A file that holds the URL."""
    workers: Annotated[int | None, BeforeValidator(_workers)] = 1
    """The number of processes that serve; None: as many as there are processors."""
    drain_timeout: Seconds = timedelta(seconds=10)
    """How long calls in flight may go on after a request to stop."""
    log_level: LogLevel = "info"
    log_format: LogFormat | None = None
    """None: console on a terminal, otherwise json."""
    secret_key: SecretStr | None = None
    """Signs cursors, request states and session ids: one key a line, newest first; None: the state directory's."""
    secret_key_file: Path | None = None
    """A file of such lines, which is read again when it changes."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - pydantic-settings hands over all five
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return what is read: a `.env` file never is, and to look for every field in none took as long as the rest."""
        return init_settings, env_settings

    @property
    def serves_http(self) -> bool:
        return not self.stdio or self.http is not None

    @property
    def worker_count(self) -> int:
        """The number of processes; for `auto`, of processors that this one may use."""
        return usable_processors() if self.workers is None else self.workers

    def signing_keys(self) -> tuple[bytes, ...]:
        """The secret keys, newest first, read from their file where they lie in one; empty when none were given.

        Raises:
            ConfigError: both are given, or the file cannot be read, or has no key.
        """
        if self.secret_key_file is None:
            return keys_in(self.secret_key.get_secret_value().encode()) if self.secret_key else ()
        return keys_in(self._in_file("secret_key", self.secret_key_file))

    def store_url(self) -> str | None:
        """The URL of the store, read from its file where it lies in one.

        Raises:
            ConfigError: both are given, or the file cannot be read, or is empty.
        """
        if self.store_file is None:
            return self.store.get_secret_value().strip() if self.store else None
        try:
            return self._in_file("store", self.store_file).decode()
        except UnicodeDecodeError as error:
            raise ConfigError.at(variable_of("store_file"), f"cannot read {self.store_file}: {error}") from error

    def _in_file(self, field: str, path: Path) -> bytes:
        """The value of a field that lies in a file, and so may not be given itself as well."""
        variable = variable_of(f"{field}_file")
        if getattr(self, field) is not None:
            raise ConfigError.at(variable, f"and {variable_of(field)} are given; only one can be")
        try:
            # Editors and `echo` end a file with a line break, which is no part of a secret.
            content = path.read_bytes().strip()
        except (OSError, ValueError) as error:
            raise ConfigError.at(variable, f"cannot read {path}: {getattr(error, 'strerror', error)}") from error
        if not content:
            raise ConfigError.at(variable, f"{path} is empty")
        return content


def keys_in(text: bytes) -> tuple[bytes, ...]:
    """The keys of a text that has one a line; space around them and empty lines do not count."""
    return tuple(filter(None, map(bytes.strip, text.splitlines())))


def variable_of(field: str) -> str:
    """The environment variable of a field of `Settings`."""
    return PREFIX + field.upper()


def flag_of(field: str) -> str:
    """The command-line flag of a field of `Settings`."""
    return "--" + field.replace("_", "-")


def read_settings(flags: Mapping[str, Json]) -> Settings:
    """Settings from the given flags, by field name, then the environment, then defaults.

    Raises:
        ConfigError: values that cannot be; each problem names the flag or the variable.
    """
    no_scopes = {"scopes": ""} if os.environ.get(variable_of("scopes")) == "" else {}  # unset would mean all of them
    try:
        return Settings(**{**no_scopes, **flags})
    except ValidationError as error:
        # `from None`: the text of a ValidationError quotes what was given, which may be a secret.
        raise ConfigError([_problem(detail, flags) for detail in error.errors(include_url=False)]) from None


def own_secrets(environ: Mapping[str, str]) -> Iterator[str]:
    """The process's own secrets, to be masked like those of the file. What cannot be read is reported elsewhere."""
    yield from environ.get(variable_of("secret_key"), "").split("\n")
    if path := environ.get(variable_of("secret_key_file")):
        with suppress(OSError, ValueError):
            yield from map(str.strip, Path(path).read_text(encoding="utf-8", errors="replace").splitlines())
    store = environ.get(variable_of("store"), "")
    if path := environ.get(variable_of("store_file")):
        with suppress(OSError, ValueError):
            store = Path(path).read_text(encoding="utf-8", errors="replace")
    yield from _passwords(store.strip())


def _passwords(url: str) -> Iterator[str]:
    """The URL of a store where it has a password, and the password as it is written there and as it is."""
    # The last `@` ends it: a password that nobody encoded may have others.
    password = url.partition("://")[2].partition("/")[0].rpartition("@")[0].partition(":")[2]
    if password:
        yield from (url, password, unquote(password))
    query = parse_qs(url.partition("?")[2])
    yield from query.get("sentinel_password", ())


def _problem(detail: Mapping[str, Json], flags: Mapping[str, Json]) -> Problem:
    field = str(detail["loc"][0])
    message = detail["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    # The message is printed and logged: what may be a secret is not quoted.
    given = "" if "secret" in field or "store" in field else f", not {detail['input']!r}"
    if not message.startswith("expected"):
        message = f"expected {message}"
    return Problem(message=message + given, path=flag_of(field) if field in flags else variable_of(field))
