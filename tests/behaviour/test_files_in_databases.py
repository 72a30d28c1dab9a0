"""Files from callers as bind parameters of queries."""

import base64
import sqlite3
from pathlib import Path

from gateway.executors.sql.dialects import POSTGRESQL, dialect_of, tokens_of
from gateway.executors.sql.executor import shown_value
from gateway.executors.sql.query import Statement, pieces_of, statements_of
from gateway.json_types import JsonObject
from gateway.language.files.file_argument import FileArgument
from tests.behaviour.inside import product

FILE = """
databases: {photos: {url: "sqlite:photos.db"}}
tools:
  keep:
    description: Keep a photo.
    input: {name: string, photo: {type: [file, "null"]}}
    sql:
      database: photos
      writes: true
      query: "INSERT INTO photos (name, data) VALUES (:name, :photo)"
  note:
    description: Keep an album as JSON.
    input: {album: {type: object, properties: {cover: {type: file}}}}
    sql: {database: photos, writes: true, query: "INSERT INTO photos (name) VALUES (:album)"}
  find:
    description: Find the names of photos.
    input: {photos: {type: array, items: {type: file}}}
    sql: {database: photos, query: "SELECT name FROM photos WHERE data IN (:photos) ORDER BY name"}
"""
BYTES = b"\x89PNG\r\n\x1a\n\x00'); DROP TABLE photos; --\xff"


async def test_file_is_bound_as_bytes(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "photos.db") as database:
        database.execute("CREATE TABLE photos (name TEXT, data BLOB)")
    photo, other = base64.b64encode(BYTES).decode(), "b3RoZXI="
    async with product(tmp_path, FILE) as client:
        for name, given in (
            ("a", photo),
            ("b", f"data:image/png;base64,{photo}"),
            ("c", other),
            ("d", None),
            ("e", ""),
        ):
            assert await client.text("keep", name=name, photo=given) == "1 row affected"
        found = (await client.call("find", photos=[photo, other]))["structuredContent"]
        assert [row["name"] for row in found["rows"]] == ["a", "b", "c"]
        await client.text("note", album={"cover": photo})
    assert database.execute("SELECT name FROM photos WHERE name LIKE '{%'").fetchall() == [(f'{{"cover":"{photo}"}}',)]
    rows = database.execute(
        "SELECT name, typeof(data), data FROM photos WHERE length(name) = 1 ORDER BY name"
    ).fetchall()
    database.close()
    assert rows == [
        ("a", "blob", BYTES),
        ("b", "blob", BYTES),
        ("c", "blob", b"other"),
        ("d", "null", None),
        ("e", "blob", b""),
    ]


def test_file_has_the_type_bytea_and_explain_shows_no_bytes() -> None:
    [tokens] = statements_of(tokens_of("SELECT length(:photo)", dialect_of("postgresql")))
    schemas: JsonObject = {"photo": {"type": ["file", "null"]}}
    bound = Statement(pieces=pieces_of(tokens), dialect=POSTGRESQL, schemas=schemas).bind(
        {"photo": FileArgument(BYTES)}
    )
    assert bound.text == "SELECT length(CAST($1 AS bytea))"
    assert bound.values == (BYTES,)
    assert shown_value(BYTES) == f"<{len(BYTES)} bytes>"
