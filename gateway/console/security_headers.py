"""Header fields of the page, its files and its API: what a browser may do with them.

Threats answered here, and only here: a script or style that got into the page (only files of ours run), a frame around
the page, an answer that is taken for another type, a page elsewhere that loads our files or keeps a hold on our window,
and a URL with a token that travels on as Referer.
"""

from collections.abc import Mapping
from typing import Final

# blob: is for images and sounds in results, which the page makes of their base64.
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
    # Asked for each time, by its ETag: a newer daemon has other files under the same names.
    "Cache-Control": "no-cache",
}
OF_API: Final = {
    **_EVERYWHERE,
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
}


def without_cors(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the fields that every response carries, without those that let pages of other origins read it."""
    return {name: value for name, value in headers.items() if not name.startswith("Access-Control-")}
