"""The flag `--as`: a file with the claims of the caller for which a command runs a tool."""

from pathlib import Path

from gateway.access.claims import identity_of_claims
from gateway.access.identity import ANONYMOUS, Identity
from gateway.cli.given_input import given_text
from gateway.cli.parser import Parser
from gateway.config.models.auth import Auth
from gateway.config.reading.composer import compose
from gateway.config.reading.nodes import plain
from gateway.config.reading.source_file import SourceFile
from gateway.errors import ConfigError

_FLAG = "--as"


def add_as(parser: Parser) -> None:
    parser.add_argument(
        _FLAG,
        dest="caller",
        metavar="FILE",
        default=None,
        help="run as the caller with these claims: a YAML or JSON file such as {sub: ann, groups: [ops]}",
    )


def given_caller(name: str | None, auth: Auth | None) -> Identity:
    """Return the identity that the named file describes; without a name, the anonymous identity.

    Raises:
        ConfigError: the file cannot be read, or describes no caller whom `auth` would accept.
    """
    if name is None:
        return ANONYMOUS
    composition = compose(SourceFile(Path(name).absolute(), given_text(name, where=name)))
    if composition.diagnostics:
        raise ConfigError.at(name, composition.diagnostics[0].message)
    claims = None if composition.root is None else plain(composition.root)
    try:
        return identity_of_claims(claims, auth)
    except ValueError as error:
        raise ConfigError.at(name, str(error)) from error
