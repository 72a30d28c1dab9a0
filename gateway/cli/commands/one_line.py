"""Creates a configuration for a source that `serve` accepts instead of a file, such as a command or a URL."""

import json
import re
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from gateway.cli.commands.init import text_of
from gateway.cli.parser import AddArgument, Parser
from gateway.cli.user_input import check_text
from gateway.config.secrets.literal_secrets import is_secret, is_secret_key
from gateway.errors import ConfigError

_FLAGS: Final = {"mcp_json": "--mcp-json", "openapi": "--openapi", "sqlite": "--sqlite", "command": "--"}
_HEADER: Final = re.compile(r"((?:--?[\w-]+=)?([\w-]+):\s*)(?!\$\{).*", re.DOTALL)
"""A header field in a command, such as `X-API-Key: VALUE` or `--header=X-API-Key: VALUE`."""
_COMMAND: Final = """\
# A stdio server. Its tools keep their names.

upstreams:
  {name}:
    command: {command}
    cwd: {directory}
    prefix: ""

server:
  name: {name}
"""


class SourceParser(Parser):
    """An argument parser that stores the words after `--` in `command`."""

    def parse_args(self, words: Sequence[str], namespace: None = None) -> Namespace:  # type: ignore[override]
        own = words[: words.index("--")] if "--" in words else words
        options = self.parse_intermixed_args(own, namespace)
        options.command = list(words[len(own) + 1 :])
        return options


def add_sources(add: AddArgument) -> None:
    add("--mcp-json", metavar="FILE", help="serve the servers of an MCP client's file")
    add("--openapi", metavar="URL", help="serve the read operations of an OpenAPI document or URL")
    add("--sqlite", metavar="FILE", help="serve the tables of an SQLite database, read only")
    add("--print-config", action="store_true", help="print the YAML instead of serving it")


async def configuration_of(options: Namespace) -> str | None:
    """Return the YAML for the source in `options`, or None if `options` contains no source."""
    sources = {key: value for key in _FLAGS if (value := getattr(options, key, None))}
    if not sources:
        if options.print_config:
            raise ConfigError.at("--print-config", f"needs one of {', '.join(_FLAGS.values())} COMMAND")
        return None
    first, *others = [_FLAGS[key] for key in sources]
    if "config" in options and options.config is not None:
        others.append(options.config)
    if others:
        raise ConfigError.at(first, f"cannot be combined with {others[0]}")
    [(key, source)] = sources.items()
    if key == "command":
        return _of_command(source, hides_secrets=options.print_config)
    if key == "openapi" and options.print_config and _has_secret(source):
        raise ConfigError.at(first, "contains a secret, which must not be printed. Use a URL without credentials")
    return await text_of(key.replace("_", "-"), source, directory=None, option=first)


def written(text: str, directory: str) -> str:
    path = Path(directory).resolve() / "config.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def _has_secret(url: str) -> bool:
    return is_secret(url, (), belongs_here=False) or any(
        is_secret_key(name) for name, _ in parse_qsl(urlsplit(url).query)
    )


def _of_command(command: Sequence[str], *, hides_secrets: bool) -> str:
    for word in command:
        check_text(word)
    shown = _without_secrets(command) if hides_secrets else [_literal(word) for word in command]
    named = next((word for word in shown[1:] if not word.startswith("-") and "${" not in word), shown[0])
    name = re.sub(r"[^a-z0-9]+", "_", Path(named).name.lower()).strip("_")
    return _COMMAND.format(
        name=name if name[:1].isalpha() else "server",
        # Write the values as JSON, which is valid YAML and escapes special characters.
        command=json.dumps(shown, ensure_ascii=False),
        directory=json.dumps(_literal(str(Path.cwd())), ensure_ascii=False),
    )


def _without_secrets(command: Sequence[str]) -> list[str]:
    """Replace secrets with variables. For example, `--api-key=VALUE` becomes `--api-key=${env:API_KEY}`."""
    words: list[str] = []
    for word, before in zip(command, ("", *command), strict=False):
        flag, is_assigned, value = word.partition("=")
        if (header := _HEADER.fullmatch(word)) is not None and is_secret_key(header[2]):
            words.append(f"{header[1]}${{env:{_variable(header[2])}}}")
        elif is_assigned and (is_secret_key(flag) or is_secret(value, (), belongs_here=False)):
            words.append(f"{flag}=${{env:{_variable(flag)}}}")
        elif not is_assigned and before.startswith("-") and "=" not in before and is_secret_key(before):
            words.append(f"${{env:{_variable(before)}}}")
        elif is_secret(word, (), belongs_here=False):
            words.append("${env:SECRET}")
        else:
            words.append(_literal(word))
    return words


def _variable(flag: str) -> str:
    return re.sub(r"[^A-Z0-9]+", "_", flag.upper()).strip("_") or "SECRET"


def _literal(text: str) -> str:
    return text.replace("${", "$${")
