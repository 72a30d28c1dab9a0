"""Converts outcomes to resource contents: text if the data is UTF-8, otherwise a blob."""

import base64
from collections.abc import Sequence

import msgspec

from gateway.errors import ExecutionError
from gateway.executors.invocation import Blocks, Failure, Outcome, RawOutput, Relayed, Value
from gateway.executors.output.media_types import JSON, OCTETS, PLAIN_TEXT, declared_encoding, decoded, media_kind
from gateway.executors.output.sanitizer import Sanitizer
from gateway.json_types import Json, JsonObject
from gateway.language.files.media_types import essence, media_type_of
from gateway.language.templates.render_state import json_of


class ContentsShaper(msgspec.Struct, frozen=True, kw_only=True):
    mime_type: str | None
    max_size: int
    sanitizer: Sanitizer

    def contents(self, outcome: Outcome, uri: str) -> Sequence[JsonObject]:
        """Return `ReadResourceResult.contents`.

        Raises:
            ExecutionError: the outcome is a failure or too large.
        """
        match outcome:
            case Failure(text=text):
                raise ExecutionError(self.sanitizer.text(text))
            case Blocks(content=content):
                return [item for block in content for item in self._of_block(block, uri)]
            case Relayed(content=contents):
                return [self._embedded(item) for item in contents]
            case Value(value=value):
                return [self._of_value(value, uri)]
            case RawOutput():
                return [self._of_bytes(outcome, uri)]

    def _embedded(self, contents: JsonObject) -> JsonObject:
        text, blob = (value if isinstance(value := contents.get(name), str) else "" for name in ("text", "blob"))
        # RFC 4648 §4: four characters encode three bytes.
        self._check_size(len(text.encode(errors="replace")) + len(blob) * 3 // 4)
        sanitized: JsonObject = self.sanitizer.block({"type": "resource", "resource": contents})["resource"]
        return sanitized

    def _of_bytes(self, output: RawOutput, uri: str) -> JsonObject:
        self._check_size(len(output.data) + output.omitted)
        # Remove the query, which could end like a file suffix.
        named = self.mime_type or output.media_type or media_type_of(uri.partition("?")[0])
        if not output.is_blob:
            if media_kind(named or "") in {"text", "json"} and declared_encoding(output.data, named) is not None:
                return self._text(decoded(output.data, named), essence(named), uri)
            try:
                return self._text(output.data.decode(), named or PLAIN_TEXT, uri)
            # Content with a text type that is not UTF-8 is sent as a blob.
            except UnicodeDecodeError:
                pass
        self.sanitizer.check_bytes(output.data)
        return {"uri": uri, "mimeType": named or OCTETS, "blob": base64.b64encode(output.data).decode("ascii")}

    def _of_value(self, value: Json, uri: str) -> JsonObject:
        text, kind = (value, PLAIN_TEXT) if isinstance(value, str) else (json_of(value), JSON)
        self._check_size(len(text.encode(errors="replace")))
        return self._text(text, self.mime_type or kind, uri)

    def _of_block(self, block: JsonObject, uri: str) -> Sequence[JsonObject]:
        match block:
            case {"type": "text", "text": str(text)}:
                return [self._of_value(text, uri)]
            case {"type": "image" | "audio", "data": str(data), "mimeType": str(kind)}:
                # RFC 4648 §4: four characters encode three bytes.
                self._check_size(len(data) * 3 // 4)
                return [self.sanitizer.block({"uri": uri, "mimeType": self.mime_type or kind, "blob": data})]
            case {"type": "resource", "resource": {"text": str()} | {"blob": str()} as resource}:
                return [self._embedded(resource)]
            case _:  # a resource link
                return []

    def _text(self, text: str, mime_type: str, uri: str) -> JsonObject:
        return {"uri": uri, "mimeType": mime_type, "text": self.sanitizer.text(text)}

    def _check_size(self, size: int) -> None:
        if size > self.max_size:
            raise ExecutionError(f"The resource has {size} bytes, but its `max_size` is {self.max_size}")
