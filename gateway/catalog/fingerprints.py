"""Digests of what clients would list, by which a reload knows whose list has changed. Pure."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence

import orjson

from gateway.catalog.primitives import Primitive, Prompt, Resource, ResourceTemplate, Tool
from gateway.json_types import Json, JsonObject


def fingerprints(
    *,
    tools: Mapping[str, Tool],
    resources: Mapping[str, Resource],
    templates: Sequence[ResourceTemplate],
    prompts: Mapping[str, Prompt],
) -> dict[str, str]:
    """One for each list that is announced; templates belong to the list of resources."""
    lists: dict[str, Iterable[Primitive]] = {
        "tools": tools.values(),
        "resources": (*resources.values(), *templates),
        "prompts": prompts.values(),
    }
    return {kind: fingerprint(each.definition for each in primitives) for kind, primitives in lists.items()}


def fingerprint(definitions: Iterable[JsonObject]) -> str:
    """A digest of what a client would list.

    Size and time of a file are left out: a written file is an update for its subscribers, not another list.
    """
    digest = hashlib.sha256()
    for definition in definitions:
        digest.update(orjson.dumps(_settled(definition), option=orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE))
    return digest.hexdigest()


def _settled(definition: JsonObject) -> dict[str, Json]:
    settled = {key: value for key, value in definition.items() if key != "size"}
    if "size" in definition:
        settled["annotations"] = {k: v for k, v in definition.get("annotations", {}).items() if k != "lastModified"}
    return settled
