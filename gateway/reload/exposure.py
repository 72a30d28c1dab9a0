"""Prevents serving other machines without authentication, unless this is explicitly allowed.

A start option can allow anonymous access, but a reload cannot. An edit that removes `auth` must not open a protected
gateway, either directly or through the proxy of `listen.public_url`.
"""

from collections.abc import Mapping
from typing import Final

from gateway.config.diagnostics.problems import Problems
from gateway.config.loader import LoadedConfig
from gateway.config.models.address import Address
from gateway.config.settings import flag_of
from gateway.errors import Problem

_KEYS: Final = ("http", "admin")


def exposures(loaded: LoadedConfig) -> Mapping[str, Problem]:
    """Return an error for each `listen` address that other machines can reach, by key, or nothing if `auth` is set."""
    document = loaded.document
    if document.auth is not None or loaded.is_hidden("auth"):
        return {}
    problems = Problems(loaded.sources, redactor=loaded.redactor)
    for key in _KEYS:
        text: str | None = getattr(document.listen, key)
        if text is not None and not (address := Address.parse(text)).is_loopback:
            problems.at("listen", key).error(exposed(address))
    return {problem.path: problem for problem in problems}


def exposed(address: Address) -> str:
    return (
        f"{address} can be reached from other machines without authentication. "
        f"Add `auth`, listen on 127.0.0.1, or allow it with {flag_of('allow_anonymous')}"
    )


def check_still_closed(loaded: LoadedConfig, problems: Problems) -> None:
    """Report a reload that removes `auth` while other machines can reach the gateway."""
    if loaded.document.auth is None and not loaded.is_hidden("auth"):
        problems.at("listen").error(
            "`auth` was removed, but other machines can reach this daemon. A reload cannot disable authentication. "
            "Restore `auth`, or restart the daemon"
        )
