"""Response headers of the page, its files and its API.

Threats handled here, and only here: injected scripts and styles, framing, content type sniffing, cross-origin use of
our files or window, and tokens in the Referer.
"""

from collections.abc import Mapping
from typing import Final

# blob: is used for images and audio in results.
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
    # Revalidated by ETag, because a newer daemon has other files with the same names.
    "Cache-Control": "no-cache",
}
OF_API: Final = {
    **_EVERYWHERE,
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
}


def without_cors(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if not name.startswith("Access-Control-")}
