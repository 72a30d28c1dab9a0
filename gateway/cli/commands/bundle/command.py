"""The command `bundle`: packs a file and what it names into an MCP bundle."""

import zipfile
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import orjson

from gateway.catalog.file_dependencies import FileDependencies
from gateway.cli.arguments.options import add_config, add_log_level, one_shot_settings
from gateway.cli.arguments.parser import Parser
from gateway.cli.commands.bundle.contents import Contents, NoBundleError, contents_of
from gateway.cli.commands.bundle.manifest import DIRECTORY, ENTRY_POINT, PROJECT, manifest, start_script
from gateway.cli.dry_run import dry_run
from gateway.cli.output.console import Console, counted, protect_stdout
from gateway.cli.output.whole_file import whole_file
from gateway.cli.prerequisites import complete_prerequisites_of
from gateway.errors import ConfigError

_SHOWN: Final = 10
"""Files that were left out, of those that are named."""
_TIME: Final = (1980, 1, 1, 0, 0, 0)
"""The time of every member: the same files make the same bundle."""


def parser(name: str) -> Parser:
    arguments = Parser(
        name,
        summary="Pack a file and what it names into an MCP bundle, which a desktop client installs by double click.",
        epilog=f"""\
examples:
  {name} config.yaml
  {name} config.yaml -o ops.mcpb --author "Ops team"

The client asks its user for the variables that the file reads, and keeps secrets in its own
store; no value of them is packed, nor files that hold secrets. What the file names outside of
its directory must be on the machine where the bundle is installed.""",
    )
    add_config(arguments)
    arguments.add_argument(
        "-o", "--output", type=Path, default=None, metavar="FILE", help="the bundle (default: <server's name>.mcpb)"
    )
    arguments.add_argument("--author", default=None, metavar="NAME", help="who made it (default: the server's name)")
    add_log_level(arguments)
    return arguments


async def run(options: Namespace, out: Console, hints: Console) -> int:
    settings = one_shot_settings(options, None)
    dependencies = FileDependencies()
    with protect_stdout():
        prerequisites = complete_prerequisites_of(settings)
        with dry_run(settings, dependencies=dependencies) as dry:
            try:
                contents = contents_of(dry.loaded, dependencies)
            except NoBundleError as error:
                raise ConfigError.at(str(settings.config), str(error)) from error
            document = manifest(
                dry.loaded.document.server,
                dry.catalog,
                prerequisites.variables,
                author=options.author or prerequisites.name,
            )
    main = settings.config.absolute()
    script = start_script("." if main.is_dir() else main.name)
    made = {
        "manifest.json": orjson.dumps(document, option=orjson.OPT_INDENT_2),
        "pyproject.toml": PROJECT.encode(),
        ENTRY_POINT: script.encode(),
    }
    output = options.output or Path(f"{document['name']}.mcpb")
    try:
        _pack(output, made, contents)
    except OSError as error:
        raise ConfigError.at(str(output), f"cannot be written: {error.strerror}") from error
    for path in contents.secret:
        hints.line(f"Not packed, for it holds a secret: {path}")
    for path in contents.outside[:_SHOWN]:
        hints.line(f"Not packed, for it lies outside of the file's directory: {path}")
    if len(contents.outside) > _SHOWN:
        hints.line(f"… and {counted(len(contents.outside) - _SHOWN, 'file')} more")
    out.line(f"Wrote {output} with {counted(len(contents.files), 'file')}.")
    return 0


def _pack(output: Path, made: Mapping[str, bytes], contents: Contents) -> None:
    """Write the archive whole or not at all.

    Raises:
        OSError: it cannot be written, or a file cannot be read.
    """
    with whole_file(output, mode=0o644) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, content in made.items():
            _add(archive, member, content, mode=0o644)
        for member, path in contents.files.items():
            _add(archive, f"{DIRECTORY}/{member}", path.read_bytes(), mode=path.stat().st_mode & 0o755)


def _add(archive: zipfile.ZipFile, member: str, content: bytes, *, mode: int) -> None:
    info = zipfile.ZipInfo(member, _TIME)
    info.external_attr = mode << 16
    info.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(info, content)
