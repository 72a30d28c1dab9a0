"""Observers are notified of all calls, with each outcome."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gateway.json_types import Json, JsonObject
from gateway.protocol.dispatcher import Dispatcher
from gateway.state.keys import SigningKeys
from gateway.telemetry.observer import CallFacts, CallResult, Outcome
from tests.protocol.peers import ModernPeer, serve_folder

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
    begun: list[CallFacts] = field(default_factory=list)
    ended_calls: list[tuple[CallFacts, CallResult]] = field(default_factory=list)
    one_began: asyncio.Event = field(default_factory=asyncio.Event)

    def began(self, call: CallFacts) -> None:
        self.begun.append(call)
        self.one_began.set()

    def ended(self, call: CallFacts, ending: CallResult) -> None:
        self.ended_calls.append((call, ending))


class Broken:
    def began(self, call: CallFacts) -> None:
        raise RuntimeError("an observer's bug")

    def ended(self, call: CallFacts, ending: CallResult) -> None:
        raise RuntimeError("an observer's bug")


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
async def peer(recorder: Recorder, tmp_path: Path) -> AsyncIterator[ModernPeer]:
    (tmp_path / "config.yaml").write_text(FILE)
    async with serve_folder(tmp_path) as served:
        runtime = served.dispatcher._server
        yield ModernPeer(
            Dispatcher(
                store=runtime.store,
                services=runtime.services,
                keys=SigningKeys([b"key"]),
                observers=[Broken(), recorder],
            )
        )


@pytest.mark.parametrize(
    ("method", "params", "kind", "name", "outcome"),
    [
        ("tools/call", {"name": "hello"}, "tool", "hello", Outcome.OK),
        ("tools/call", {"name": "fails"}, "tool", "fails", Outcome.TOOL_ERROR),
        ("tools/call", {"name": "hello", "arguments": {"no": 1}}, "tool", "hello", Outcome.TOOL_ERROR),
        ("tools/call", {"name": "nobody"}, "tool", None, Outcome.PROTOCOL_ERROR),
        ("tools/call", {"name": ["no", "name"]}, "tool", None, Outcome.PROTOCOL_ERROR),
        ("tools/call", {"name": "asks"}, "tool", "asks", Outcome.INPUT_REQUIRED),
        ("resources/read", {"uri": "note:///1"}, "resource", "note", Outcome.OK),
        ("resources/read", {"uri": "else:///1"}, "resource", None, Outcome.PROTOCOL_ERROR),
        ("prompts/get", {"name": "ask", "arguments": {"who": "ada"}}, "prompt", "ask", Outcome.OK),
        (
            "completion/complete",
            {"ref": {"type": "ref/prompt", "name": "ask"}, "argument": {"name": "who", "value": ""}},
            "prompt",
            "ask",
            Outcome.OK,
        ),
        (
            "completion/complete",
            {"ref": {"type": "ref/resource", "uri": "note:///{id}"}, "argument": {"name": "id", "value": ""}},
            "resource",
            "note",
            Outcome.OK,
        ),
        ("completion/complete", {"ref": "none"}, "resource", None, Outcome.PROTOCOL_ERROR),
    ],
)
async def test_observers_are_called_once_at_start_and_end(
    peer: ModernPeer, recorder: Recorder, method: str, params: JsonObject, kind: str, name: Json, outcome: Outcome
) -> None:
    message = await peer.once(method, params)
    (call,) = recorder.begun
    ((ended, ending),) = recorder.ended_calls
    assert ended is call
    assert (call.method, call.kind, call.name, ending.outcome) == (method, kind, name, outcome)
    assert (ending.error is None) == ("error" not in message)


async def test_observers_are_notified_of_cancelled_calls(peer: ModernPeer, recorder: Recorder) -> None:
    task = asyncio.create_task(peer.once("tools/call", {"name": "waits"}))
    async with asyncio.timeout(10):
        await recorder.one_began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [ending.outcome for _, ending in recorder.ended_calls] == [Outcome.CANCELLED]


async def test_observers_are_not_called_for_lists(peer: ModernPeer, recorder: Recorder) -> None:
    assert "result" in await peer.once("tools/list", {})
    assert recorder.begun == []
