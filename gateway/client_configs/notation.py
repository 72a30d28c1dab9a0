"""Formats of configuration files: JSON with comments, TOML and YAML."""

import json
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import Final

import msgspec
import yaml

from gateway.config.reading.json_composer import compose_json
from gateway.config.reading.nodes import Diagnostic, Node, Place, plain
from gateway.config.reading.nodes import Mapping as MappingNode
from gateway.config.reading.source_file import LINE_BREAK, SourceFile
from gateway.json_types import Json


class NotEditableError(Exception):
    """The text is invalid or cannot be edited safely."""


class Notation(msgspec.Struct, frozen=True):
    name: str
    render: Callable[[Mapping[str, Json]], str]
    """Formats a document for pasting."""
    parse: Callable[[str], Json]
    """Reads a document. Empty text is an empty object. Raises NotEditableError."""
    put: Callable[[str, Sequence[str], Json], str]
    """Sets the value at a path of keys without changing other values or comments. Raises NotEditableError."""


def nested(path: Sequence[str], value: Json) -> dict[str, Json]:
    for key in reversed(path):
        value = {key: value}
    assert isinstance(value, dict)  # noqa: S101 - a path has a key
    return value


_INDENT: Final = "  "
_YAML_NULL: Final = "tag:yaml.org,2002:null"


def _render_json(document: Mapping[str, Json]) -> str:
    return json.dumps(document, indent=_INDENT, ensure_ascii=False) + "\n"


def _parse_json(text: str) -> Json:
    root, _ = _composed(text)
    return {} if root is None else plain(root)


def _put_json(text: str, path: Sequence[str], value: Json) -> str:
    node, duplicates = _composed(text)
    parents = {each.path[:-1] for each in duplicates}
    if any(tuple(path[:depth]) in parents for depth in range(len(path))):
        raise NotEditableError("it contains a duplicate key")
    if node is None:
        comments = f"{text.rstrip()}\n" if text.strip() else ""
        return comments + _render_json(nested(path, value))
    position = None
    for depth, key in enumerate(path):
        if not isinstance(node, MappingNode):
            raise NotEditableError("it contains a value of another type where an object is expected")
        if key not in node.entries:
            return _inserted(text, node, key, nested(path[depth:], value)[key])
        position, node = node.entries[key].place, node.entries[key].node
    indent = "" if position is None else _indentation(text, position)
    return text[: _index(text, node.place)] + _dumped(value, indent) + text[_index(text, node.end) :]


def _composed(text: str) -> tuple[Node | None, list[Diagnostic]]:
    root, diagnostics = compose_json(SourceFile(Path(), text))
    if root is None and diagnostics:
        error = diagnostics[0]
        line = f" (line {error.place.line})" if error.place is not None else ""
        raise NotEditableError(f"it cannot be read as JSON: {error.message.removeprefix('JSON syntax: ')}{line}")
    return root, diagnostics


def _inserted(text: str, node: MappingNode, key: str, value: Json) -> str:
    if node.entries:
        last = list(node.entries.values())[-1]
        indent, end = _indentation(text, last.place), _index(text, last.node.end)
        # Directly after the last value, so that a trailing comma stays at the end.
        return f"{text[:end]},\n{indent}{_entry(key, value, indent)}{text[end:]}"
    outer, start, end = _indentation(text, node.place), _index(text, node.place), _index(text, node.end) - 1
    return f"{text[: start + 1]}\n{outer}{_INDENT}{_entry(key, value, outer + _INDENT)}\n{outer}{text[end:]}"


def _entry(key: str, value: Json, indent: str) -> str:
    return f"{json.dumps(key, ensure_ascii=False)}: {_dumped(value, indent)}"


def _dumped(value: Json, indent: str) -> str:
    return json.dumps(value, indent=_INDENT, ensure_ascii=False).replace("\n", f"\n{indent}")


def _index(text: str, place: Place) -> int:
    return [0, *(found.end() for found in LINE_BREAK.finditer(text))][place.line - 1] + place.column - 1


def _indentation(text: str, place: Place) -> str:
    line = LINE_BREAK.split(text)[place.line - 1][: place.column - 1]
    return line[: len(line) - len(line.lstrip())]


_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
_HEADER: Final = re.compile(r"^[ \t]*\[.*$", re.MULTILINE)
_COMMENTS_AT_END: Final = re.compile(r"^[ \t]*#.*\n(?:[ \t]*(?:#.*)?\n)*\Z", re.MULTILINE)
"""Matches comments at the end of a table, which usually describe the next table."""


def _render_toml(document: Mapping[str, Json]) -> str:
    return "\n".join(_tables((), document))


def _parse_toml(text: str) -> Json:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise NotEditableError(f"it is not TOML: {error}") from error


def _put_toml(text: str, path: Sequence[str], value: Json) -> str:
    if not isinstance(value, dict):
        raise NotEditableError("only a table can be added")
    table = "\n".join(_tables(tuple(path), value))
    starts = [match.start() for match in _HEADER.finditer(text)]
    own = [(start, end) for start, end in pairwise([*starts, len(text)]) if _is_below(text, start, path)]
    # In reverse, so that earlier positions stay valid.
    for start, end in reversed(own):
        comments = _COMMENTS_AT_END.search(text[start:end])
        text = text[:start] + (comments[0] if comments else "") + text[end:]
    if own:
        at = own[0][0]
        return text[:at] + table + ("\n" if text[at:] else "") + text[at:]
    return f"{text.rstrip()}\n\n{table}" if text.strip() else table


def _is_below(text: str, start: int, path: Sequence[str]) -> bool:
    """Return whether the header at `start` belongs to the table at `path` or to a nested table."""
    header = text[start : text.find("\n", start) if "\n" in text[start:] else len(text)]
    try:
        found: Json = tomllib.loads(header)
    except tomllib.TOMLDecodeError:  # part of a multi-line value
        return False
    for key in path:
        if not isinstance(found, dict) or key not in found:
            return False
        found = found[key]
    return True


def _tables(path: tuple[str, ...], table: Mapping[str, Json]) -> list[str]:
    inner = {key: value for key, value in table.items() if isinstance(value, dict)}
    lines = [f"{_key(key)} = {_value(value)}\n" for key, value in table.items() if key not in inner]
    texts = [f"[{'.'.join(map(_key, path))}]\n{''.join(lines)}"] if lines or (path and not inner) else []
    for key, value in inner.items():
        texts += _tables((*path, key), value)
    return texts


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _string(key)


def _value(value: Json) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    return _string(value) if isinstance(value, str) else json.dumps(value)


def _string(text: str) -> str:
    """Quote a string. TOML has the escapes of JSON, but DEL must be escaped too."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _render_yaml(document: Mapping[str, Json]) -> str:
    text: str = yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True)
    return text


def _parse_yaml(text: str) -> Json:
    try:
        return yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise NotEditableError("it is not YAML") from error


def _put_yaml(text: str, path: Sequence[str], value: Json) -> str:
    _parse_yaml(text)  # raises an error if the text is not valid YAML
    if _has_comments(text):
        raise NotEditableError("it contains comments, which would be lost")
    # Edit nodes instead of values, because YAML 1.1 would change scalars such as `off`, `0123` and `1:30`.
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if root is None:
        return _render_yaml(nested(path, value))
    parent, (key, *below) = root, path
    while isinstance(parent, yaml.MappingNode):
        node = next((node for name, node in parent.value if name.value == key), None)
        if node is None or not below or node.tag == _YAML_NULL:
            rendered = yaml.compose(_render_yaml(nested((key, *below), value)), Loader=yaml.SafeLoader)
            assert isinstance(rendered, yaml.MappingNode)  # noqa: S101 - the YAML of a dict
            [entry] = rendered.value
            parent.value[:] = [entry if pair[0].value == key else pair for pair in parent.value]
            if node is None:
                parent.value.append(entry)
            edited: str = yaml.serialize(root, Dumper=yaml.SafeDumper, allow_unicode=True)
            return edited
        parent, (key, *below) = node, below
    raise NotEditableError("it contains a value of another type where a mapping is expected")


def _has_comments(text: str) -> bool:
    tokens = list(yaml.scan(text, Loader=yaml.SafeLoader))
    between = (text[one.end_mark.index : other.start_mark.index] for one, other in pairwise(tokens))
    # The token of a block scalar contains a comment after its indicator (YAML 1.2 §8.1.1).
    headers = (
        text[each.start_mark.index :].partition("\n")[0]
        for each in tokens
        if isinstance(each, yaml.ScalarToken) and each.style in {"|", ">"}
    )
    return any("#" in part for part in chain(between, headers))


JSON: Final = Notation("json", _render_json, _parse_json, _put_json)
"""JSON with comments and trailing commas (JSONC)."""
TOML: Final = Notation("toml", _render_toml, _parse_toml, _put_toml)
"""TOML. `put` can only set tables."""
YAML: Final = Notation("yaml", _render_yaml, _parse_yaml, _put_yaml)
"""YAML. `put` writes the whole document again, and refuses a document with comments."""
