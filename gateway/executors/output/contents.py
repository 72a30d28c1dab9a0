"""What a backend answered becomes a resource's contents: text if it is UTF-8, and a blob otherwise."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass

from gateway.config.secrets import Redactor
from gateway.errors import ExecutionError
from gateway.executors.invocation import Blocks, Failure, Outcome, RawOutput, Value
from gateway.executors.output.media_kinds import JSON, OCTETS, PLAIN_TEXT
from gateway.executors.output.media_types import media_type_of
from gateway.executors.output.scrubber import WITHHELD
from gateway.executors.templates.frame import json_of
from gateway.json_types import Json, JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentsShaper:
    """A resource's compiled way of answering. Secrets are masked; all else is passed on as it is."""

    mime_type: str | None
    max_size: int
    redactor: Redactor

    def contents(self, outcome: Outcome, *, uri: str) -> Sequence[JsonObject]:
        """`ReadResourceResult.contents`.

        Raises:
            ExecutionError: the outcome is a failure, or too large.
        """
        match outcome:
            case Failure(text=text):
                raise ExecutionError(self.redactor.text(text))
            case Blocks(content=content):
                return [item for block in content for item in self._of_block(block, uri)]
            case Value(value=value):
                return [self._of_value(value, uri)]
            case RawOutput():
                return [self._of_bytes(outcome, uri)]

    def _of_bytes(self, output: RawOutput, uri: str) -> JsonObject:
        self._check_size(len(output.data) + output.omitted)
        named = self.mime_type or output.media_type or media_type_of(uri.partition("?")[0])
        if not output.is_blob:
            try:
                return self._text(output.data.decode(), named or PLAIN_TEXT, uri)
            except UnicodeDecodeError:
                pass
        self._check_bytes(output.data)
        return {"uri": uri, "mimeType": named or OCTETS, "blob": base64.b64encode(output.data).decode("ascii")}

    def _of_value(self, value: Json, uri: str) -> JsonObject:
        text, kind = (value, PLAIN_TEXT) if isinstance(value, str) else (json_of(value), JSON)
        self._check_size(len(text.encode(errors="replace")))
        return self._text(text, self.mime_type or kind, uri)

    def _of_block(self, block: JsonObject, uri: str) -> Sequence[JsonObject]:
        """What a plugin gave as content blocks: a link is no contents."""
        match block:
            case {"type": "text", "text": str(text)}:
                return [self._of_value(text, uri)]
            case {"type": "image" | "audio", "data": str(data), "mimeType": str(kind)}:
                self._check_size(len(data) * 3 // 4)
                self._check_bytes(data.encode())
                return [{"uri": uri, "mimeType": self.mime_type or kind, "blob": data}]
            case {"type": "resource", "resource": {"text": str(text)} as resource}:
                self._check_size(len(text.encode(errors="replace")))
                return [self.redactor.json(resource)]
            case {"type": "resource", "resource": {"blob": str(blob)} as resource}:
                self._check_size(len(blob) * 3 // 4)
                self._check_bytes(blob.encode())
                return [resource]
            case _:
                return []

    def _text(self, text: str, mime_type: str, uri: str) -> JsonObject:
        return {"uri": uri, "mimeType": mime_type, "text": self.redactor.text(text)}

    def _check_bytes(self, data: bytes) -> None:
        if self.redactor.is_in(data):
            raise ExecutionError(WITHHELD)

    def _check_size(self, size: int) -> None:
        if size > self.max_size:
            raise ExecutionError(f"The resource is too large: {size} bytes, and its `max_size` is {self.max_size}")
