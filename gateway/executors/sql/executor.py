"""The executor of `sql` backends: one transaction a call, tried again while the database is away."""

import asyncio
import random
from collections.abc import Mapping
from typing import Final

import msgspec

from gateway.deadline import DeadlineExceededError
from gateway.errors import ExecutionError
from gateway.executors.invocation import Explanation, Failure, Invocation, Outcome, Value
from gateway.executors.sql.pools import DatabasePools, DatabaseProfile
from gateway.executors.sql.query import BoundStatement, Statement
from gateway.executors.sql.rows import Decimals, RowCollector, RowLimits, record_of, table_of
from gateway.executors.sql.sessions import DatabaseAwayError, DatabaseConnectionLostError, Session, failure_of
from gateway.json_types import ABSENT, Json, empty
from gateway.language.templates.templating import JsonTemplate, TextTemplate

_FIRST_PAUSE: Final = 0.1
_MAX_PAUSE: Final = 3.0
"""Seconds between two attempts to reach a database."""
_ANSWER_SECONDS: Final = 0.05
"""Before the deadline, so that the reason for the attempts can be told."""


class SqlExecutor(msgspec.Struct, frozen=True, kw_only=True):
    """Runs the statements of one definition."""

    database: DatabaseProfile
    statements: tuple[Statement, ...]
    writes: bool
    limits: RowLimits
    is_single: bool = False
    decimals: Decimals = "string"
    pools: DatabasePools
    bind: Mapping[str, JsonTemplate] = msgspec.field(default_factory=empty)
    """Values that are bound beside the arguments."""
    settings: Mapping[str, TextTemplate] = msgspec.field(default_factory=empty)
    """Settings of the transaction, by name."""

    async def execute(self, invocation: Invocation) -> Outcome:
        rows = await self.rows(invocation)
        return self._single(rows) if self.is_single else _all(rows)

    def explain(self, invocation: Invocation) -> Explanation:
        bound = self._bound(invocation)
        facts: dict[str, Json] = {
            "database": self.database.shown,
            "statements": [statement.text.strip() for statement in bound],
            "values": [dict(enumerate(map(shown_value, statement.values), start=1)) for statement in bound],
            "transaction": "read-write" if self.writes else "read-only",
            "max_rows": self.limits.max_rows,
        }
        return Explanation(does="queries a database", facts=facts)

    async def rows(self, invocation: Invocation) -> RowCollector:
        """Run the statements, and return what the last one returned that returns rows.

        Raises:
            ExecutionError: the database refused, or was away until the deadline.
        """
        bound = self._bound(invocation)
        facts = {"db.system.name": self.database.dialect, "db.namespace": self.database.name}
        with invocation.trace.step("sql", kind="client", facts=facts) as step:
            attempt = 1
            while True:
                try:
                    return await self._attempt(bound, invocation)
                except DatabaseAwayError as error:
                    self.pools.note_failure(self.database)
                    # Half of it at random: the calls that a restart interrupted must not all come back at once.
                    pause = min(_FIRST_PAUSE * 2 ** (attempt - 1), _MAX_PAUSE) * (0.5 + random.random() / 2)  # noqa: S311 - spreads load
                    left = invocation.deadline.at - asyncio.get_running_loop().time()
                    if left <= _ANSWER_SECONDS:
                        step.fail("away")
                        tried = f" ({attempt} attempts)" if attempt > 1 else ""
                        raise ExecutionError(f"The database `{self.database.name}` is away{tried}: {error}") from error
                    await asyncio.sleep(min(pause, left - _ANSWER_SECONDS))
                    attempt += 1

    def _bound(self, invocation: Invocation) -> list[BoundStatement]:
        variables = invocation.variables
        bound = {name: template.render(variables) for name, template in self.bind.items()}
        arguments = {**variables, **{name: None if value is ABSENT else value for name, value in bound.items()}}
        set_values = [_setting(name, template.render(variables)) for name, template in self.settings.items()]
        return [*set_values, *(statement.bind(arguments) for statement in self.statements)]

    async def _attempt(self, bound: list[BoundStatement], invocation: Invocation) -> RowCollector:
        """Run one transaction in a task of its own, which goes on until the database has stopped it."""
        transaction = _Transaction(self, bound, invocation)
        task = asyncio.create_task(transaction.run(), name=f"sql {self.database.name}")
        try:
            async with invocation.deadline.limit(f"The database `{self.database.name}`"):
                # A cancelled `wait` leaves the task alone: the caller is answered while the database still stops.
                await asyncio.wait({task})
            return task.result()
        except DeadlineExceededError as error:
            if transaction.is_committing:
                raise ExecutionError(f"{error}; whether it was committed is not known") from error
            raise
        finally:
            # The call is answered; its permit is held until the database has stopped, or it would run unseen.
            if not task.done():
                task.cancel()
                invocation.permit.hold_until_done(self.pools.own(_ended(task), name="sql that ends"))

    def _single(self, rows: RowCollector) -> Outcome:
        if not rows.rows:
            reason = "it is too long for the result" if rows.is_truncated or rows.omitted else "it returned none"
            return Failure(text=f"The query promises one row, and {reason}")
        if len(rows.rows) > 1 or rows.is_truncated or rows.omitted:
            return Failure(text="The query promises one row, and there are more")
        return Value(value=rows.rows[0], size=rows.size, text=record_of(rows.rows[0]))


def _setting(name: str, value: str) -> BoundStatement:
    """Return the statement that sets a parameter of PostgreSQL until the end of the transaction."""
    # With its schema, for the database's search_path may have another `set_config`; `true` is SET LOCAL.
    text = "SELECT pg_catalog.set_config(CAST($1 AS text), CAST($2 AS text), true)"
    return BoundStatement(text=text, values=(name, value), names=("name", name))


def shown_value(value: Json) -> str:
    return f"<{len(value)} bytes>" if isinstance(value, bytes) else repr(value)


def _all(rows: RowCollector) -> Value:
    is_truncated = rows.is_truncated or rows.omitted > 0
    value: dict[str, Json] = {"columns": rows.columns, "rows": rows.rows, "truncated": is_truncated}
    if rows.omitted:
        value["omitted"] = rows.omitted
    if not rows.has_result and rows.affected is not None:
        value["affected"] = rows.affected
        counted = "1 row" if rows.affected == 1 else f"{rows.affected} rows"
        return Value(value=value, size=rows.size, text=f"{counted} affected")
    if not rows.has_result:
        return Value(value=value, size=rows.size, text="done")
    table = table_of(rows.columns, rows.rows, is_truncated=rows.is_truncated, omitted=rows.omitted)
    return Value(value=value, size=rows.size, text=table)


class _Transaction:
    """One attempt to run all statements of a call."""

    def __init__(self, executor: SqlExecutor, bound: list[BoundStatement], invocation: Invocation) -> None:
        self._executor: Final = executor
        self._bound: Final = bound
        self._deadline: Final = invocation.deadline
        self.is_committing = False
        """Whether the commit was sent, and not answered."""

    async def run(self) -> RowCollector:
        executor = self._executor
        pool = executor.pools.pool(executor.database, read_only=not executor.writes)
        try:
            async with pool.session() as session:
                try:
                    return await self._within(session)
                except asyncio.CancelledError:
                    # Before the connection goes back: the next call must not get it with a statement that still runs.
                    await session.stop()
                    raise
        except ExecutionError:
            raise
        # Each driver raises classes of its own, which have nothing but Exception in common.
        except Exception as error:
            raise failure_of(error, executor.database.name) from error

    async def _within(self, session: Session) -> RowCollector:
        executor = self._executor
        rows = RowCollector(executor.limits, decimals=executor.decimals)
        try:
            seconds = self._deadline.at - asyncio.get_running_loop().time()
            await session.begin(seconds=seconds, statements=len(self._bound))
            for statement in self._bound:
                await session.run(statement, rows)
            if executor.writes:
                await self._commit(session)
            else:
                await session.roll_back()
        except Exception as error:
            failure = await self._rolled_back(session, error)
            if failure is None:
                raise
            raise failure from error
        return rows

    async def _commit(self, session: Session) -> None:
        self.is_committing = True
        # No `finally`: after a commit that failed, it must still be known that one was sent.
        await session.commit()
        self.is_committing = False

    async def _rolled_back(self, session: Session, error: Exception) -> ExecutionError | None:
        """Roll back after an error, and say what it means; None if it is none of the database's."""
        failure = session.failure_of(error)
        if self.is_committing and isinstance(failure, DatabaseConnectionLostError):
            # No DatabaseAwayError any more, after which the call would be tried again, and might do its work twice.
            failure = ExecutionError(f"{failure}; whether it was committed is not known")
        try:
            await session.roll_back()
        except Exception as second:
            # On a lost connection the rollback fails, too; the first error tells more.
            if session.failure_of(second) is None:
                raise
        if failure is None or isinstance(failure, DatabaseAwayError):
            return failure
        return ExecutionError(f"The database `{self._executor.database.name}` refused: {failure}")


async def _ended(task: asyncio.Task[RowCollector]) -> None:
    """Wait for the end of a transaction that nobody waits for any more; its result is of no interest."""
    await asyncio.wait({task})
    if not task.cancelled():
        # Retrieved, because the event loop would log it otherwise.
        task.exception()
