"""A request as a person may see it: whole, but for what a credential is. Sends nothing.

What came in by interpolation, the redactor knows. Here is covered what somebody wrote into the file as it is: the value
of a field whose name tells that it is a secret.
"""

import re
from collections.abc import Iterator
from typing import Final

from gateway.config.literal_secrets import SECRET_KEY
from gateway.config.text import MASK
from gateway.executors.http.request import Header, Request
from gateway.json_types import Json

_SCHEME: Final = re.compile(r"(?:(?:Basic|Bearer|Digest|Token) +)?", re.IGNORECASE)
"""What may stand before a credential and is none (RFC 9110 §11.1)."""


def facts_of(request: Request) -> dict[str, Json]:
    """Method, URL, header fields and body."""
    url, question_mark, query = str(request.url).partition("?")
    facts: dict[str, Json] = {
        "method": request.method,
        "url": f"{url}{question_mark}{'&'.join(_fields(query))}",
        "headers": {header.name: _value(header) for header in request.headers},
    }
    if request.body is not None:
        facts["body"] = request.body.decode(errors="replace")
    return facts


def _fields(query: str) -> Iterator[str]:
    for field in query.split("&"):
        name, equals, _ = field.partition("=")
        yield f"{name}={MASK}" if equals and SECRET_KEY.search(name) else field


def _value(header: Header) -> str:
    if not SECRET_KEY.search(header.name):
        return header.value
    scheme = _SCHEME.match(header.value)
    return f"{scheme[0] if scheme else ''}{MASK}"
