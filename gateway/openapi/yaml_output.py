"""Writes definitions as readable YAML: mappings and lists of scalars on one line, long texts as blocks."""

from collections.abc import Mapping
from typing import Final

import yaml

from gateway.config.core_schema import scalar
from gateway.control_characters import visible
from gateway.json_types import Json

_WIDTH: Final = 110


def as_yaml(value: Mapping[str, Json]) -> str:
    """Return YAML 1.2 that the configuration reads as the same value. `${` is escaped."""
    text = yaml.dump(
        _escaped(value), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_WIDTH, default_flow_style=None
    )
    # YAML allows characters that reorder text. `_text` has quoted such texts, so escapes work here.
    return visible(text, has_lines=True)


def _escaped(value: Json) -> Json:
    if isinstance(value, str):
        return value.replace("${", "$${")
    if isinstance(value, list):
        return [_escaped(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _escaped(member) for key, member in value.items()}
    return value


class _Dumper(yaml.SafeDumper):
    """Writes repeated values in full, because anchors and aliases are harder to read."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - the base class's method
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None
    if visible(text, has_lines=True) != text:
        style = '"'
    # White space at the end of a line is invisible in a block, and editors remove it.
    elif "\n" in text and not any(line != line.rstrip() for line in text.split("\n")) and text.isprintable() is False:
        style = "|"
    elif not _reads_as_itself(text):
        style = '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _reads_as_itself(text: str) -> bool:
    """Return whether unquoted text is a string in YAML 1.2. PyYAML implements 1.1."""
    try:
        return scalar(text) == text
    except ValueError:
        return False


_Dumper.add_representer(str, _text)
_Dumper.add_representer(dict, lambda dumper, data: dumper.represent_dict(data.items()))
