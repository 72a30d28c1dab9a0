"""Warns of files that no message can bring: a `max_size` beyond what `listen.max_body` admits."""

from typing import Final

from pydantic import ValidationError

from gateway.config.diagnostics.problems import Problems
from gateway.config.loader import LoadedConfig
from gateway.config.models.definitions import Tool
from gateway.config.models.file_inputs import FileInput
from gateway.json_types import Json, JsonObject
from gateway.language.files.decoding import size_in_words
from gateway.language.files.file_inputs import file_inputs_in

_ENVELOPE: Final = 1024
"""Bytes of a message around its file: method, name, metadata."""


def check_file_sizes(loaded: LoadedConfig, problems: Problems) -> None:
    """Warn of each input whose files may be larger than a message. A `Check` of the compiler."""
    max_body = loaded.document.listen.max_body
    most = (max_body - _ENVELOPE) * 3 // 4
    for name, tool in loaded.document.tools.items():
        for root, schema in _written(tool):
            for path, found in file_inputs_in(schema):
                size = _max_size(found)
                if size is not None and size > most:
                    problems.at("tools", name, *root, *path, "max_size").warning(
                        f"in base64 such a file is longer than a message may be: `listen.max_body` is "
                        f"{size_in_words(max_body)}, which admits files of {size_in_words(max(0, most))}"
                    )


def _written(tool: Tool) -> list[tuple[tuple[str, ...], JsonObject]]:
    if tool.input_schema is not None:
        return [(("input_schema",), tool.input_schema)]
    return [(("input", name), schema) for name, schema in (tool.input or {}).items() if isinstance(schema, dict)]


def _max_size(schema: JsonObject) -> int | None:
    value: Json = schema.get("max_size")
    try:
        return FileInput.model_validate({"max_size": value}).max_size
    except ValidationError:  # reported where it is compiled
        return None
