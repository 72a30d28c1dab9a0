"""Removes control characters and masks secrets in everything that clients receive from backends, plugins and callers.

Control characters are removed first, so that they cannot hide a secret.
"""

import binascii
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

import msgspec

from gateway.config.secrets.redactor import Redactor
from gateway.control_characters import strip_control_characters
from gateway.errors import ExecutionError
from gateway.json_types import Json, JsonObject

_BASE64: Final = frozenset({"data", "blob"})
"""Members of content blocks and resource contents that contain base64."""


class Sanitizer(msgspec.Struct, frozen=True, kw_only=True):
    redactor: Redactor
    keeps_controls: bool = False
    """Whether control characters are kept, as in files and with `raw: true`. Secrets are still masked."""
    keeps_documents: bool = False
    """Whether embedded resources, such as HTML from an upstream server, keep their control characters."""

    def text(self, text: str) -> str:
        if not self.keeps_controls:
            return self.redactor.text(strip_control_characters(text))
        masked = self.redactor.text(text)
        # Mask before and after the removal of control characters, because a secret can contain control characters.
        cleaned = strip_control_characters(masked)
        return self.redactor.text(cleaned) if cleaned != masked and self.redactor.finds(cleaned) else masked

    def head(self, text: str) -> str:
        """Sanitize a string whose end was cut off. Remove the last characters, which can be part of a secret."""
        return self.redactor.before_gap(self.text(text))

    def tail(self, text: str) -> str:
        """Sanitize a string whose start was cut off. Remove the first characters, which can be part of a secret."""
        return self.redactor.after_gap(self.text(text))

    def block(self, block: JsonObject) -> dict[str, Json]:
        """Return a copy of a content block with sanitized strings.

        Raises:
            ExecutionError: base64 content contains a secret.
        """
        document = Sanitizer(redactor=self.redactor, keeps_controls=True) if self.keeps_documents else self
        return {
            name: self._bytes(member)
            if name in _BASE64
            else document.block(member)
            if name == "resource" and isinstance(member, Mapping)
            else self.json(member)
            for name, member in block.items()
        }

    def check_bytes(self, data: bytes) -> None:
        """Raise `ExecutionError` if the bytes contain a secret."""
        if self.redactor.is_in(data):
            raise ExecutionError(
                "The content is not passed on, because its bytes contain a secret of the configuration"
            )

    def _bytes(self, encoded: Json) -> Json:
        if isinstance(encoded, str):
            # The encoded form is checked too, because a secret can be base64.
            self.check_bytes(encoded.encode(errors="surrogatepass"))
            with suppress(ValueError):  # not base64
                self.check_bytes(binascii.a2b_base64(encoded))
        return encoded

    def json(self, value: Json) -> Json:
        """Return a copy of a JSON value with sanitized strings and member names.

        Raises:
            ExecutionError: the value is nested too deeply.
        """
        try:
            return self.redactor.json(_each_text(value, self.text if self.keeps_controls else strip_control_characters))
        except RecursionError as error:
            raise ExecutionError("The JSON is nested too deeply") from error


def _each_text(value: Json, change: Callable[[str], str]) -> Json:
    match value:
        case str():
            return change(value)
        case list() | tuple():
            return [_each_text(item, change) for item in value]
        case Mapping():
            return {
                change(name) if isinstance(name, str) else name: _each_text(member, change)
                for name, member in value.items()
            }
        case _:
            return value
