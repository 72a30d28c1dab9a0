"""Runs `sql` backends: one transaction per call, with retries while the database is unavailable."""

import asyncio
import random
from collections.abc import Mapping
from typing import Final

import msgspec

from gateway.deadline import DeadlineExceededError
from gateway.errors import ExecutionError
from gateway.executors.invocation import Explanation, Failure, Invocation, Outcome, Value
from gateway.executors.sql.dialects import dialect_of
from gateway.executors.sql.pools import (
    DatabaseConnectionLostError,
    DatabasePools,
    DatabaseProfile,
    DatabaseUnavailableError,
    Session,
    failure_of,
)
from gateway.executors.sql.query import BoundStatement, Statement
from gateway.executors.sql.rows import Decimals, RowCollector, record_of, table_of
from gateway.json_types import ABSENT, Json, empty
from gateway.language.templates.templating import JsonTemplate, TextTemplate

_FIRST_PAUSE: Final = 0.1
_MAX_PAUSE: Final = 3.0
_ANSWER_SECONDS: Final = 0.05
"""Seconds that are reserved to return the error before the deadline."""


class SqlExecutor(msgspec.Struct, frozen=True, kw_only=True):
    database: DatabaseProfile
    statements: tuple[Statement, ...]
    writes: bool
    max_rows: int
    max_bytes: int
    """The limit in bytes for the JSON of the result."""
    is_single: bool = False
    decimals: Decimals = "string"
    pools: DatabasePools
    bind: Mapping[str, JsonTemplate] = msgspec.field(default_factory=empty)
    settings: Mapping[str, TextTemplate] = msgspec.field(default_factory=empty)

    async def execute(self, invocation: Invocation) -> Outcome:
        rows = await self.rows(invocation)
        return self._single(rows) if self.is_single else _all(rows)

    def explain(self, invocation: Invocation) -> Explanation:
        bound = self._bound(invocation)
        texts = [statement.text.strip() for statement in bound]
        if dialect_of(self.database.dialect).quotes_values:  # show `?` instead of `%s`, and `%` instead of `%%`
            texts = [text % (("?",) * len(statement.values)) for text, statement in zip(texts, bound, strict=True)]
        facts: dict[str, Json] = {
            "database": self.database.shown,
            "statements": texts,
            "values": [dict(enumerate(map(shown_value, statement.values), start=1)) for statement in bound],
            "transaction": "read-write" if self.writes else "read-only",
            "max_rows": self.max_rows,
        }
        return Explanation(does="queries a database", facts=facts)

    async def rows(self, invocation: Invocation) -> RowCollector:
        """Run the statements and return the rows of the last statement that returns rows.

        Raises:
            ExecutionError: the database rejected a statement, or was unavailable until the deadline.
        """
        bound = self._bound(invocation)
        facts = {"db.system.name": self.database.dialect, "db.namespace": self.database.name}
        with invocation.trace.step("sql", kind="client", facts=facts) as step:
            attempt = 1
            while True:
                try:
                    return await self._attempt(bound, invocation)
                except DatabaseUnavailableError as error:
                    self.pools.note_failure(self.database)
                    # The pause is random, so that interrupted calls do not all retry at the same time.
                    pause = min(_FIRST_PAUSE * 2 ** (attempt - 1), _MAX_PAUSE) * (0.5 + random.random() / 2)  # noqa: S311 - spreads load
                    left = invocation.deadline.at - asyncio.get_running_loop().time()
                    if left <= _ANSWER_SECONDS:
                        step.fail("unavailable")
                        tried = f" ({attempt} attempts)" if attempt > 1 else ""
                        raise ExecutionError(
                            f"The database `{self.database.name}` is unavailable{tried}: {error}"
                        ) from error
                    await asyncio.sleep(min(pause, left - _ANSWER_SECONDS))
                    attempt += 1

    def _bound(self, invocation: Invocation) -> list[BoundStatement]:
        variables = invocation.variables
        bound = {name: template(variables) for name, template in self.bind.items()}
        arguments = {**variables, **{name: None if value is ABSENT else value for name, value in bound.items()}}
        set_values = [_setting(name, template.render(variables)) for name, template in self.settings.items()]
        return [*set_values, *(statement.bind(arguments) for statement in self.statements)]

    async def _attempt(self, bound: list[BoundStatement], invocation: Invocation) -> RowCollector:
        """Run one transaction in a separate task, which can outlive a cancelled call."""
        committing = asyncio.Event()
        transaction = self._transaction(bound, committing, deadline=invocation.deadline.at)
        task = asyncio.create_task(transaction, name=f"sql {self.database.name}")
        try:
            async with invocation.deadline.limit(f"The database `{self.database.name}`"):
                # Cancelling this wait does not cancel the task.
                await asyncio.wait({task})
            return task.result()
        except DeadlineExceededError as error:
            if committing.is_set():
                raise ExecutionError(f"{error}. It is unknown whether the transaction was committed") from error
            raise
        finally:
            # Hold the permit until the database has stopped the statement.
            if not task.done():
                task.cancel()
                invocation.permit.hold_until_done(self.pools.own(_ended(task), name="sql that ends"))

    async def _transaction(
        self, bound: list[BoundStatement], committing: asyncio.Event, *, deadline: float
    ) -> RowCollector:
        """Run the statements. `committing` is set while it is unknown whether a commit succeeded."""
        try:
            async with self.pools.pool(self.database, read_only=not self.writes).session() as session:
                try:
                    return await self._run(session, bound, committing, deadline=deadline)
                except asyncio.CancelledError:
                    # Stop the statement before the connection returns to the pool.
                    await session.stop()
                    raise
        except ExecutionError:
            raise
        # The exception classes of drivers have no common base.
        except Exception as error:
            raise failure_of(error, self.database) from error

    async def _run(
        self, session: Session, bound: list[BoundStatement], committing: asyncio.Event, *, deadline: float
    ) -> RowCollector:
        rows = RowCollector(max_rows=self.max_rows, max_bytes=self.max_bytes, decimals=self.decimals)
        try:
            await session.begin(seconds=deadline - asyncio.get_running_loop().time(), statements=len(bound))
            for statement in bound:
                await session.run(statement, rows)
            if self.writes:
                committing.set()
                # Do not clear the event in `finally`, because the event must stay set after a failed commit.
                await session.commit()
                committing.clear()
            else:
                await session.roll_back()
        except Exception as error:
            failure = await self._rolled_back(session, error, committing)
            if failure is None:
                raise
            raise failure from error
        return rows

    async def _rolled_back(
        self, session: Session, error: Exception, committing: asyncio.Event
    ) -> ExecutionError | None:
        """Roll back after an error. Return the error to raise, or None if the database did not cause the error."""
        failure = session.failure_of(error)
        if committing.is_set() and isinstance(failure, DatabaseConnectionLostError):
            # Do not use DatabaseUnavailableError, because a retry could apply the changes twice.
            failure = ExecutionError(f"{failure}. It is unknown whether the transaction was committed")
        try:
            await session.roll_back()
        except Exception as second:
            # On a lost connection, the rollback fails too. The first error is more useful.
            if session.failure_of(second) is None:
                raise
        if failure is None or isinstance(failure, DatabaseUnavailableError):
            return failure
        return ExecutionError(f"The database `{self.database.name}` rejected the query: {failure}")

    def _single(self, rows: RowCollector) -> Outcome:
        is_incomplete = rows.is_truncated or rows.omitted > 0
        if not rows.rows:
            reason = "the row exceeds the output size limit (max_size)" if is_incomplete else "it returned no row"
            return Failure(text=f"The query must return exactly one row, but {reason}")
        if len(rows.rows) > 1 or is_incomplete:
            return Failure(text="The query must return exactly one row, but it returned several")
        return Value(value=rows.rows[0], size=rows.size, text=record_of(rows.rows[0]))


def _setting(name: str, value: str) -> BoundStatement:
    # Qualify the name, because search_path can select another function. `true` means SET LOCAL.
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


async def _ended(task: asyncio.Task[RowCollector]) -> None:
    await asyncio.wait({task})
    if not task.cancelled():
        # Retrieve the exception, because the event loop would otherwise log a warning.
        task.exception()
