"""Lines become progress messages. Fast lines are dropped, and pipes are never blocked."""

import asyncio
import time

from gateway.config.secrets.redactor import Redactor
from gateway.executors.output.sanitizer import Sanitizer
from gateway.executors.shell.progress_lines import MAX_MESSAGE_LENGTH, PER_SECOND, ProgressLines
from tests.executors.recording import RecordingContext
from tests.waiting import until


def lines_to(context: RecordingContext, *secrets: str) -> ProgressLines:
    return ProgressLines(context, sanitizer=Sanitizer(redactor=Redactor(secrets)))


async def test_each_line_is_a_message_with_its_number(context: RecordingContext) -> None:
    async with lines_to(context) as lines:
        lines.feed(b"one\ntw")
        lines.feed(b"o\r\n\n  \nthr\xffee \x1b[1mbold\x1b[0m\rfour")
    assert context.progressed == [
        (1, None, "one"),
        (2, None, "two"),
        (3, None, "thr\ufffdee bold"),
        (4, None, "four"),
    ]


async def test_lines_arrive_while_the_child_runs(context: RecordingContext) -> None:
    async with lines_to(context) as lines:
        lines.feed(b"now\n")
        await until(lambda: context.progressed)


async def test_many_progress_lines_are_dropped_with_increasing_numbers(context: RecordingContext) -> None:
    began = time.monotonic()
    async with lines_to(context) as lines:
        for number in range(1, 10_001):
            lines.feed(b"%d\n" % number)
            if number % 100 == 0:
                await asyncio.sleep(0)
    values = [value for value, _, _ in context.progressed]
    assert values == sorted(set(values))
    assert values[-1] == 10_000
    # The last lines are sent at once.
    assert len(values) <= PER_SECOND * (2 + int(time.monotonic() - began))
    assert context.progressed[-1][2] == "10000"


async def test_twenty_lines_at_once_are_not_dropped(context: RecordingContext) -> None:
    async with lines_to(context) as lines:
        lines.feed(b"".join(b"%d\n" % number for number in range(PER_SECOND)))
    assert [message for _, _, message in context.progressed] == [str(number) for number in range(PER_SECOND)]


async def test_endless_line_is_truncated(context: RecordingContext) -> None:
    async with lines_to(context) as lines:
        for _ in range(100):
            lines.feed(b"x" * 64 * 1024)
        lines.feed(b"\nnext\n")
    assert context.progressed == [(1, None, "x" * MAX_MESSAGE_LENGTH), (2, None, "next")]


async def test_secret_split_between_chunks_is_masked(context: RecordingContext) -> None:
    async with lines_to(context, "correct-horse") as lines:
        lines.feed(b"token correct-")
        lines.feed(b"horse!\n")
    assert context.progressed == [(1, None, "token ***!")]


class StuckContext(RecordingContext):
    async def progress(self, value: float, total: float | None = None, message: str | None = None) -> None:
        await asyncio.Event().wait()


async def test_peer_that_reads_nothing_does_not_delay_the_end() -> None:
    async with asyncio.timeout(15), lines_to(StuckContext()) as lines:
        for _ in range(1000):
            lines.feed(b"x" * 1000 + b"\n")


async def test_failed_call_does_not_wait_for_its_peer() -> None:
    lines = lines_to(StuckContext())
    await lines.__aenter__()
    lines.feed(b"x\n")
    async with asyncio.timeout(15):
        await lines.__aexit__(ZeroDivisionError, ZeroDivisionError(), None)
    assert asyncio.all_tasks() == {asyncio.current_task()}
