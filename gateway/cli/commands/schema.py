"""The command `schema`: prints the JSON Schema of the configuration file, or its reference."""

import json
from argparse import Namespace
from typing import Final

from gateway.cli.console import Console
from gateway.cli.parser import Parser
from gateway.config.reference import keys_reference, markdown_table
from gateway.config.schema import document_schema
from gateway.language.templates.filters import FILTERS, TESTS

_HEAD: Final = """\
# Reference of the configuration file

Made by `mcp-gateway schema --markdown`; an editor gets the same from `config/schema.json`.
"""


def parser(name: str) -> Parser:
    arguments = Parser(
        name,
        summary="Print the JSON Schema of the configuration file, for editors; or its reference, for people.",
        epilog=f"""\
examples:
  {name} > schema.json
  {name} --markdown > reference.md

and as the first line of the file:
  # yaml-language-server: $schema=./schema.json""",
    )
    arguments.add_argument(
        "--markdown", action="store_true", default=False, help="the reference of all keys, as Markdown"
    )
    return arguments


async def run(options: Namespace, out: Console, _hints: Console) -> int:
    out.line(reference().rstrip("\n") if options.markdown else json.dumps(document_schema(), indent=2))
    return 0


def reference() -> str:
    """Return the reference of the configuration as Markdown."""
    return "\n".join(
        [
            _HEAD,
            keys_reference(),
            "## Filters in templates\n",
            markdown_table(("filter", "meaning"), [(f"`{name}`", each.meaning) for name, each in FILTERS.items()]),
            "## Tests in templates\n",
            markdown_table(("test", "meaning"), [(f"`is {name}`", each.meaning) for name, each in TESTS.items()]),
        ]
    )
