"""What another validator says of the schemas that clients will be given. For `validate` alone: it takes its time.

Why: ours (jsonschema-rs) is the one that decides, but clients bring their own, and what two libraries read differently
will be read differently out there.
"""

from collections.abc import Iterator

from gateway.catalog.primitives import Catalog, Tool
from gateway.errors import Problem, Severity
from gateway.json_types import JsonObject


def second_opinions(catalog: Catalog) -> Iterator[Problem]:
    """A warning for each schema that jsonschema refuses."""
    for tool in catalog.tools.values():
        for member, key in (("inputSchema", "input"), ("outputSchema", "output.schema")):
            if (reason := _refusal(tool, member)) is not None:
                message = f"another JSON Schema validator (jsonschema) refuses the {member}: {reason}"
                yield Problem(message=message, path=f"tools.{tool.name}.{key}", severity=Severity.WARNING)


def _refusal(tool: Tool, member: str) -> str | None:
    import jsonschema  # noqa: PLC0415 - it takes longer to import than everything else here to run

    schema: JsonObject | None = tool.definition.get(member)
    if schema is None:
        return None
    try:
        jsonschema.validators.validator_for(schema).check_schema(dict(schema))
    except jsonschema.SchemaError as error:
        return str(error.message)
    return None
