"""The section `databases`: what the `sql` backends connect to."""

from collections.abc import Iterator
from typing import Annotated
from urllib.parse import unquote, urlsplit

from gateway.config.models.base import Model, PositiveCount, matching
from gateway.config.models.field_use import Use


class Database(Model):
    """A database that `sql` backends query. Needs the extra `sql`."""

    url: Annotated[
        str, matching(r"[A-Za-z][\w+.-]*:.+", "a URL such as postgresql://app@db/shop or sqlite:notes.db"), Use.SECRET
    ]
    """An SQLAlchemy URL (`postgresql://app@db/shop`), or `sqlite:` and a path relative to this file."""
    password: Annotated[str | None, Use.SECRET] = None
    """The password of the URL's user, unless that has it."""
    pool: PositiveCount = 5
    """The most connections at once; a call waits for one within its `timeout`. Of SQLite these read, and as many
    write."""

    def secrets(self) -> Iterator[str]:
        """The passwords that are written here."""
        if self.password:
            yield self.password
        try:
            written = urlsplit(self.url).password
        except ValueError:
            return
        if written:
            yield written
            # What the driver makes of it, and might quote in an error.
            yield unquote(written)
