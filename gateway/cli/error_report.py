"""Reports the error that ended a command. Imported only for errors, because it imports many packages."""

import errno
import os
import traceback
from collections.abc import Sequence

from gateway.cli.client.remote import RemoteError
from gateway.cli.console import Console, say
from gateway.config.diagnostics.render import render
from gateway.config.settings import variable_of
from gateway.errors import ConfigError, ErrorCode, RpcError


def report(error: Exception, hints: Console, words: Sequence[str]) -> int:
    """Print an error, and return the exit code. `words` is the command line."""
    match error:
        case ConfigError():
            hints.line(render(error.problems, colour=hints.has_colour))
            return 2
        case RpcError():
            data = None if error.code == ErrorCode.MISSING_CLIENT_CAPABILITY else error.data
            _show(error.message + (f" ({say(data)})" if data else ""), hints)
        case RemoteError():
            _show(str(error), hints)
        case OSError(errno=errno.ENOSPC | errno.EDQUOT | errno.EIO):  # for example a full disk behind standard output
            _show(f"cannot write: {error.strerror}", hints)
        case _:
            variable = variable_of("log_level")
            if "debug" in (*words, os.environ.get(variable)):
                hints.line("".join(traceback.format_exception(error)))
            hints.line(f"{hints.styled('unexpected error:', 'red')} {type(error).__name__}: {error}")
            hints.line(f"This is a bug in mcp-gateway. Set {variable}=debug to show the traceback.")
    return 1


def _show(text: str, hints: Console) -> None:
    hints.line(hints.styled("error: ", "red") + hints.clean(text))
