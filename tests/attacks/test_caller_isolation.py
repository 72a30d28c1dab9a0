"""Sessions, streams, states and outputs of one caller are unknown to others.

There are three callers: two API keys, and a token whose subject has the name of one of the keys.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import pytest

from gateway.json_types import Json
from tests.attacks.client import TIMEOUT_SECONDS, Answer, Fields, SessionClient, initialize
from tests.attacks.issuer import issuing
from tests.attacks.target import Plan, Target, attacking
from tests.authorization_server import AuthorizationServer
from tests.messages import ENVELOPE
from tests.requirements import requirement

AUDIENCE: Final = "https://tools.example.com/mcp"
OPERATOR: Final = "operator-key-Yf6Kq2Vb9Xw4"
ALICE, MALLORY = "key-of-alice-Rt7Lm3Zc8Hd1", "key-of-mallory-Qs4Nv6Bx2Kj9"
FILE: Final = f"""
plugins: [plugins]
auth:
  api_keys:
    operator: {{secret: "{OPERATOR}", scopes: ["gateway:admin"]}}
    alice: {{secret: "{ALICE}"}}
    mallory: {{secret: "{MALLORY}"}}
  oauth: {{issuer: "%s", audience: "{AUDIENCE}"}}
tools:
  guarded: {{description: Needs a scope., access: {{scopes: [deep]}}, content: [{{text: Deep.}}]}}
  hello: {{description: Says hello., content: [{{text: Hello.}}]}}
  careful: {{description: Asks first., confirm: "Really?", content: [{{text: Done.}}]}}
  large: {{description: Says much., python: "much:large", output: {{overflow: resource, max_size: 1KiB}}}}
  once: {{description: Draws a random number and asks., python: "much:draw"}}
"""
PLUGIN: Final = '''
import secrets
from gateway.plugin import Context

def large() -> str:
    """Say much."""
    return "of alice " * 1000

async def draw(context: Context) -> str:
    """Draw a number, ask, and return it."""
    async def number() -> str:
        return secrets.token_hex(4)
    drawn = await context.once("number", number)
    answer = await context.elicit("name", "Your name?", {"type": "object", "properties": {"name": {"type": "string"}}})
    return f"{drawn} {answer.action}"
'''
ASKABLE: Final = {**ENVELOPE, "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}


@dataclass(frozen=True, kw_only=True)
class People:
    """The header fields of each caller's requests."""

    target: Target
    issuer: AuthorizationServer
    alice: Fields
    mallory: Fields
    namesake: Fields
    """A token whose subject is `alice`."""

    @property
    def others(self) -> list[Fields]:
        return [self.mallory, self.namesake]

    def call(self, who: Fields, tool: str, **more: Json) -> Json:
        """Return the response to a modern call."""
        params = {"name": tool, "arguments": {}, "_meta": ASKABLE, **more}
        answer = self.target.client.modern("tools/call", params, fields=list(who))
        return answer.messages[-1]

    def read(self, who: Fields, uri: str) -> Json:
        return self.target.client.modern("resources/read", {"uri": uri}, fields=list(who)).messages[-1]


@pytest.fixture(scope="module")
def issuer() -> Iterator[AuthorizationServer]:
    with issuing("ES256") as server:
        yield server


@pytest.fixture(scope="module")
def daemon(issuer: AuthorizationServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    plan = Plan(
        file=FILE % issuer.issuer,
        files={"plugins/much.py": PLUGIN},
        operator=(("Authorization", f"Bearer {OPERATOR}"),),
        secrets=[OPERATOR, ALICE, MALLORY],
    )
    with attacking(plan, tmp_path_factory.mktemp("attacked")) as target:
        yield target


@pytest.fixture
def people(target: Target, issuer: AuthorizationServer) -> People:
    return People(
        target=target,
        issuer=issuer,
        alice=[("Authorization", f"Bearer {ALICE}")],
        mallory=[("X-API-Key", MALLORY)],
        namesake=[("Authorization", f"Bearer {issuer.token(AUDIENCE, sub='alice')}")],
    )


@requirement("authorization/sessions")
def test_stolen_session_id_is_unknown_to_other_callers(people: People) -> None:
    client = people.target.client
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    with client.session(fields=people.alice) as session:
        for other in people.others:
            stolen, invented = SessionClient(client, session.id, tuple(other)), SessionClient(client, "x", tuple(other))
            for message in (ping, {"jsonrpc": "2.0", "method": "notifications/initialized"}):
                assert _same(stolen.post(message), invented.post(message)) == 404
            for method in ("GET", "DELETE"):
                theirs = client.request(method, "/mcp", fields=stolen.fields)
                assert _same(theirs, client.request(method, "/mcp", fields=invented.fields)) == 404
        assert client.post(ping, fields=[("Mcp-Session-Id", session.id)]).status == 401
        assert session.ask("ping") == {"jsonrpc": "2.0", "id": 1, "result": {}}


@requirement("authorization/sessions")
def test_guessed_event_id_returns_nothing_of_another_session(people: People) -> None:
    client = people.target.client
    with client.session(fields=people.alice) as mine, client.session(fields=people.mallory) as theirs:
        fields = [("Accept", "text/event-stream"), ("Mcp-Session-Id", mine.id), *people.alice]
        streamed = client.post(_call("hello"), fields=fields)
        assert streamed.messages[-1]["result"]["content"][0]["text"] == "Hello."
        events = [line[4:] for line in streamed.body.decode().splitlines() if line.startswith("id: ")]
        assert events
        for event in (*events, "0.0", "0-0", "1", "ffffffff-1", "../0", events[0][:-1] + "9"):
            resume: list[tuple[str | bytes, str | bytes]] = [("Accept", "text/event-stream"), ("Last-Event-ID", event)]
            for other in people.others:
                stolen = [*resume, ("Mcp-Session-Id", mine.id), *other]
                assert client.request("GET", "/mcp", fields=stolen).status == 404
        own = [("Accept", "text/event-stream"), ("Last-Event-ID", "ffff-1"), ("Mcp-Session-Id", theirs.id)]
        assert client.request("GET", "/mcp", fields=[*own, *people.mallory]).status == 400
        resumed = client.request("GET", "/mcp", fields=[*fields, ("Last-Event-ID", events[0])])
        assert resumed.messages == streamed.messages


@requirement("authorization/sessions")
def test_message_endpoint_only_accepts_its_own_caller(people: People) -> None:
    ping = {"jsonrpc": "2.0", "id": 7, "method": "ping"}
    with _sse(people.target, people.alice) as (endpoint, heard):
        client = people.target.client
        for other in people.others:
            stolen = client.post(ping, fields=other, path=endpoint)
            invented = client.post(ping, fields=other, path=endpoint[:-4] + "AAAA")
            assert _same(stolen, invented) == 404
        assert client.post(ping, path=endpoint).status == 401
        assert client.post(ping, fields=people.alice, path=endpoint).status == 202
        assert '"id":7' in heard('"id":7')


@requirement("authorization/sessions")
@pytest.mark.parametrize(("tool", "answer"), [("careful", {"action": "accept", "content": {}}), ("once", None)])
def test_request_state_is_useless_to_other_callers(people: People, tool: str, answer: Json) -> None:
    asked = people.call(people.alice, tool)["result"]
    assert asked["resultType"] == "input_required"
    [key] = asked["inputRequests"]
    responses = {key: answer or {"action": "accept", "content": {"name": "x"}}}
    retry = {"inputResponses": responses, "requestState": asked["requestState"]}
    for other in people.others:
        refused = people.call(other, tool, **retry)
        assert refused["error"]["code"] == -32602
        assert "requestState" in refused["error"]["message"]
    done = people.call(people.alice, tool, **retry)
    assert done["result"]["resultType"] == "complete"


@requirement("authorization/sessions")
def test_kept_output_is_only_for_its_caller(people: People) -> None:
    blocks = people.call(people.alice, "large")["result"]["content"]
    [uri] = [block["uri"] for block in blocks if block["type"] == "resource_link"]
    for other in people.others:
        stolen, invented = people.read(other, uri), people.read(other, f"{uri[:-4]}AAAA")
        assert "result" not in stolen
        assert stolen["error"]["code"] == invented["error"]["code"]
        assert stolen["error"]["message"] == invented["error"]["message"]
        assert uri not in str(people.target.client.modern("resources/list", fields=list(other)).json)
    assert "of alice of alice" in people.read(people.alice, uri)["result"]["contents"][0]["text"]


@requirement("authorization/sessions")
def test_other_callers_cannot_cancel_answer_or_listen(people: People) -> None:
    client = people.target.client
    with client.session(fields=people.alice) as session:
        for message in (
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}},
            {"jsonrpc": "2.0", "id": "gateway-0", "result": {"action": "accept"}},
            {"jsonrpc": "2.0", "id": 1, "method": "logging/setLevel", "params": {"level": "debug"}},
            [{"jsonrpc": "2.0", "id": 1, "method": "ping"}],
        ):
            for other in people.others:
                status = SessionClient(client, session.id, tuple(other)).post(message).status
                assert status == (400 if isinstance(message, list) else 404)
        assert session.ask("ping")["result"] == {}


@requirement("authorization/every-request", "authorization/sessions")
def test_token_with_fewer_scopes_gains_none_in_a_session(people: People) -> None:
    client, issuer = people.target.client, people.issuer
    wide: Fields = [("Authorization", f"Bearer {issuer.token(AUDIENCE, sub='bob', scope='deep')}")]
    narrow: Fields = [("Authorization", f"Bearer {issuer.token(AUDIENCE, sub='bob')}")]
    with client.session(fields=wide) as session:
        for who, works in ((narrow, False), (wide, True), (narrow, False)):
            answer = client.post(_call("guarded"), fields=[*who, ("Mcp-Session-Id", session.id)]).messages[-1]
            assert ("result" in answer) is works
            listed = client.post(
                {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, fields=[*who, ("Mcp-Session-Id", session.id)]
            )
            assert (b"guarded" in listed.body) is works
    with _sse(people.target, wide) as (endpoint, heard):
        initialized = {**initialize(), "id": "init"}
        assert client.post(initialized, fields=wide, path=endpoint).status == 202
        heard('"init"')
        for number, (who, text) in enumerate(((narrow, "Unknown tool"), (wide, "Deep."), (narrow, "Unknown tool"))):
            assert client.post({**_call("guarded"), "id": f"n{number}"}, fields=who, path=endpoint).status == 202
            last = heard(f'"n{number}"').rpartition("data: ")[2]
            assert text in last


def _call(tool: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": tool, "arguments": {}}}


def _same(one: Answer, other: Answer) -> int:
    """Check that two responses are equal, and return their status."""
    assert (one.status, one.body) == (other.status, other.body)
    return one.status


@contextmanager
def _sse(target: Target, who: Fields) -> Iterator[tuple[str, Any]]:
    """Open an HTTP+SSE stream. Yield its message endpoint, and a function that reads until a text."""
    fields = b"".join(b"%b: %b\r\n" % (str(name).encode(), str(value).encode()) for name, value in who)
    with target.client.connection() as connection:
        connection.settimeout(TIMEOUT_SECONDS)
        connection.sendall(b"GET /sse HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n" + fields + b"\r\n")
        received = ""

        def heard(text: str) -> str:
            nonlocal received
            while text not in received:
                received += connection.recv(65536).decode()
            return received

        heard("session_id=")
        heard("\n\n")
        endpoint = next(line[6:] for line in heard("session_id=").splitlines() if line.startswith("data: /"))
        yield endpoint, heard
