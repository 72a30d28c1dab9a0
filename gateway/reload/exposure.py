"""Whether strangers could reach a daemon that asks nobody who they are: refused at start, by a reload, and said early.

Without authentication, whoever reaches the port may run the tools. A start may be told to allow that. A reload may not:
a section that went missing in an edit must not open to the world what was closed, be it directly or through the proxy
that `listen.public_url` speaks of.
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
    """The keys of `listen` that name an address which must not be listened on as things are, and why."""
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
    """Why an address is refused."""
    return (
        f"{address} can be reached from other machines, and nobody has to authenticate; "
        f"write `auth`, listen on 127.0.0.1, or allow it with {flag_of('allow_anonymous')}"
    )


def check_still_closed(loaded: LoadedConfig, problems: Problems) -> None:
    """Report a reload that loses `auth`, where others can reach the daemon."""
    if loaded.document.auth is None and not loaded.is_hidden("auth"):
        problems.at("listen").error(
            "`auth` is gone, and others can reach this daemon; a reload does not open it to strangers. "
            "Write `auth` again, or restart if nobody shall have to authenticate"
        )
