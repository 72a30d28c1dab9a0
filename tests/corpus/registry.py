"""All corpora by name."""

from collections.abc import Mapping
from typing import Final

from tests.corpus import (
    client_files,
    compose_files,
    json_schemas,
    openapi_documents,
    servers,
    uri_templates,
    yaml_files,
)
from tests.corpus.corpora import Corpus

CORPORA: Final[Mapping[str, Corpus]] = {
    "openapi": openapi_documents.CORPUS,
    "servers": servers.CORPUS,
    "client-files": client_files.CORPUS,
    "json-schema": json_schemas.CORPUS,
    "uri-templates": uri_templates.CORPUS,
    "compose-files": compose_files.CORPUS,
    "yaml": yaml_files.CORPUS,
}
