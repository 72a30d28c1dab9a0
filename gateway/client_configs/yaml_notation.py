"""YAML in block style."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Final

import yaml

from gateway.client_configs.notation import NotEditableError, nested
from gateway.json_types import Json


class YamlNotation:
    """Implements `Notation`."""

    name: Final = "yaml"

    def render(self, document: Mapping[str, Json]) -> str:
        text: str = yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True)
        return text

    def parse(self, text: str) -> Json:
        try:
            return yaml.safe_load(text) or {}
        except yaml.YAMLError as error:
            raise NotEditableError("it is not YAML") from error

    def put(self, text: str, path: Sequence[str], value: Json) -> str:
        # Raises an error that explains why the text is not YAML.
        self.parse(text)
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        for depth, key in enumerate(path):
            if node is None:
                return _with_end_of_line(text) + self.render(nested(path[depth:], value))
            if not isinstance(node, yaml.MappingNode) or node.flow_style:
                raise NotEditableError("a mapping in it is not written in block style")
            pair = next((pair for pair in node.value if pair[0].value == key), None)
            if pair is None:
                return self._appended(text, node, nested(path[depth:], value))
            if depth == len(path) - 1:
                start, column = pair[0].start_mark.index, pair[0].start_mark.column
                end = _end_of(text, pair[1])
                # The first line is already indented.
                return text[:start] + self._block({key: value}, column).lstrip(" ") + text[end:]
            if isinstance(pair[1], yaml.ScalarNode) and not pair[1].value:  # `extensions:` with nothing below it
                start, column = pair[0].start_mark.index, pair[0].start_mark.column
                end = _end_of(text, pair[1])
                block = self._block({key: nested(path[depth + 1 :], value)}, column)
                return text[:start] + block.lstrip(" ") + text[end:]
            node = pair[1]
        raise NotEditableError("there is nothing to be put into it")

    def _appended(self, text: str, node: yaml.MappingNode, entry: Mapping[str, Json]) -> str:
        """Append an entry to a mapping."""
        if not node.value:
            raise NotEditableError("a mapping in it is not written in block style")
        column = node.value[0][0].start_mark.column
        end = _end_of(text, node.value[-1][1])
        return _with_end_of_line(text[:end]) + self._block(entry, column) + text[end:]

    def _block(self, entry: Mapping[str, Json], column: int) -> str:
        return textwrap.indent(self.render(entry), " " * column)  # which leaves empty lines as they are


def _end_of(text: str, node: yaml.Node) -> int:
    """Return the position after the last line of a node, before following comments and empty lines."""
    if isinstance(node, yaml.MappingNode | yaml.SequenceNode) and node.value and not node.flow_style:
        last = node.value[-1]
        return _end_of(text, last[1] if isinstance(node, yaml.MappingNode) else last)
    end = int(node.end_mark.index)
    if end and text[end - 1] == "\n":  # a block scalar, which ends with its line
        return end
    line = text.find("\n", end)
    return len(text) if line < 0 else line + 1


def _with_end_of_line(text: str) -> str:
    return text if not text or text.endswith("\n") else text + "\n"
