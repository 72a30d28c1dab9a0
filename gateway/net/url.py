"""URLs that others write: in answers, documents and messages."""

from yarl import URL


def parse_url(text: str, *, encoded: bool = False) -> URL:
    """Return a URL or a URL reference (RFC 3986 §4.1); with `encoded`, exactly as it is written.

    Raises:
        ValueError: it is none.
    """
    try:
        return URL(text, encoded=encoded)
    except IndexError as error:  # for `//[]@`: https://github.com/aio-libs/yarl/issues/1822
        raise ValueError("the host is not valid") from error


def origin_of(url: URL) -> tuple[str, str | None, int | None]:
    """RFC 6454 §4: scheme, host in lower case, and port, also where it is the scheme's own."""
    return url.scheme, url.raw_host and url.raw_host.lower(), url.port
