"""Renders a document as JSON with the file's keys and without secrets, so that it may be shown. Pure."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from gateway.config.models.base import Model
from gateway.config.models.interpolated_text import MASK, shown
from gateway.config.models.quantities import duration_text
from gateway.config.secrets.literal_secrets import TOKENS, is_secret
from gateway.json_types import DocumentPath, Json, JsonObject

_HOMES_OF_SECRETS: Final = frozenset({"headers", "query", "env", "form", "json", "auth", "api_keys", "tls"})
"""Keys below which a secret may have been written as it is."""


def masked_document(model: Model) -> JsonObject:
    """The keys that are given, by the names that they have in the file."""
    return _model(model, ())


def _model(model: Model, path: DocumentPath) -> dict[str, Json]:
    names = {name: field.alias or name for name, field in type(model).model_fields.items()}
    return {
        names[name]: _value(getattr(model, name), (*path, names[name]))
        for name in names  # in the order of the models, not of the file
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
    # First what is known to be a secret, then what looks like one.
    masked = shown(text)
    if is_secret(masked, path, belongs_here=not _HOMES_OF_SECRETS.isdisjoint(path)):
        return MASK
    return TOKENS.sub(MASK, masked)
