"""The reference of the configuration language: its keys, and what templates may use. Made, never written."""

from typing import Final

from gateway.config.reference import keys_reference, markdown_table
from gateway.executors.templates.filters import FILTERS, TESTS

_HEAD: Final = """\
# Reference of the configuration file

Made by `mcp-gateway schema --markdown`; an editor gets the same from `config/schema.json`.
"""


def reference() -> str:
    """The whole page, as Markdown."""
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
