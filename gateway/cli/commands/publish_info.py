import hashlib
import zipfile
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import orjson

from gateway import __version__
from gateway.app.listeners import check_view
from gateway.catalog.compile.wire_definitions import server_info
from gateway.cli.console import Console, protect_stdout
from gateway.cli.dry_run import dry_run, variables_of
from gateway.cli.options import VIEW, add_config, add_log_level, add_option, one_shot_settings
from gateway.cli.parser import Parser
from gateway.cli.results import writing
from gateway.config.loader import LoadedConfig
from gateway.config.models.address import is_loopback_name
from gateway.config.models.document import Document
from gateway.config.reading.interpolation import Variable
from gateway.distribution import DISTRIBUTION
from gateway.errors import ConfigError
from gateway.json_types import Json, JsonObject
from gateway.net.request import parse_url
from gateway.protocol.server_card import PublicEndpoint, introduction, is_qualified, qualified_name, remotes
from gateway.transports.http_sse import SSE_PATH

_SCHEMA: Final = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
_SOURCES: Final = {"github.com": "github", "gitlab.com": "gitlab"}
_OUTPUT: Final = Path("server.json")
_MANIFEST: Final = "manifest.json"


def parser(name: str) -> Parser:
    arguments = Parser(
        name,
        summary="Write the server.json that an MCP registry needs to list this server.",
        epilog=f"""\
examples:
  {name} config.yaml
  {name} --name io.github.ada/ops --repository https://github.com/ada/ops
  {name} --bundle ops.mcpb --bundle-url https://example.com/ops.mcpb
  {name} config.yaml --pypi -o -

A remote server is listed with its `listen.public_url`, a server that users start themselves with
a package. `mcp-publisher publish` sends the file to the official registry.""",
    )
    add_config(arguments)
    arguments.add_argument(
        "-o",
        "--output",
        type=Path,
        default=_OUTPUT,
        metavar="FILE",
        help=f"the file to write; - prints it (default: {_OUTPUT})",
    )
    arguments.add_argument(
        "--name",
        help="name with a reversed domain, such as com.example/ops (default: `server.name` with the domain of "
        "`server.website_url` or `listen.public_url`)",
    )
    arguments.add_argument("--repository", metavar="URL", help="URL of the source code")
    arguments.add_argument(
        "--bundle", type=Path, metavar="FILE", help="list this MCP bundle, created by `mcp-gateway bundle`"
    )
    arguments.add_argument("--bundle-url", metavar="URL", help="download URL of the bundle")
    arguments.add_argument(
        "--pypi", action="store_true", help="list the daemon, which users run with uvx and their own file"
    )
    add_option(arguments.add_argument, VIEW)
    add_log_level(arguments.add_argument)
    return arguments


async def run(options: Namespace, out: Console, _hints: Console) -> int:
    settings = one_shot_settings(options, None)
    with protect_stdout():
        with dry_run(settings) as dry:
            loaded = dry.loaded
        check_view(settings.view, loaded.document.views)
    name, document = _published(options, loaded, view=settings.view)
    text = orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    if options.output == Path("-"):
        out.line(text.decode())
        return 0
    with writing(options.output):
        options.output.write_bytes(text)
    out.line(f"Wrote {options.output} for {name}.")
    return 0


def _published(options: Namespace, loaded: LoadedConfig, *, view: str | None) -> tuple[str, dict[str, Json]]:
    # Mask secrets, because the document will be published.
    info = loaded.redactor.json(server_info(loaded.document.server))
    version = str(info["version"])
    packages = [*_bundles(options, version), *([_daemon_package(variables_of(loaded))] if options.pypi else [])]
    endpoint = _endpoint(loaded.document, view)
    if endpoint is None and not packages:
        raise ConfigError.at(
            "listen.public_url", "is not set, and no package is given. Set it, or add a package with --bundle or --pypi"
        )
    name = _name(options, loaded, view)
    repository = None if options.repository is None else _web_url("--repository", options.repository)
    return name, _server_json(name, info, endpoint, packages, repository)


def _name(options: Namespace, loaded: LoadedConfig, view: str | None) -> str:
    if options.name is not None:
        if not is_qualified(options.name):
            raise ConfigError.at("--name", "expected a name under a reversed domain, such as com.example/ops")
        return str(options.name)
    document = loaded.document
    name = document.server.name if view is None else f"{document.server.name}-{view}"
    found = qualified_name(loaded.redactor.text(name), [document.server.website_url, document.listen.public_url])
    if found is None:
        raise ConfigError.at(
            "server.name",
            "needs a reversed domain, but neither `server.website_url` nor `listen.public_url` contains a domain. "
            "Pass --name, such as com.example/ops or io.github.USER/ops",
        )
    return found


def _endpoint(document: Document, view: str | None) -> PublicEndpoint | None:
    listen, auth = document.listen, document.auth
    if listen.public_url is None:
        return None
    host = urlsplit(listen.public_url).hostname or ""
    if is_loopback_name(host):
        raise ConfigError.at("listen.public_url", f"is {listen.public_url}, which other machines cannot reach")
    base, suffix = listen.public_url.rstrip("/"), "" if view is None else f"/{view}"
    return PublicEndpoint(
        url=f"{base}{listen.path.rstrip('/')}{suffix}",
        sse_url=f"{base}{SSE_PATH}{suffix}" if listen.sse else None,
        takes_keys=auth is not None and bool(auth.api_keys),
        takes_tokens=auth is not None and bool(auth.oauth),
    )


def _bundles(options: Namespace, version: str) -> Iterator[JsonObject]:
    if (options.bundle is None) != (options.bundle_url is None):
        raise ConfigError.at(
            "--bundle", "must be used together with --bundle-url, from which clients download the bundle"
        )
    if options.bundle is None:
        return
    try:
        with zipfile.ZipFile(options.bundle) as archive:
            archive.getinfo(_MANIFEST)
        digest = hashlib.sha256(options.bundle.read_bytes()).hexdigest()
    except OSError as error:
        raise ConfigError.at(str(options.bundle), f"cannot be read: {error.strerror or error}") from error
    except (zipfile.BadZipFile, KeyError) as error:
        raise ConfigError.at(
            str(options.bundle), "is not an MCP bundle. Create one with `mcp-gateway bundle`"
        ) from error
    yield {
        "registryType": "mcpb",
        "identifier": _web_url("--bundle-url", options.bundle_url),
        "version": version,
        "fileSha256": digest,
        "transport": {"type": "stdio"},
    }


def _web_url(flag: str, url: str) -> str:
    with suppress(ValueError):
        parts = parse_url(url)
        if parts.scheme == "https" and parts.host and not any(char.isspace() for char in url):
            return url
    raise ConfigError.at(flag, "expected a URL such as https://github.com/ada/ops")


def _server_json(
    name: str, info: JsonObject, endpoint: PublicEndpoint | None, packages: Sequence[JsonObject], repository: str | None
) -> dict[str, Json]:
    # Leave out the icons, because the schema of a registry accepts fewer kinds of icons than the configuration.
    about = introduction({key: value for key, value in info.items() if key != "icons"}, name=name)
    host = (urlsplit(repository or "").hostname or "").removeprefix("www.")
    optional: dict[str, Json] = {
        "repository": None if repository is None else {"url": repository, "source": _SOURCES.get(host, host)},
        "remotes": [] if endpoint is None else list(remotes(endpoint)),
        "packages": list(packages),
    }
    return {"$schema": _SCHEMA, **about, **{key: value for key, value in optional.items() if value}}


def _daemon_package(variables: Mapping[str, Variable]) -> JsonObject:
    return {
        "registryType": "pypi",
        "registryBaseUrl": "https://pypi.org",
        "identifier": DISTRIBUTION,
        "version": __version__,
        "runtimeHint": "uvx",
        "transport": {"type": "stdio"},
        "packageArguments": [
            {"type": "positional", "value": "serve"},
            {
                "type": "positional",
                "valueHint": "config",
                "description": "Path of the configuration",
                "format": "filepath",
                "isRequired": True,
            },
            {"type": "named", "name": "--stdio"},
        ],
        **({"environmentVariables": [_variable(*each) for each in variables.items()]} if variables else {}),
    }


def _variable(name: str, variable: Variable) -> JsonObject:
    return {
        "name": name,
        "description": f"The value of {name}",
        "isRequired": variable.is_needed,
        "isSecret": variable.is_secret,
    }
