"""The sanitizer: strips control characters and masks secrets in what leaves the daemon.

Everything that a client is sent and that a backend, a plugin or a caller chose goes through here: results, contents,
prompts, completions, progress, log messages, input requests and errors. Control characters go first, so that none can
stand in the middle of a secret and hide it.
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
"""Members of content blocks and of resource contents that are bytes."""

REFUSED_BYTES: Final = "This is not passed on: its bytes hold a secret of the operator's"


class Sanitizer(msgspec.Struct, frozen=True, kw_only=True):
    redactor: Redactor
    keeps_controls: bool = False
    """For `raw: true` and files, which keep their control characters. Secrets are masked nevertheless."""
    keeps_documents: bool = False
    """Whether embedded resources keep them, such as the pages of another server."""

    def text(self, text: str) -> str:
        if not self.keeps_controls:
            return self.redactor.text(strip_control_characters(text))
        masked = self.redactor.text(text)
        # Where escapes stand within a secret, its parts cannot be covered and they kept.
        cleaned = strip_control_characters(masked)
        return self.redactor.text(cleaned) if cleaned != masked and self.redactor.finds(cleaned) else masked

    def head(self, text: str) -> str:
        """Sanitize a text whose end is missing: the beginning of a secret may remain where it was cut."""
        return self.redactor.before_gap(self.text(text))

    def tail(self, text: str) -> str:
        """Sanitize a text whose beginning is missing."""
        return self.redactor.after_gap(self.text(text))

    def block(self, block: JsonObject) -> dict[str, Json]:
        """Return a content block in which every text is sanitized; what is base64 stays.

        Raises:
            ExecutionError: the bytes hold a secret, which cannot be taken out of them.
        """
        return {
            name: self._bytes(member)
            if name in _BASE64
            else self._document.block(member)
            if name == "resource" and isinstance(member, Mapping)
            else self.json(member)
            for name, member in block.items()
        }

    @property
    def _document(self) -> "Sanitizer":
        return Sanitizer(redactor=self.redactor, keeps_controls=True) if self.keeps_documents else self

    def check_bytes(self, data: bytes) -> None:
        """Raises: ExecutionError: they hold a secret."""
        if self.redactor.is_in(data):
            raise ExecutionError(REFUSED_BYTES)

    def _bytes(self, encoded: Json) -> Json:
        if isinstance(encoded, str):
            # As written and as decoded: a secret may be base64 itself.
            self.check_bytes(encoded.encode(errors="surrogatepass"))
            with suppress(ValueError):  # it is not base64, and means no other bytes
                self.check_bytes(binascii.a2b_base64(encoded))
        return encoded

    def json(self, value: Json) -> Json:
        """Return a copy in which every text is sanitized, the names of members too.

        Raises:
            ExecutionError: it is nested too deep to be walked.
        """
        try:
            return self.redactor.json(_each_text(value, self.text if self.keeps_controls else strip_control_characters))
        except RecursionError as error:
            raise ExecutionError("The JSON is nested too deep") from error


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
