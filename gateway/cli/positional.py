"""Parses positional arguments: CONFIG, and arguments of a tool as key=value."""

from collections.abc import Iterable, Sequence
from typing import Final

import orjson

from gateway import exact_json
from gateway.cli.given_input import given_text
from gateway.config.machine_facts import is_directory
from gateway.errors import ConfigError
from gateway.json_types import Json

EXPECTED: Final = "expected key=text, key:=json or key@=file"


def split_config(words: Sequence[str], *, url: str | None, needs_name: bool = False) -> tuple[str | None, list[str]]:
    """Return CONFIG and the remaining words. CONFIG is None if there is a `url`, or if the first word is not a path.

    A directory is CONFIG, unless `needs_name` is set and no other word can be the name.
    """
    if url is not None or not words:
        return None, list(words)
    is_name = needs_name and (len(words) == 1 or "=" in words[1])
    if _is_path(words[0]) or (is_directory(words[0]) and not is_name):
        return words[0], list(words[1:])
    return None, list(words)


def name_and_pairs(words: list[str], what: str) -> list[str]:
    """Return the words. The first is the name of the tool or prompt.

    Raises:
        ConfigError: there are no words, or the name is not valid UTF-8.
    """
    if not words:
        raise ConfigError.at(what, "is missing")
    check_text(words[0])
    return words


def check_text(word: str) -> None:
    """Reject a word that JSON cannot contain (RFC 8259 §8.1).

    Raises:
        ConfigError: the word is not valid UTF-8.
    """
    try:
        word.encode()
    except UnicodeEncodeError as error:
        raise ConfigError.at(word, "is not valid UTF-8") from error


def _is_path(word: str) -> bool:
    # URIs contain slashes too.
    return "://" not in word and (word.endswith((".yaml", ".yml")) or "/" in word)


def arguments_of(pairs: Iterable[str], *, json: str | None = None) -> dict[str, Json]:
    """Return the arguments from `key=value` words, which override those of the JSON object.

    Raises:
        ConfigError: a word or the JSON is malformed, or a file cannot be read.
    """
    arguments = _object(json) if json is not None else {}
    files: dict[str, list[str]] = {}
    for key, value in map(_argument, pairs):
        arguments[key] = value
        if isinstance(value, str) and value.startswith("@"):  # several files with the same key are a list
            files.setdefault(key, []).append(value)
            arguments[key] = files[key] if len(files[key]) > 1 else value
    return arguments


def _argument(pair: str) -> tuple[str, Json]:
    key, separator, value = pair.partition("=")
    if not separator or key in {"", ":", "@"}:
        raise ConfigError.at(pair, EXPECTED)
    # A file name can contain any bytes; only its content is sent.
    check_text(key if key.endswith("@") or value.startswith("@") else pair)
    match key[-1]:
        case ":":
            return key[:-1], _json(value, where=pair)
        case "@":
            return key[:-1], given_text(value, where=pair)
        case _:
            return key, value


def _object(json: str) -> dict[str, Json]:
    value = _json(json, where="--json")
    if not isinstance(value, dict):
        raise ConfigError.at("--json", 'expected an object such as {"key": "value"}')
    return value


def _json(text: str, *, where: str) -> Json:
    try:
        return exact_json.loads(text)
    except orjson.JSONDecodeError as error:
        raise ConfigError.at(where, f"is not JSON: {error}") from error
