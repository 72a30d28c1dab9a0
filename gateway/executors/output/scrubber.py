"""Takes out of a backend's answer what must not be passed on: secrets, and what only a terminal understands."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gateway.config.secrets import Redactor
from gateway.errors import ExecutionError
from gateway.executors.output.plain_text import clean
from gateway.json_types import Json, JsonObject

_BASE64: Final = frozenset({"data", "blob"})
"""Members of content blocks and of resource contents that are bytes."""

WITHHELD: Final = "This is not passed on: its bytes hold a secret of the operator's"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrubber:
    redactor: Redactor
    keeps_controls: bool = False
    """`raw: true`. Secrets are masked all the same."""

    def text(self, text: str) -> str:
        return self.redactor.text(text if self.keeps_controls else clean(text))

    def block(self, block: JsonObject) -> dict[str, Json]:
        """Return a content block in which every text is scrubbed; what is base64 stays.

        Raises:
            ExecutionError: the bytes hold a secret, which cannot be taken out of them.
        """
        return {
            name: self._bytes(member)
            if name in _BASE64
            else self.block(member)
            if name == "resource" and isinstance(member, Mapping)
            else self.json(member)
            for name, member in block.items()
        }

    def check_bytes(self, data: bytes) -> None:
        """Raises: ExecutionError: they hold a secret."""
        if self.redactor.is_in(data):
            raise ExecutionError(WITHHELD)

    def _bytes(self, encoded: Json) -> Json:
        if isinstance(encoded, str) and self.redactor.finds(encoded):
            raise ExecutionError(WITHHELD)
        return encoded

    def json(self, value: Json) -> Json:
        """Return a copy in which every text is scrubbed, the names of members too.

        Raises:
            ExecutionError: it is nested too deep to be walked.
        """
        try:
            return self.redactor.json(value if self.keeps_controls else _cleaned(value))
        except RecursionError as error:
            raise ExecutionError("The JSON is nested too deep") from error


def _cleaned(value: Json) -> Json:
    match value:
        case str():
            return clean(value)
        case list():
            return [_cleaned(item) for item in value]
        case dict():
            return {clean(name): _cleaned(member) for name, member in value.items()}
        case _:
            return value
