"""The static files of the page, read once at startup.

Threat handled here: paths outside the directory. Only the names that were read can be requested.
"""

import hashlib
from collections.abc import Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import PurePosixPath
from typing import Final

import msgspec
from aiohttp import web

from gateway.console.security_headers import OF_PAGE
from gateway.wire.revisions import LATEST_MODERN

INDEX: Final = "index.html"
_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
"""Media types by suffix. `mimetypes` depends on the machine."""
_REVISION: Final = b"@LATEST_MODERN@"


class StaticFile(msgspec.Struct, frozen=True, kw_only=True):
    content: bytes
    media_type: str
    etag: str

    def response(self, raw: web.Request, headers: Mapping[str, str], *, status: int = 200) -> web.Response:
        """Return the file, or 304 if the browser has it."""
        fields = {**headers, **OF_PAGE, "ETag": f'"{self.etag}"'}
        # RFC 9110 §13.1.2.
        known = raw.if_none_match or ()
        if status == 200 and any(each.value in {self.etag, "*"} for each in known):
            return web.Response(status=304, headers=fields)
        response = web.Response(
            body=self.content,
            status=status,
            headers={**fields, "Content-Type": self.media_type, "Vary": "Accept-Encoding"},
        )
        response.enable_compression()
        return response


def read_static_files() -> Mapping[str, StaticFile]:
    return dict(_below(files("gateway.console") / "static", PurePosixPath()))


def _below(directory: Traversable, path: PurePosixPath) -> Iterator[tuple[str, StaticFile]]:
    for each in directory.iterdir():
        where = path / each.name
        if each.is_dir():
            yield from _below(each, where)
            continue
        content = each.read_bytes()
        if where.suffix == ".js":
            content = content.replace(_REVISION, LATEST_MODERN.encode())
        yield (
            str(where),
            StaticFile(
                content=content,
                media_type=_TYPES.get(where.suffix, "application/octet-stream"),
                # Half of the digest is enough to distinguish versions (RFC 9110 §8.8.3).
                etag=hashlib.sha256(content).hexdigest()[:32],
            ),
        )
