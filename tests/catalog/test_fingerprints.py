"""Fingerprints of lists."""

from collections.abc import Iterable

from gateway.catalog.compile.wire_definitions import file_definition
from gateway.catalog.primitives import definition_digest, fingerprint
from gateway.config.models.definitions import Resource
from gateway.executors.files.globs import Found
from gateway.executors.files.regular_files import FileFacts
from gateway.json_types import JsonObject


def of(definitions: Iterable[JsonObject]) -> str:
    return fingerprint(map(definition_digest, definitions))


def test_fingerprint_ignores_file_size_and_time() -> None:
    config = Resource.model_validate({"files": "*"})

    def listed(*names: str, size: int = 1, modified: float = 1.0) -> str:
        return of(
            file_definition(config, uri=f"x:///{name}", file=Found(name, FileFacts(size, modified))) for name in names
        )

    assert listed("a", "b") == listed("a", "b", size=2, modified=2.0)
    assert listed("a", "b") != listed("a")
    assert listed("a", "b") != listed("b", "a")


def test_fingerprint_depends_on_values_but_not_key_order() -> None:
    assert of([{"name": "a", "x": 1}]) == of([{"x": 1, "name": "a"}])
    assert of([{"name": "a", "x": 1}]) != of([{"name": "a", "x": 2}])
