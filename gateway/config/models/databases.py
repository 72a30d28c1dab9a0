"""The section `databases`: database connections for `sql` backends."""

from collections.abc import Iterator
from typing import Annotated
from urllib.parse import unquote, urlsplit

from gateway.config.models.base import Model, PositiveCount, matching
from gateway.config.models.field_use import Use


class Database(Model):
    """A database for `sql` backends. Requires the extra `sql`."""

    url: Annotated[
        str, matching(r"[A-Za-z][\w+.-]*:.+", "a URL such as postgresql://app@db/shop or sqlite:notes.db"), Use.SECRET
    ]
    """An SQLAlchemy URL (`postgresql://app@db/shop`), or `sqlite:` and a path relative to this file."""
    password: Annotated[str | None, Use.SECRET] = None
    """Password of the user in the URL, unless the URL contains it."""
    pool: PositiveCount = 5
    """Maximum number of connections. A call waits for a free connection within its `timeout`. For SQLite, this is the
    number of readers, and the same number of writers is allowed."""

    def secrets(self) -> Iterator[str]:
        """Return the passwords of this entry."""
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
