import json
import re
import zipfile
from argparse import Namespace
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from importlib.metadata import distribution
from io import BytesIO
from pathlib import Path
from typing import Final

import orjson

import gateway
from gateway import __version__
from gateway.atomic_write import atomic_write
from gateway.catalog.file_dependencies import FileDependencies
from gateway.cli.console import Console, counted, protect_stdout
from gateway.cli.credential_files import holds_private_key, named_as_credentials
from gateway.cli.dry_run import DryRun, dry_run, variables_of
from gateway.cli.options import add_config, add_log_level, one_shot_settings
from gateway.cli.parser import Parser
from gateway.cli.results import writing
from gateway.config.loader import LoadedConfig
from gateway.config.models.document import Document
from gateway.config.reading.interpolation import Variable
from gateway.distribution import DISTRIBUTION
from gateway.errors import ConfigError
from gateway.executors.sql.dialects import dialect_of_url
from gateway.json_types import Json

_DIRECTORY: Final = "server"
_ENTRY_POINT: Final = f"{_DIRECTORY}/start.py"

_PROJECT: Final = """\
[project]
name = "mcp-gateway-bundle"
version = "0"
requires-python = ">=3.11"
dependencies = [{requirement}]
"""
"""The `pyproject.toml` of the bundle, from which uv creates the environment on the client's machine."""
_WHEEL: Final = f"{re.sub('[-.]', '_', DISTRIBUTION)}-{__version__}"
_WHEEL_FILE: Final = f"{_WHEEL}-py3-none-any.whl"
_SOURCES: Final = f"""
[tool.uv.sources]
{DISTRIBUTION} = {{ path = "{_WHEEL_FILE}" }}
"""

_MAX_FILES: Final = 10_000
_MAX_BYTES: Final = 256 * 2**20
_CACHES: Final = frozenset({"__pycache__"})
_TIME: Final = (1980, 1, 1, 0, 0, 0)
"""A fixed modification time for all members, so that the same files create the same bundle."""


def parser(name: str) -> Parser:
    arguments = Parser(
        name,
        summary="Pack a file and the files it uses into an MCP bundle for desktop clients.",
        epilog=f"""\
examples:
  {name} config.yaml
  {name} config.yaml -o ops.mcpb --author "Ops team"

The client asks its user for the variables that the file reads. The bundle contains no values of
variables, and no files with secrets: private keys, `.env`, `.git`, `.ssh` and other credentials.
The command lists the files that it leaves out. Files outside the configuration's directory must
exist on the machine where the bundle is installed.""",
    )
    add_config(arguments)
    arguments.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="the bundle (default: NAME.mcpb, with the server's name)"
    )
    arguments.add_argument(
        "--package",
        metavar="REQUIREMENT",
        help=f"package to install, such as `{DISTRIBUTION} @ git+URL` (default: a wheel of this program in the bundle)",
    )
    arguments.add_argument("--author", metavar="NAME", help="author of the bundle (default: the server's name)")
    add_log_level(arguments.add_argument)
    return arguments


async def run(options: Namespace, out: Console, hints: Console) -> int:
    settings = one_shot_settings(options, None)
    dependencies = FileDependencies()
    with protect_stdout(), dry_run(settings, dependencies=dependencies) as dry:
        files, outside, secret = _contents_of(dry.loaded, dependencies, config=settings.config)
        document = _manifest(dry, author=options.author)
    main = settings.config.absolute()
    script = _start_script("." if main.is_dir() else main.name)
    made = {
        "manifest.json": orjson.dumps(document, option=orjson.OPT_INDENT_2),
        **_environment(options.package, dry.loaded.document),
        _ENTRY_POINT: script.encode(),
    }
    output = options.output or Path(f"{document['name']}.mcpb")
    with writing(output):
        _pack(output, made, files)
    for path in secret:
        hints.line(f"Not packed, because it contains a secret: {path}")
    for path in outside:
        hints.line(f"Not packed, because it is outside the configuration's directory: {path}")
    out.line(f"Wrote {output} with {counted(len(files), 'file')}.")
    return 0


def _environment(package: str | None, document: Document) -> dict[str, bytes]:
    extras = {dialect_of_url(each.url).extra for each in document.databases.values()}
    outbound = [each.auth for each in document.connections.values()] + [
        each.auth for each in document.upstreams.values()
    ]
    if document.auth or any(each and not (each.bearer or each.basic) for each in outbound):
        extras.add("auth")
    requirement = package or DISTRIBUTION + (f"[{','.join(sorted(extras))}]" if extras else "")
    project = _PROJECT.format(requirement=json.dumps(requirement))
    if package is not None:
        return {"pyproject.toml": project.encode()}
    return {"pyproject.toml": (project + _SOURCES).encode(), _WHEEL_FILE: _wheel()}


def _wheel() -> bytes:
    """Build a wheel (PEP 427) from the files of the running program, even if the installation is editable."""
    package, metadata = Path(gateway.__file__).parent, f"{_WHEEL}.dist-info"
    files = {
        path.relative_to(package.parent).as_posix(): path.read_bytes()
        for path in sorted(package.rglob("*"))
        if path.is_file() and not _CACHES.intersection(path.parts)
    }
    files[f"{metadata}/METADATA"] = (distribution(DISTRIBUTION).read_text("METADATA") or "").encode()
    files[f"{metadata}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: bundle\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    lines = [
        f"{name},sha256={urlsafe_b64encode(sha256(content).digest()).decode().rstrip('=')},{len(content)}\n"
        for name, content in files.items()
    ]
    files[f"{metadata}/RECORD"] = "".join([*lines, f"{metadata}/RECORD,,\n"]).encode()
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            _add(archive, name, content, mode=0o644)
    return buffer.getvalue()


def _pack(output: Path, made: Mapping[str, bytes], files: Mapping[str, Path]) -> None:
    with atomic_write(output, mode=0o644) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, content in made.items():
            _add(archive, member, content, mode=0o644)
        for member, path in files.items():
            # Keep the executable bits, but remove write access for the group and other users.
            _add(archive, f"{_DIRECTORY}/{member}", _read(path), mode=path.stat().st_mode & 0o755)


def _add(archive: zipfile.ZipFile, member: str, content: bytes, *, mode: int) -> None:
    info = zipfile.ZipInfo(member, _TIME)
    # The upper 16 bits are the Unix mode.
    info.external_attr = mode << 16
    # `ZipInfo` does not inherit the compression of the archive.
    info.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(info, content)


def _contents_of(
    loaded: LoadedConfig, dependencies: FileDependencies, *, config: Path
) -> tuple[dict[str, Path], list[Path], list[Path]]:
    """Return the files to pack, the files outside the configuration's directory, and the paths that contain secrets.

    The files to pack are keyed by their path relative to the configuration's directory. Other files are not packed.
    """
    files: dict[str, Path] = {}
    outside: list[Path] = []
    secret: dict[Path, None] = {}
    secret_files = {path.resolve() for path in loaded.secret_files}
    root = loaded.root.resolve()
    needed = _files(_needed(loaded, dependencies))
    configs = _files(loaded.files.keys() - loaded.secret_files)
    size = 0
    # Sort the files, so that the same files create the same bundle.
    for path in sorted(needed | _files(_useful(dependencies)) | secret_files):
        relative = path.relative_to(root) if path.is_relative_to(root) else Path(path.name)
        if (credentials := named_as_credentials(relative)) is not None:
            secret[root / credentials if path.is_relative_to(root) else path] = None
            continue
        content = _read(path)
        has_key = holds_private_key(content)
        if has_key and path in configs:  # such a file cannot be left out
            reason = "contains a private key. Move the key to a file, and refer to it with `${file:…}`"
            raise ConfigError.at(str(config), f"{path} {reason}")
        if has_key or path in secret_files:
            secret[path] = None
        elif path.is_relative_to(root):
            files[relative.as_posix()] = path
            size += len(content)
        elif path in needed:
            reason = f"is outside {root}, and a bundle can only contain files of that directory"
            raise ConfigError.at(str(config), f"{path} {reason}")
        else:
            outside.append(path)
        if len(files) > _MAX_FILES or size > _MAX_BYTES:
            message = f"the bundle would exceed {_MAX_FILES:,} files or {_MAX_BYTES // 2**20} MiB"
            raise ConfigError.at(str(config), message)
    return files, outside, [*secret]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError.at(str(path), f"cannot be read: {error.strerror}") from error


def _files(paths: Iterable[Path]) -> set[Path]:
    return {path.resolve() for path in paths if path.is_file()}


def _needed(loaded: LoadedConfig, dependencies: FileDependencies) -> Iterator[Path]:
    yield from loaded.files.keys() - loaded.secret_files
    # Pack the whole directory of a plugin, because the plugin can import other modules from the directory.
    for tree in dependencies.trees:
        for path in tree.rglob("*"):
            if not _CACHES.intersection(path.parts):
                yield path


def _useful(dependencies: FileDependencies) -> Iterator[Path]:
    yield from dependencies.files
    for globs in dependencies.globs:
        for file in globs.listing(at_most=_MAX_FILES).files:
            yield Path(globs.root, file.path)


def _start_script(config: str) -> str:
    return f'''\
"""Serves the configuration of this bundle over standard input and output."""

import sys
from pathlib import Path

from gateway.__main__ import main

sys.argv[1:] = ["serve", str(Path(__file__).with_name({config!r})), "--stdio", "--no-watch"]
sys.exit(main())
'''


def _manifest(dry: DryRun, *, author: str | None) -> dict[str, Json]:
    """Return the manifest of the bundle.

    See https://github.com/modelcontextprotocol/mcpb, MANIFEST.md, version 0.4.
    """
    server, known, variables = dry.loaded.document.server, dry.catalog.sanitizer, variables_of(dry.loaded)
    optional = {"display_name": server.title, "long_description": server.instructions, "homepage": server.website_url}
    return {
        "manifest_version": "0.4",
        "name": re.sub(r"[^a-z0-9]+", "-", server.name.lower()).strip("-") or "mcp-gateway",
        **{key: known.text(value) for key, value in optional.items() if value is not None},
        "version": server.version or "0.1.0",
        "description": known.text(server.description or f"Tools of {server.name}"),
        "author": {"name": author or known.text(server.name)},
        "server": {
            "type": "uv",
            "entry_point": _ENTRY_POINT,
            "mcp_config": {
                "command": "uv",
                "args": ["run", "--directory", "${__dirname}", _ENTRY_POINT],
                "env": {name: f"${{user_config.{name.lower()}}}" for name in variables},
            },
        },
        "tools": [
            {"name": tool.name, "description": (tool.definition.get("description") or "").strip().partition("\n")[0]}
            for tool in dry.catalog.tools.values()
        ],
        "tools_generated": True,
        "prompts_generated": True,
        "compatibility": {"platforms": ["linux", "darwin"], "runtimes": {"python": ">=3.11"}},
        "user_config": {name.lower(): _setting(name, variable) for name, variable in variables.items()},
    }


def _setting(name: str, variable: Variable) -> dict[str, Json]:
    return {
        "type": "string",
        "title": name,
        "description": f"The value of {name}" + ("" if variable.is_needed else " (optional)"),
        "required": variable.is_needed,
        "sensitive": variable.is_secret,
        **({} if variable.is_needed else {"default": ""}),
    }
