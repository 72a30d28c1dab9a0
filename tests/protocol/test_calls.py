"""What observers are told of calls, whatever becomes of them."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gateway.json_types import Json, JsonObject
from gateway.protocol.calls import Call, EndedAs, Ending
from gateway.protocol.dispatcher import Dispatcher
from tests.protocol.peers import ModernPeer, house

FILE = """
tools:
  hello: {description: Greets., content: "hello"}
  fails: {description: Fails., content: "no", is_error: true}
  asks: {description: Asks., confirm: "Sure?", content: "done"}
  waits: {description: Waits., shell: {command: [sleep, "60"]}}
resources:
  note: {uri: "note:///{id}", text: "{{ id }}"}
prompts:
  ask: {description: Asks., arguments: {who: {description: Whom., complete: [ada]}}, messages: [{user: "{{ who }}"}]}
"""


@dataclass
class Recorder:
    begun: list[Call] = field(default_factory=list)
    ended_calls: list[tuple[Call, Ending]] = field(default_factory=list)
    one_began: asyncio.Event = field(default_factory=asyncio.Event)

    def began(self, call: Call) -> None:
        self.begun.append(call)
        self.one_began.set()

    def ended(self, call: Call, ending: Ending) -> None:
        self.ended_calls.append((call, ending))


class Broken:
    def began(self, call: Call) -> None:
        raise RuntimeError("an observer's bug")

    def ended(self, call: Call, ending: Ending) -> None:
        raise RuntimeError("an observer's bug")


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
async def peer(recorder: Recorder, tmp_path: Path) -> AsyncIterator[ModernPeer]:
    (tmp_path / "config.yaml").write_text(FILE)
    async with house(tmp_path) as served:
        runtime = served.dispatcher._runtime
        yield ModernPeer(
            Dispatcher(
                store=runtime.store, services=runtime.services, secret_key=b"key", observers=[Broken(), recorder]
            )
        )


@pytest.mark.parametrize(
    ("method", "params", "kind", "name", "outcome"),
    [
        ("tools/call", {"name": "hello"}, "tool", "hello", EndedAs.OK),
        ("tools/call", {"name": "fails"}, "tool", "fails", EndedAs.TOOL_ERROR),
        ("tools/call", {"name": "hello", "arguments": {"no": 1}}, "tool", "hello", EndedAs.TOOL_ERROR),
        ("tools/call", {"name": "nobody"}, "tool", None, EndedAs.PROTOCOL_ERROR),
        ("tools/call", {"name": ["no", "name"]}, "tool", None, EndedAs.PROTOCOL_ERROR),
        ("tools/call", {"name": "asks"}, "tool", "asks", EndedAs.INPUT_REQUIRED),
        ("resources/read", {"uri": "note:///1"}, "resource", "note", EndedAs.OK),
        ("resources/read", {"uri": "else:///1"}, "resource", None, EndedAs.PROTOCOL_ERROR),
        ("prompts/get", {"name": "ask", "arguments": {"who": "ada"}}, "prompt", "ask", EndedAs.OK),
        (
            "completion/complete",
            {"ref": {"type": "ref/prompt", "name": "ask"}, "argument": {"name": "who", "value": ""}},
            "prompt",
            "ask",
            EndedAs.OK,
        ),
        (
            "completion/complete",
            {"ref": {"type": "ref/resource", "uri": "note:///{id}"}, "argument": {"name": "id", "value": ""}},
            "resource",
            "note",
            EndedAs.OK,
        ),
        ("completion/complete", {"ref": "none"}, "resource", None, EndedAs.PROTOCOL_ERROR),
    ],
)
async def test_each_call_is_told_once_as_it_begins_and_once_as_it_ends(
    peer: ModernPeer, recorder: Recorder, method: str, params: JsonObject, kind: str, name: Json, outcome: EndedAs
) -> None:
    message = await peer.once(method, params)
    (call,) = recorder.begun
    ((ended, ending),) = recorder.ended_calls
    assert ended is call
    assert (call.method, call.kind, call.name, ending.outcome) == (method, kind, name, outcome)
    assert (ending.error is None) == ("error" not in message)


async def test_a_call_that_is_cancelled_ends_for_its_observers_too(peer: ModernPeer, recorder: Recorder) -> None:
    task = asyncio.create_task(peer.once("tools/call", {"name": "waits"}))
    async with asyncio.timeout(10):
        await recorder.one_began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [ending.outcome for _, ending in recorder.ended_calls] == [EndedAs.CANCELLED]


async def test_lists_are_no_calls(peer: ModernPeer, recorder: Recorder) -> None:
    assert "result" in await peer.once("tools/list", {})
    assert recorder.begun == []
