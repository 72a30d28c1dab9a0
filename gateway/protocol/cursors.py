"""Pagination cursors: opaque, signed, and bound to the list that they were made for.

MCP 2025-11-25 server/utilities/pagination: an invalid cursor should yield -32602. A cursor that outlived its list would
skip or repeat entries, so it carries the list's fingerprint.
"""

from typing import Final

from itsdangerous import BadData, URLSafeSerializer

from gateway.errors import ErrorCode, RpcError
from gateway.json_types import Json


class Cursors:
    def __init__(self, secret_key: bytes) -> None:
        self._serializer: Final = URLSafeSerializer(secret_key, salt="cursor")

    def issue(self, list_name: str, fingerprint: str, offset: int) -> str:
        return str(self._serializer.dumps([list_name, fingerprint, offset]))

    def redeem(self, cursor: Json, list_name: str, fingerprint: str) -> int:
        """The offset at which the page begins.

        Raises:
            RpcError: -32602, the cursor is not ours, belongs to another list, or the list has changed since.
        """
        try:
            content = self._serializer.loads(cursor) if isinstance(cursor, str) else None
        except BadData:
            content = None
        if not isinstance(content, list) or content[0] != list_name:
            raise RpcError(ErrorCode.INVALID_PARAMS, "Invalid cursor")
        if content[1] != fingerprint:
            raise RpcError(ErrorCode.INVALID_PARAMS, "Stale cursor: the list has changed; begin again without one")
        offset: int = content[2]
        if self.issue(list_name, fingerprint, offset) != cursor:  # the decoder is lenient about its base64
            raise RpcError(ErrorCode.INVALID_PARAMS, "Invalid cursor")
        return offset
