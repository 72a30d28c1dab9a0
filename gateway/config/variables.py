"""Names of the process's settings: the environment variable and the flag of each field. Imports nothing of ours."""

from typing import Final

PREFIX: Final = "MCP_GATEWAY_"


def variable_of(field: str) -> str:
    """The environment variable of a field of `Settings`."""
    return PREFIX + field.upper()


def flag_of(field: str) -> str:
    """The command-line flag of a field of `Settings`."""
    return "--" + field.replace("_", "-")
