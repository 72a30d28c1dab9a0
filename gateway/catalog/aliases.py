"""Old names that still work. Each stands for one thing, and for nothing that has a name of its own."""

from collections.abc import Container, Mapping

from gateway.catalog.primitives import Primitive
from gateway.config.problems import Problems


def compile_aliases(
    primitives: Mapping[str, Primitive], *, taken: Container[str], problems: Problems
) -> Mapping[str, str]:
    """Map each alias to the key of what it stands for; clashes with `taken` and with each other are reported."""
    aliases: dict[str, str] = {}
    for key, primitive in primitives.items():
        for index, alias in enumerate(primitive.aliases):
            place = problems.at(primitive.name, "aliases", index)
            if alias in taken:
                place.error(f"`{alias}` is a name in use, so that it cannot be an alias too")
            elif (first := aliases.setdefault(alias, key)) != key:
                place.error(f"`{alias}` is an alias of `{first}` already")
    return aliases
