"""Takes validated models over from an earlier load where what they are made of is the same.

Besides the time that this saves, the model is then the same object, by which the compiler sees that nothing changed.
"""

import hashlib
import pickle
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypeVar

from gateway.config.models.base import Model
from gateway.json_types import Json

M = TypeVar("M", bound=Model)

_KEY_BYTES: Final = 16

NO_MODELS: Final[Mapping[bytes, Model]] = MappingProxyType({})


class ValidatedModels:
    """The models of one load, by their content."""

    def __init__(self, earlier: Mapping[bytes, Model]) -> None:
        self._earlier: Final = earlier
        self.models: Final[dict[bytes, Model]] = {}
        """Those of this load."""

    def validate(self, model: type[M], data: Json) -> tuple[bytes, M]:
        """Validate interpolated data, unless it was before; return its key, too.

        Raises:
            ValidationError: it does not fit.
        """
        key = content_key(model.__qualname__, data)
        known = self.models.get(key) or self._earlier.get(key)
        value = known if isinstance(known, model) else model.model_validate(data)
        self.keep(key, value)
        return key, value

    def keep(self, key: bytes, value: Model) -> None:
        """Keep a model for the next load."""
        self.models[key] = value


def content_key(*values: object) -> bytes:
    """A digest of plain data or models that differs wherever they do.

    Pickled, never unpickled: equality would take an interpolated text for a plain one, and 1 for true.
    """
    return hashlib.blake2b(pickle.dumps(values), digest_size=_KEY_BYTES).digest()
