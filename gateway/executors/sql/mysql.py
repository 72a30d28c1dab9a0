"""MySQL and MariaDB sessions with asyncmy, which inserts values as quoted literals and reads rows one by one."""

import asyncio
import logging
import re
import ssl
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import asyncmy
from asyncmy.constants import FIELD_TYPE
from asyncmy.converters import conversions
from asyncmy.cursors import SSCursor
from asyncmy.errors import MySQLError
from sqlalchemy import URL, NullPool, make_url
from sqlalchemy.ext.asyncio import create_async_engine

from gateway.errors import ExecutionError
from gateway.executors.sql.connections import PooledEngine
from gateway.executors.sql.dialects import StatementError
from gateway.executors.sql.pools import (
    DatabaseConnectionLostError,
    DatabaseProfile,
    DatabaseUnavailableError,
    Engine,
    Session,
    is_unavailable,
    offset_of_error,
)
from gateway.executors.sql.query import BoundStatement
from gateway.executors.sql.rows import RowCollector, parsed

_STOP_SECONDS: Final = 5.0
_SLACK_SECONDS: Final = 0.5
"""Seconds added to the server's time limit, so that the gateway normally cancels first."""
_LOST: Final = frozenset({0, 2006, 2013, 1927})
"""Codes of connection errors without an SQLSTATE of class 08. Code 0 means that the driver is not connected."""
_ROLLED_BACK: Final = frozenset({1205, 1213})
"""Codes of a lock wait timeout and a deadlock. The transaction can succeed after a retry."""
_TLS_OPTIONS: Final = ("ssl_ca", "ssl_capath", "ssl_cert", "ssl_check_hostname", "ssl_cipher", "ssl_key")
_PREPARED: Final = "mcp-gateway prepared"
_PREPARATION: Final = (
    # The driver escapes literals with backslashes in UTF-8. Without strict mode, values that do not fit are changed.
    "SET SESSION character_set_client = utf8mb4, character_set_results = utf8mb4,"
    " collation_connection = utf8mb4_general_ci, time_zone = '+00:00', sql_mode = CONCAT_WS(',', 'STRICT_ALL_TABLES',"
    " NULLIF(REPLACE(REPLACE(@@sql_mode, 'NO_BACKSLASH_ESCAPES,', ''), 'NO_BACKSLASH_ESCAPES', ''), ''))"
)
_SESSION_STATE: Final = re.compile(
    r"@|/\*M?!|\b(?:CALL|DO|EXECUTE|FLUSH|PREPARE|SET|USE|XA|\w*LOCK\w*)\b", re.IGNORECASE
)
"""Matches words of statements that can leave settings, variables, locks or temporary tables behind."""
_CONVERTERS: Final[Mapping[Any, Any]] = {
    **conversions,
    # Python's types cannot represent `0000-00-00` or an hour above 23.
    FIELD_TYPE.DATE: str,
    FIELD_TYPE.TIME: str,
    FIELD_TYPE.DATETIME: lambda text: text.replace(" ", "T"),
    FIELD_TYPE.TIMESTAMP: lambda text: f"{text.replace(' ', 'T')}+00:00",
    FIELD_TYPE.BIT: int.from_bytes,
    FIELD_TYPE.JSON: parsed,
}


def open_engine(profile: DatabaseProfile, *, read_only: bool) -> Engine:
    # The driver would log the server's warnings, which can contain values.
    logging.getLogger("asyncmy").setLevel(logging.ERROR)
    url = make_url(profile.url)
    connect_args: dict[str, Any] = {"conv": _CONVERTERS, "charset": "utf8mb4"}
    if (tls := _tls_of(url)) is not None:
        connect_args["ssl"] = tls
    url = url.difference_update_query(["charset", "ssl", *_TLS_OPTIONS])

    async def kill(thread: int) -> None:
        engine = create_async_engine(url, poolclass=NullPool, connect_args=connect_args)
        async with engine.connect() as connection:
            await connection.exec_driver_sql(f"KILL {thread:d}")

    async def new_session(raw: Any) -> Session:
        connection = raw.driver_connection
        if read_only and _PREPARED not in raw.info:
            # Transactions that a procedure starts must be read-only, too.
            await connection.query("SET SESSION TRANSACTION READ ONLY")
            raw.info[_PREPARED] = True
        return MysqlSession(connection, read_only=read_only, kill=kill)

    return PooledEngine(url, size=profile.size, connect_args=connect_args, new_session=new_session)


def _tls_of(url: URL) -> ssl.SSLContext | None:
    """Return a TLS context that always verifies the certificate.

    The driver's own context verifies the certificate only if `ssl_ca` is set.
    """
    options: dict[str, Any] = {key: url.query[key] for key in _TLS_OPTIONS if key in url.query}
    if not options and str(url.query.get("ssl", "")).lower() not in {"1", "true"}:
        return None
    context = ssl.create_default_context(cafile=options.get("ssl_ca"), capath=options.get("ssl_capath"))
    if "ssl_cert" in options:
        context.load_cert_chain(options["ssl_cert"], options.get("ssl_key"))
    if "ssl_cipher" in options:
        context.set_ciphers(options["ssl_cipher"])
    return context


class MysqlSession:
    def __init__(self, connection: asyncmy.Connection, *, read_only: bool, kill: Any) -> None:
        self._connection: Final[Any] = connection
        self._read_only: Final = read_only
        self._kill: Final = kill
        self._has_state = not read_only
        self._unread: SSCursor | None = None
        """The cursor of a result whose last rows were not read."""

    @property
    def is_usable(self) -> bool:
        connection = self._connection
        return not self._has_state and connection.connected and not connection.get_transaction_status()

    async def begin(self, *, seconds: float, statements: int) -> None:  # noqa: ARG002 - part of `Session`
        seconds = min(max(seconds, 0) + _SLACK_SECONDS, 31_536_000)
        is_mariadb = "MariaDB" in self._connection.get_server_info()
        limit = f"max_statement_time = {seconds:f}" if is_mariadb else f"max_execution_time = {int(seconds * 1000)}"
        # Prepare the session for every call, because a stored function can change the session.
        await self._connection.query(f"{_PREPARATION}, {limit}")
        await self._connection.query(f"START TRANSACTION{' READ ONLY' if self._read_only else ''}")

    async def run(self, statement: BoundStatement, rows: RowCollector) -> None:
        if any(type(value) is int and not -(2**63) <= value < 2**64 for value in statement.values):
            raise OverflowError
        self._has_state = self._has_state or _SESSION_STATE.search(statement.text) is not None
        await self._read_rest()
        cursor = self._connection.cursor(SSCursor)
        await cursor.execute(statement.text, statement.values)
        while True:
            if not cursor.description:
                rows.note_affected(cursor.rowcount)
            else:
                rows.begin([column[0] for column in cursor.description])
                for wanted in rows.fetches():
                    rows.add(await cursor.fetchmany(wanted))
                if not rows.is_exhausted:
                    self._unread = cursor
                    return
            if not await cursor.nextset():  # a procedure can return several results
                return

    async def commit(self) -> None:
        await self._read_rest()
        await self._connection.commit()

    async def roll_back(self) -> None:
        if self._unread is not None:
            # A rollback would have to read the remaining rows first. Closing the connection also rolls back.
            self._connection.close()
        elif self._connection.connected:
            await self._connection.rollback()

    async def _read_rest(self) -> None:
        if self._unread is not None:
            await self._unread.close()
            self._unread = None

    async def stop(self) -> None:
        self._connection.close()
        async with asyncio.timeout(_STOP_SECONDS):
            with suppress(Exception):  # the server can have lost the connection already
                await self._kill(self._connection.thread_id())

    async def prepare(self, statement: BoundStatement) -> None:
        text = statement.text % (("?",) * len(statement.values))
        try:
            prepared = await self._connection.prepare(text)
        except MySQLError as error:
            raise StatementError(_message(error), offset_of_error(_message(error), statement.text)) from error
        await prepared.close()

    def failure_of(self, error: Exception) -> ExecutionError | None:
        match error:
            case MySQLError(args=(int(code), *_)):
                if code in _LOST or is_unavailable(getattr(error, "sqlstate", None) or ""):
                    return DatabaseConnectionLostError(_message(error))
                # Do not use DatabaseConnectionLostError, because the server has rolled back.
                return (DatabaseUnavailableError if code in _ROLLED_BACK else ExecutionError)(_message(error))
            case OverflowError():
                return ExecutionError("an integer exceeds MySQL's 64 bits")
            case MySQLError() | ValueError() | RuntimeError():
                return ExecutionError(str(error))
            case _:
                return None


def _message(error: Exception) -> str:
    return str(error.args[1]) if len(error.args) > 1 else str(error)
