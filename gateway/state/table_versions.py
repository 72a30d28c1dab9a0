"""The tables of one store in the database, by version. Used on the database's thread alone."""

import sqlite3
from collections.abc import Iterable

import msgspec

_VERSIONS = "CREATE TABLE IF NOT EXISTS schema_versions (store TEXT PRIMARY KEY, version INTEGER NOT NULL) STRICT"


class Schema(msgspec.Struct, frozen=True, kw_only=True):
    """The tables of a store. To change them, append a step: those that are released are never edited."""

    store: str
    """The store's name, which its tables' names begin with."""
    steps: tuple[str, ...]
    """SQL scripts; the n-th leads from version n to n + 1."""


class NewerSchemaError(Exception):
    """The file was written by a newer version of the gateway, whose tables this one does not know."""


def migrate(connection: sqlite3.Connection, schemas: Iterable[Schema]) -> None:
    """Bring the tables of all stores to their newest version, in one transaction.

    Raises:
        NewerSchemaError: a store's version is above the newest one that is known.
    """
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(_VERSIONS)
    found = dict(connection.execute("SELECT store, version FROM schema_versions"))
    for schema in schemas:
        version = found.get(schema.store, 0)
        if version > len(schema.steps):
            raise NewerSchemaError(f"{schema.store} has version {version}, and {len(schema.steps)} is the newest known")
        for step in schema.steps[version:]:
            for statement in step.split(";"):  # not executescript(), which commits
                connection.execute(statement)
        if version < len(schema.steps):
            connection.execute(
                "INSERT OR REPLACE INTO schema_versions VALUES (?, ?)", (schema.store, len(schema.steps))
            )
    connection.execute("COMMIT")
