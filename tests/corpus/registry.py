"""All corpora by name."""

from collections.abc import Mapping
from typing import Final

from tests.corpus import json_schemas, uri_templates, yaml_files
from tests.corpus.corpora import Corpus

CORPORA: Final[Mapping[str, Corpus]] = {
    "json-schema": json_schemas.CORPUS,
    "uri-templates": uri_templates.CORPUS,
    "yaml": yaml_files.CORPUS,
}
