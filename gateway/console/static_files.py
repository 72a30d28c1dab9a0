"""The static files of the console, which are read once at startup, and the security headers of the page and the API.

Threats handled here: paths outside the directory (clients can request only files that were read at startup), injected
scripts and styles, framing, content type sniffing, cross-origin use of files or windows, and tokens in the Referer.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
from aiohttp import web

from gateway.wire.revisions import LATEST_MODERN

# The page uses blob: URLs for images and audio in results.
PAGE_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data: blob:; "
    "media-src blob:; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)
_EVERYWHERE: Final = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
OF_PAGE: Final = {
    **_EVERYWHERE,
    "Content-Security-Policy": PAGE_POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    # Browsers must revalidate files by ETag, because a newer daemon has different files with the same names.
    "Cache-Control": "no-cache",
}
OF_API: Final = {
    **_EVERYWHERE,
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
}


def without_cors(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if not name.startswith("Access-Control-")}


INDEX: Final = "index.html"
_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
"""Media types by file suffix. The module `mimetypes` is not used, because its results depend on the machine."""
_REVISION: Final = b"@LATEST_MODERN@"


class StaticFile(msgspec.Struct, frozen=True, kw_only=True):
    content: bytes
    media_type: str
    etag: str

    def response(self, raw: web.Request, headers: Mapping[str, str], *, status: int = 200) -> web.Response:
        """Return the file, or 304 if the browser already has this version of the file."""
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
    root = Path(__file__).with_name("static")
    return {path.relative_to(root).as_posix(): _read(path) for path in root.rglob("*") if path.is_file()}


def _read(path: Path) -> StaticFile:
    content = path.read_bytes()
    if path.suffix == ".js":
        content = content.replace(_REVISION, LATEST_MODERN.encode())
    return StaticFile(
        content=content,
        media_type=_TYPES.get(path.suffix, "application/octet-stream"),
        # Half of the digest is enough to distinguish versions (RFC 9110 §8.8.3).
        etag=hashlib.sha256(content).hexdigest()[:32],
    )
