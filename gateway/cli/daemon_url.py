"""The address at which the daemon of a file serves the admin API."""

from argparse import Namespace
from pathlib import Path

from gateway.command_line.console import Console
from gateway.command_line.options import settings_of
from gateway.config.definition_source import load_definitions
from gateway.config.fs_checks import exists
from gateway.config.models.address import Address
from gateway.config.models.server import Listen
from gateway.errors import ConfigError


def daemon_url(options: Namespace, hints: Console) -> str:
    """The URL at which the daemon of this file serves the admin API.

    Raises:
        ConfigError: the command line names a file that does not exist.
    """
    settings = settings_of(options)
    listen = _listen(settings.config, is_named="config" in options, hints=hints)
    if listen.admin is not None:
        return f"http://{Address.parse(listen.admin).from_here}"
    scheme = "http" if listen.tls is None else "https"
    return f"{scheme}://{(settings.http or Address.parse(listen.http)).from_here}"


def _listen(config: Path, *, is_named: bool, hints: Console) -> Listen:
    """The `listen` section. Defaults if the file is broken: that is when its operator wants to see the status."""
    try:
        return load_definitions(config).document.listen
    except ConfigError as error:
        is_there = exists(config)
        if is_named and not is_there:
            raise
        if is_there:
            hints.line(f"{error.problems[0]}; so where it listens is not known, and the usual place is asked")
        return Listen()
