"""Arguments, claims and proofs cannot change the caller's identity, and are only treated as data."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from gateway.json_types import Json
from tests.access.test_issuers import Holder
from tests.attacks.client import Answer
from tests.attacks.issuer import issuing
from tests.attacks.target import Plan, Target, attacking
from tests.authorization_server import AuthorizationServer

AUDIENCE: Final = "https://tools.example.com/mcp"
OPERATOR: Final = "operator-key-Yf6Kq2Vb9Xw4"
FILE: Final = """
listen: {public_url: "https://tools.example.com"}
auth:
  api_keys: {operator: {secret: "${env:OPERATOR_KEY}", scopes: ["gateway:admin"]}}
  oauth:
    - issuer: "%s"
      roles: {scopes: {admins: [admin], "*": [member]}}
    - {issuer: "%s", audience: second}
tools:
  who:
    description: Says who calls.
    input_schema: {type: object}
    content: [{text: "{{ caller.subject }}|{{ caller.claims.team | default('-') }}|{{ inputs | tojson }}"}]
  header:
    description: Sends a header.
    http: {url: "@backend@/", allow_private: true, headers: {X-Team: "{{ caller.claims.team }}"}}
  path:
    description: Sends a path.
    http: {url: "@backend@/tenants/{caller.claims.team}/items", allow_private: true}
  argument:
    description: Runs a command.
    shell: {command: [printf, "<%%s>", "{{ caller.claims.team }}"]}
  environment:
    description: Runs a script.
    shell: {script: 'printf "<%%s>" "$TEAM"', env: {TEAM: "{{ caller.claims.team }}"}}
  cached:
    description: Says who calls.
    cache: 1h
    content: [{text: "{{ caller.claims.team }}"}]
  administrate:
    description: For administrators.
    access: {scopes: [admin]}
    content: [{text: done}]
"""


@pytest.fixture(scope="module")
def issuer() -> Iterator[AuthorizationServer]:
    with issuing() as server:
        yield server


@pytest.fixture(scope="module")
def second() -> Iterator[AuthorizationServer]:
    with issuing() as server:
        yield server


@pytest.fixture(scope="module")
def daemon(
    issuer: AuthorizationServer, second: AuthorizationServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Target]:
    plan = Plan(
        file=FILE % (issuer.issuer, second.issuer),
        environment={"OPERATOR_KEY": OPERATOR},
        operator=(("Authorization", f"Bearer {OPERATOR}"),),
        secrets=[OPERATOR],
    )
    with attacking(plan, tmp_path_factory.mktemp("attacked")) as target:
        yield target


def called(
    target: Target,
    token: str,
    tool: str,
    arguments: Mapping[str, Json] | None = None,
    scheme: str = "Bearer",
    **fields: str,
) -> Answer:
    return target.client.modern(
        "tools/call",
        {"name": tool, "arguments": dict(arguments or {})},
        fields=[
            ("Authorization", f"{scheme} {token}"),
            *((name.replace("_", "-"), value) for name, value in fields.items()),
        ],
    )


def text(answer: Answer) -> str:
    assert answer.status == 200, answer
    return str(answer.messages[-1]["result"]["content"][0]["text"])


def failed(answer: Answer) -> bool:
    return answer.status == 200 and bool(answer.messages[-1]["result"].get("isError"))


@pytest.mark.parametrize(
    "arguments",
    [
        {"caller": {"subject": "root", "claims": {"team": "root"}}},
        {"caller": "root"},
        {"caller.subject": "root"},
        {"inputs": {"caller": {"subject": "root"}}},
    ],
)
def test_arguments_cannot_replace_the_caller(target: Target, issuer: AuthorizationServer, arguments: Any) -> None:
    token = issuer.token(AUDIENCE, sub="ann", team="red")
    assert text(called(target, token, "who", {"harmless": 1})).startswith('ann|red|{"harmless":1}')
    subject, team, _ = text(called(target, token, "who", arguments)).split("|", 2)
    assert (subject, team) == ("ann", "red")


@pytest.mark.parametrize("claim", ["x\r\nX-Evil: 1", "x\nX-Evil: 1", "x\0y", "x\r"])
def test_claim_cannot_inject_header_fields(target: Target, issuer: AuthorizationServer, claim: str) -> None:
    assert not failed(called(target, issuer.token(AUDIENCE, team="red"), "header"))
    assert (b"x-team", b"red") in target.backend.last_fields
    count = len(target.backend.requests)
    assert failed(called(target, issuer.token(AUDIENCE, team=claim), "header"))
    assert len(target.backend.requests) == count


@pytest.mark.parametrize(
    "claim", ["..", "%2e%2e", ".", "", "a/../../b", "a/%2e%2e/b", "x?y=1", "x#y", "//evil.example"]
)
def test_claim_cannot_leave_its_path_segment(target: Target, issuer: AuthorizationServer, claim: str) -> None:
    assert not failed(called(target, issuer.token(AUDIENCE, team="red"), "path"))
    answer = called(target, issuer.token(AUDIENCE, team=claim), "path")
    line = target.backend.requests[-1].split(b"\r\n", 1)[0]
    if not failed(answer):
        assert line.startswith(b"GET /tenants/")
        assert line.endswith(b"/items HTTP/1.1")
        assert line.count(b"/") == 4
        assert b"?" not in line


@pytest.mark.parametrize(
    "claim", ["$(id)", "`id`", "; id", "'; id #", '"; id; "', "{{ 7 * 7 }}", "{% raw %}", "${env:OPERATOR_KEY}", "%s%n"]
)
@pytest.mark.parametrize("tool", ["argument", "environment"])
def test_claim_is_only_data_in_commands_and_templates(
    target: Target, issuer: AuthorizationServer, claim: str, tool: str
) -> None:
    token = issuer.token(AUDIENCE, team=claim)
    assert text(called(target, token, tool)) == f"<{claim}>"
    assert text(called(target, token, "who")).split("|")[1] == claim


def test_claim_cannot_become_an_option(target: Target, issuer: AuthorizationServer) -> None:
    assert text(called(target, issuer.token(AUDIENCE, team="red"), "argument")) == "<red>"
    answer = called(target, issuer.token(AUDIENCE, team="--version"), "argument")
    assert failed(answer) or text(answer) == "<--version>"


def test_token_with_a_large_claim_is_rejected(target: Target, issuer: AuthorizationServer) -> None:
    assert called(target, issuer.token(AUDIENCE, team="x" * 5_000), "who").status == 200
    assert called(target, issuer.token(AUDIENCE, team="x" * 30_000), "who").status in {400, 401, 431}


def test_claims_of_all_types_are_only_data(target: Target, issuer: AuthorizationServer) -> None:
    for claim in (7, True, None, ["a", {"b": 1}], {"a": [1]}, 10**30, "\u202e"):
        assert called(target, issuer.token(AUDIENCE, team=claim), "who").status == 200
    assert called(target, issuer.token(AUDIENCE, team="\ud800"), "who").status == 401


def test_cached_response_is_not_shared_between_claims(target: Target, issuer: AuthorizationServer) -> None:
    for team in ("red", "blue", "red"):
        assert text(called(target, issuer.token(AUDIENCE, sub="ann", team=team), "cached")) == team


def test_roles_and_scopes_cannot_be_claimed_by_name(target: Target, issuer: AuthorizationServer) -> None:
    assert text(called(target, issuer.token(AUDIENCE, groups=["admins"]), "administrate")) == "done"
    for claims in ({"groups": ["admin"]}, {"roles": "admin"}, {"groups": ["*"]}, {"caller": {"scopes": ["admin"]}}):
        answer = called(target, issuer.token(AUDIENCE, **claims), "administrate")
        assert answer.code == -32602, answer


def test_tokens_do_not_cross_entries(target: Target, issuer: AuthorizationServer, second: AuthorizationServer) -> None:
    assert called(target, issuer.token(AUDIENCE), "who").status == 200
    assert called(target, second.token("second"), "who").status == 200
    for token in (
        second.token(AUDIENCE),
        issuer.token("second"),
        second.token(AUDIENCE, iss=issuer.issuer),
        issuer.token("second", iss=second.issuer),
        second.token("second", iss=issuer.issuer, headers={"kid": issuer.keys[0].kid}),
    ):
        assert called(target, token, "who").status == 401


def test_dpop_proof_cannot_be_replayed_or_used_elsewhere(target: Target, issuer: AuthorizationServer) -> None:
    holder = Holder(issuer)
    token, url = holder.token(sub="ann"), "https://tools.example.com/mcp"
    first = called(target, token, "who", scheme="DPoP", DPoP=holder.proof(token, htu=url))
    assert first.status == 401
    holder.nonce = first.headers["dpop-nonce"]
    proof = holder.proof(token, htu=url)
    assert text(called(target, token, "who", scheme="DPoP", DPoP=proof)).startswith("ann|")
    other = holder.token(sub="bob")
    for stolen, scheme, sent in (
        (token, "DPoP", proof),  # replayed
        (other, "DPoP", holder.proof(token, htu=url)),  # with another token
        (token, "DPoP", holder.proof(token, htu="https://other.example.com/mcp")),
        (token, "DPoP", holder.proof(token, htu=url, htm="GET")),
        (token, "Bearer", holder.proof(token, htu=url)),  # downgraded
        (token, "DPoP", Holder(issuer).proof(token, htu=url, nonce=holder.nonce)),  # with another key
    ):
        answer = called(target, stolen, "who", scheme=scheme, DPoP=sent)
        assert answer.status == 401
        assert answer.headers["www-authenticate"].startswith("DPoP ")
    assert called(target, token, "who", scheme="Bearer").status == 401


def test_no_claim_is_logged(target: Target, issuer: AuthorizationServer) -> None:
    claim = "a-claim-that-is-nobodys-business"
    assert text(called(target, issuer.token(AUDIENCE, team=claim), "who")).split("|")[1] == claim
    assert claim not in json.dumps(target.log)
    assert claim not in "".join(path.read_text(errors="replace") for path in Path(target.folder).glob("*.log"))
