"""When two lists are the same."""

from gateway.catalog.definitions import file_definition
from gateway.catalog.fingerprints import fingerprint
from gateway.config.primitives import Resource
from gateway.executors.files.globs import Found
from gateway.executors.files.regular_files import Facts


def test_a_written_file_is_not_another_list_and_a_new_one_is() -> None:
    config = Resource.model_validate({"files": "*"})

    def listed(*names: str, size: int = 1, modified: float = 1.0) -> str:
        return fingerprint(
            file_definition(config, uri=f"x:///{name}", file=Found(name, Facts(size, modified))) for name in names
        )

    assert listed("a", "b") == listed("a", "b", size=2, modified=2.0)
    assert listed("a", "b") != listed("a")
    assert listed("a", "b") != listed("b", "a")


def test_every_word_of_a_definition_counts_and_the_order_of_keys_does_not() -> None:
    assert fingerprint([{"name": "a", "x": 1}]) == fingerprint([{"x": 1, "name": "a"}])
    assert fingerprint([{"name": "a", "x": 1}]) != fingerprint([{"name": "a", "x": 2}])
