"""Converts a document to JSON without secrets."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from gateway.config.models.base import Model
from gateway.config.models.interpolated_text import MASK, shown
from gateway.config.models.quantities import duration_text
from gateway.config.secrets.literal_secrets import TOKENS, is_secret
from gateway.json_types import DocumentPath, Json, JsonObject

_HOMES_OF_SECRETS: Final = frozenset({"headers", "query", "env", "form", "json", "auth", "api_keys", "tls"})
"""Keys that can contain literal secrets."""


def masked_document(model: Model) -> JsonObject:
    """Return the keys that were written, with their names in the file."""
    return _model(model, ())


def _model(model: Model, path: DocumentPath) -> dict[str, Json]:
    names = {name: field.alias or name for name, field in type(model).model_fields.items()}
    return {
        names[name]: _value(getattr(model, name), (*path, names[name]))
        for name in names  # in the order of the model, not of the file
        if name in model.model_fields_set
    }


def _value(value: object, path: DocumentPath) -> Json:
    match value:
        case Model():
            return _model(value, path)
        case Mapping():
            return {str(key): _value(member, (*path, str(key))) for key, member in value.items()}
        case list() | tuple():
            return [_value(item, (*path, index)) for index, item in enumerate(value)]
        case _:
            return _scalar(value, path)


def _scalar(value: object, path: DocumentPath) -> Json:
    match value:
        case timedelta():
            return duration_text(value)
        case str():
            return _text(value, path)
        case None | bool() | int() | float():
            return value
        case _:
            return str(value)


def _text(text: str, path: DocumentPath) -> str:
    # Known secrets first, then text that looks like a secret.
    masked = shown(text)
    if is_secret(masked, path, belongs_here=not _HOMES_OF_SECRETS.isdisjoint(path)):
        return MASK
    return TOKENS.sub(MASK, masked)
