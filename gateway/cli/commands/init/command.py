"""The command `init`: writes a small commented configuration file."""

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Final

from gateway.cli.commands.init.first_file import FIRST_FILE, of_database, of_servers
from gateway.cli.commands.init.openapi_file import of_document
from gateway.cli.console import Console, waiting
from gateway.cli.parser import Parser
from gateway.config.machine_facts import is_directory, is_file
from gateway.errors import ConfigError

_FILES: Final[dict[str, Callable[[str, Path], str]]] = {"mcp-json": of_servers, "sqlite": of_database}
_KINDS: Final = ("mcp-json", "openapi", "sqlite")
"""What `--from` accepts. The result names the source relative to the new file's directory."""
_ALIASES: Final = {"mcp.json": "mcp-json"}


def parser(name: str) -> Parser:
    arguments = Parser(
        name,
        words="[PATH] [--from KIND FILE]",
        summary="Write a small commented file to start from.",
        epilog=f"""\
examples:
  {name}
  {name} ops/config.yaml
  {name} --from mcp-json .mcp.json            the servers of an MCP client
  {name} --from openapi shop.openapi.yaml     an API's document, or its URL
  {name} --from sqlite shop.db                a database, read only""",
    )
    arguments.add_argument("path", nargs="?", type=Path, default=Path("config.yaml"), help="(default: config.yaml)")
    arguments.add_argument(
        "--from",
        nargs=2,
        dest="source",
        metavar=("KIND", "FILE"),
        default=None,
        help=f"start from: {', '.join(_KINDS)}",
    )
    return arguments


async def run(options: Namespace, out: Console, hints: Console) -> int:
    path = options.path / "config.yaml" if is_directory(options.path) else options.path
    if options.source is None:
        text = FIRST_FILE
    else:
        with waiting(hints, f"Reading {options.source[1]}"):
            text = await _text_of(*options.source, path=path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # "x" fails if the file exists, even if it was created just now.
        with path.open("x") as file:
            file.write(text)
    except FileExistsError as error:
        raise ConfigError.at(str(path), "already exists and was not overwritten") from error
    except OSError as error:
        raise ConfigError.at(str(path), f"cannot be written: {error.strerror}") from error
    out.line(f"Wrote {path}. Now:")
    tried = (f"mcp-gateway list {path}", "what it offers")
    if options.source is None:
        tried = (f"mcp-gateway call {path} hello name=Ada", "try a tool, without a server")
    for command, what in (
        (f"mcp-gateway validate {path}", "check it after each change"),
        tried,
        (f"mcp-gateway serve {path}", "serve it at http://127.0.0.1:8000/mcp"),
    ):
        out.line(f"  {out.styled(command, 'cyan')}  # {what}")
    return 0


async def _text_of(kind: str, file: str, *, path: Path) -> str:
    """Return the text of a configuration that is based on another file."""
    kind = _ALIASES.get(kind, kind)
    if kind not in _KINDS:
        raise ConfigError.at("--from", f"there is no kind {kind!r}; expected one of {', '.join(_KINDS)}")
    if not ("://" in file and kind == "openapi") and not is_file(file):
        raise ConfigError.at(file, "there is no such file")
    return await of_document(file, path.parent) if kind == "openapi" else _FILES[kind](file, path.parent)
