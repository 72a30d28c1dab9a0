"""Pagination cursors: opaque, signed, and bound to the list that they were made for.

MCP 2025-11-25 server/utilities/pagination: an invalid cursor should yield -32602. A cursor that outlived its list would
skip or repeat entries, so it carries the list's fingerprint.
"""

from typing import Final

from itsdangerous import BadData, URLSafeSerializer

from gateway.errors import ErrorCode, RpcError
from gateway.json_types import Json
from gateway.state.keys import FromKeys, SigningKeys


class Cursors:
    def __init__(self, keys: SigningKeys) -> None:
        self._serializers: Final = FromKeys(
            keys, lambda newest_first: [URLSafeSerializer(key, salt="cursor") for key in newest_first]
        )

    def issue(self, list_name: str, fingerprint: str, offset: int) -> str:
        return str(self._serializers()[0].dumps([list_name, fingerprint, offset]))

    def redeem(self, cursor: Json, list_name: str, fingerprint: str) -> int:
        """The offset at which the page begins.

        Raises:
            RpcError: -32602, the cursor is not ours, belongs to another list, or the list has changed since.
        """
        content = self._content(cursor) if isinstance(cursor, str) else None
        if not isinstance(content, list) or content[0] != list_name:
            raise RpcError(ErrorCode.INVALID_PARAMS, "Invalid cursor")
        if content[1] != fingerprint:
            raise RpcError(ErrorCode.INVALID_PARAMS, "Stale cursor: the list has changed; begin again without one")
        offset: int = content[2]
        return offset

    def _content(self, cursor: str) -> Json:
        """Content that one of the keys signed, to the byte: the decoder is lenient about its base64."""
        for serializer in self._serializers():
            try:
                content = serializer.loads(cursor)
            except BadData:
                continue
            return content if serializer.dumps(content) == cursor else None
        return None
