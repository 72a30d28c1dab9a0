"""Only tokens that the issuer made for this server, and keys of this server, give access."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from gateway.access.jwks import AVERAGE_INTERVAL_SECONDS, SPARE_FETCHES
from tests.attacks.client import Answer
from tests.attacks.issuer import issuing
from tests.attacks.target import Plan, Target, attacking
from tests.authorization_server import JWKS, AuthorizationServer, Key
from tests.e2e.daemon import MODERN, request

US: Final = "https://tools.example.com/mcp"
THEM: Final = "https://other.example.com/mcp"
OPERATOR: Final = "operator-key-Yf6Kq2Vb9Xw4"
KEY: Final = "key-of-ci-Rt7Lm3Zc8Hd1"
FILE: Final = f"""
auth:
  api_keys:
    operator: {{secret: "${{env:OPERATOR_KEY}}", scopes: ["gateway:admin"]}}
    ci: {{secret: "${{env:CI_KEY}}", scopes: [ops.read]}}
    hashed: {{sha256: {hashlib.sha256(b"a-key-that-is-stored-as-digest").hexdigest()}}}
  oauth: {{issuer: "%s", audience: "{US}", required_scopes: [tools.use]}}
tools:
  hello: {{description: Says hello., content: [{{text: Hello.}}]}}
"""


@dataclass(frozen=True, kw_only=True)
class Gate:
    """A daemon that takes an issuer's tokens."""

    target: Target
    issuer: AuthorizationServer

    def knock(self, *fields: tuple[str, str | bytes], path: str = "/mcp") -> Answer:
        needed = [("MCP-Protocol-Version", MODERN), ("Mcp-Method", "tools/list")]
        return self.target.client.post(request("tools/list"), fields=[*needed, *fields], path=path)

    def status(self, token: str | bytes) -> int:
        """The response to a call with a token."""
        bearer = b"Bearer " + (token if isinstance(token, bytes) else token.encode())
        return self.target.client.modern("tools/list", fields=[("Authorization", bearer)]).status

    def good(self, **changes: Any) -> str:
        return self.issuer.token(changes.pop("audience", US), scope=changes.pop("scope", "tools.use"), **changes)


@pytest.fixture(scope="module")
def issuer() -> Iterator[AuthorizationServer]:
    with issuing() as server:
        yield server


@pytest.fixture(scope="module")
def daemon(issuer: AuthorizationServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    plan = Plan(
        file=FILE % issuer.issuer,
        flags=["--log-level", "debug"],
        environment={"OPERATOR_KEY": OPERATOR, "CI_KEY": KEY},
        operator=(("Authorization", f"Bearer {OPERATOR}"),),
        secrets=[OPERATOR, KEY],
    )
    with attacking(plan, tmp_path_factory.mktemp("attacked")) as target:
        yield target


@pytest.fixture
def gate(target: Target, issuer: AuthorizationServer) -> Gate:
    return Gate(target=target, issuer=issuer)


def segment(value: Mapping[str, Any] | bytes) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def forged(gate: Gate, sign: Callable[[bytes], bytes], **header: Any) -> str:
    """A token with the claims of a good one, and a header and a signature of the attacker's own."""
    claims = gate.good().split(".")[1]
    head = segment({"typ": "at+jwt", "kid": gate.issuer.keys[0].kid, **header})
    return f"{head}.{claims}.{segment(sign(f'{head}.{claims}'.encode()))}"


def _constant(signature: bytes, _text: bytes) -> bytes:
    return signature


@cache  # made by who needs it, not by every process that collects tests
def foreign() -> Key:
    return Key.make("RS256", kid="foreign")


def signed_by_attacker(gate: Gate, **header: Any) -> str:
    return gate.good(key=foreign(), headers={"kid": gate.issuer.keys[0].kid, **header})


def test_valid_token_and_valid_key_are_accepted(gate: Gate) -> None:
    assert gate.status(gate.good()) == 200
    assert gate.status(KEY) == 200
    assert gate.status("a-key-that-is-stored-as-digest") == 200
    assert gate.knock(("X-API-Key", KEY)).status == 200


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "nOnE", "", "null", "HS256", "XS256", "RSA", "dir"])
def test_unsigned_token_is_rejected(gate: Gate, algorithm: str) -> None:
    for signature in (b"", b"\0", b"\0" * 256):
        assert gate.status(forged(gate, partial(_constant, signature), alg=algorithm)) in {400, 401}
    head, claims, _ = gate.good().split(".")
    for token in (f"{head}.{claims}.", f"{head}.{claims}", f"{segment({'alg': algorithm})}.{claims}."):
        assert gate.status(token) in {400, 401}


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
def test_public_key_is_not_used_as_an_hmac_secret(gate: Gate, algorithm: str) -> None:
    public = gate.issuer.keys[0].private.public_key()
    forms = [
        public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).strip(),
        public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
        public.public_bytes(Encoding.PEM, PublicFormat.PKCS1),
        json.dumps(gate.issuer.keys[0].jwk).encode(),
        gate.issuer.keys[0].jwk["n"].encode(),
        b"",
    ]
    digest = {"HS256": "sha256", "HS384": "sha384", "HS512": "sha512"}[algorithm]
    for secret in forms:
        token = forged(gate, partial(hmac.digest, secret, digest=digest), alg=algorithm)
        assert gate.status(token) == 401


def test_key_url_in_a_token_is_ignored(gate: Gate) -> None:
    began = time.monotonic()
    asked = gate.issuer.asked[JWKS]
    canary = gate.target.canary
    for header in (
        {"jku": f"{canary.url}keys"},
        {"x5u": f"{canary.url}cert"},
        {"jwk": foreign().jwk},
        {"jwk": foreign().jwk, "kid": None},
        {"x5c": [base64.b64encode(b"certificate").decode()]},
        {"kid": f"{canary.url}keys"},
        {"kid": str(canary.file)},
        {"kid": "../../../../dev/null"},
        {"kid": "/proc/self/environ"},
        {"kid": "' UNION SELECT 'key' --"},
        {"kid": "$(touch trophy)"},
        {"kid": "\0"},
        {"kid": ""},
        {"kid": "é" * 100},
        {"kid": foreign().kid},
    ):
        assert gate.status(signed_by_attacker(gate, **header)) == 401
    earned = (time.monotonic() - began) // AVERAGE_INTERVAL_SECONDS + 1
    assert gate.issuer.asked[JWKS] <= asked + SPARE_FETCHES + earned
    assert gate.status(gate.good(headers={"jku": f"{canary.url}keys", "jwk": foreign().jwk})) == 200


def test_kid_of_another_type_is_rejected(gate: Gate) -> None:
    for kid in (7, [], {}, True, ["a"], {"a": 1}):
        head = segment({"alg": "RS256", "typ": "at+jwt", "kid": kid})
        _, claims, signature = gate.good().split(".")
        assert gate.status(f"{head}.{claims}.{signature}") == 401


@pytest.mark.parametrize(
    "changes",
    [
        {"iss": "https://idp.example.com"},
        {"iss": ["https://idp.example.com"]},
        {"audience": THEM},
        {"audience": [THEM]},
        {"audience": f"{US}.example.com"},
        {"audience": f"{US}/deeper"},
        {"audience": US.replace("https", "http")},
        {"audience": f"{US}?a=b"},
        {"audience": f"https://a:b@{US.removeprefix('https://')}/.."},
        {"exp": int(time.time()) - 120},
        {"exp": None},
        {"exp": "tomorrow"},
        {"exp": -1},
        {"exp": 10**400},
        {"exp": float("inf")},
        {"exp": float("nan")},
        {"exp": [10**10]},
        {"nbf": int(time.time()) + 1_000_000},
        {"nbf": "x"},
        {"sub": None},
        {"sub": ["alice"]},
        {"headers": {"crit": ["x"], "x": 1}},
        {"headers": {"crit": [], "b64": False}},
        {"headers": {"typ": "JOSE"}},
        {"headers": {"cty": "JWT", "typ": "secevent+jwt"}},
    ],
)
def test_token_of_another_audience_or_time_is_rejected(gate: Gate, changes: dict[str, Any]) -> None:
    assert gate.status(gate.good(**changes)) == 401


@pytest.mark.parametrize("claims", [b"[]", b"7", b'"text"', b"", b"{", b"\xff", b"[" * 5000, b'{"a": NaN}'])
def test_signed_invalid_claims_are_rejected(gate: Gate, claims: bytes) -> None:
    assert gate.status(gate.issuer.sign(claims)) in {400, 401}


def test_token_with_trailing_text_is_rejected(gate: Gate) -> None:
    good = gate.good()
    head, claims, signature = good.split(".")
    for token in (
        f"{good}x",
        f"{good}.",
        f"{good}.{signature}",
        f"{good}=",
        f"{good}==",
        f".{good}",
        f"{head}.{claims}.{signature[:-1]}",
        f"{head}.{claims}.{signature[1:]}",
        f"{head}..{signature}",
        f"{head}.{claims}=.{signature}",
        f"{head}.{segment({'sub': 'root'})}.{signature}",
        f"{claims}.{claims}.{signature}",
        good.replace("-", "+").replace("_", "/") + "+",
        good.upper(),
        json.dumps({"protected": head, "payload": claims, "signature": signature}).replace(" ", ""),
    ):
        assert gate.status(token) in {400, 401}, token
    for sent in (f"{good},{good}", f"{good} {good}", f'"{good}"', f"{good}\t{good}", good.encode() + b"\xc3\xa9"):
        assert gate.status(sent) in {400, 401}, sent
    assert gate.status(f"{good} ") == 200  # white space around a field's value is not part of it (RFC 9110 §5.5)


@given(st.data())
def test_token_with_one_changed_byte_is_rejected(gate: Gate, data: st.DataObject) -> None:
    good = gate.good()
    place = data.draw(st.integers(0, len(good) - 1))
    char = data.draw(st.characters(min_codepoint=0x21, max_codepoint=0x7E))
    changed = good[:place] + char + good[place + 1 :]
    assert gate.status(changed) in ({200} if changed == good else {400, 401})


def test_two_credentials_are_rejected(gate: Gate) -> None:
    good, other = f"Bearer {gate.good()}", "Bearer nothing"
    for fields in (
        [("Authorization", good), ("Authorization", good)],
        [("Authorization", good), ("Authorization", other)],
        [("Authorization", other), ("Authorization", good)],
        [("Authorization", good), ("authorization", "Basic YTpi")],
        [("Authorization", good), ("X-API-Key", KEY)],
        [("X-API-Key", KEY), ("X-Api-Key", KEY)],
        [("Authorization", f"{good}, {good}")],
    ):
        assert gate.knock(*fields).status == 400
    assert gate.knock(("Authorization", good)).status == 200


def test_credential_in_a_wrong_place_is_ignored(gate: Gate) -> None:
    good = gate.good()
    for path in (f"/mcp?access_token={good}", f"/mcp?token={KEY}", f"/mcp?api_key={KEY}", f"/mcp?authorization={good}"):
        assert gate.knock(path=path).status == 401
    for field in (
        ("Cookie", f"access_token={good}; Authorization=Bearer {good}"),
        ("Proxy-Authorization", f"Bearer {good}"),
        ("X-Authorization", f"Bearer {good}"),
        ("X-Forwarded-Authorization", f"Bearer {good}"),
        ("X-Access-Token", good),
        ("Api-Key", KEY),
        ("X-API-Key", good),
        ("Authorization", f"Token {KEY}"),
        ("Authorization", f"JWT {good}"),
        ("Authorization", KEY),
    ):
        assert gate.knock(field).status == 401, field
    basic = base64.b64encode(f"ci:{KEY}".encode()).decode()
    assert gate.knock(("Authorization", f"Basic {basic}")).status == 401


def test_almost_correct_key_is_rejected(gate: Gate) -> None:
    digest = hashlib.sha256(b"a-key-that-is-stored-as-digest").hexdigest()
    for key in (KEY[:-1], f"{KEY}x", KEY.upper(), KEY.swapcase(), digest, digest.upper(), "ci", "operator", "*", "0"):
        assert gate.status(key) == 401
        assert gate.knock(("X-API-Key", key)).status == 401


def test_huge_tokens_are_rejected_cheaply(gate: Gate) -> None:
    for size in (7_000, 20_000, 300_000, 3_000_000):
        answer = gate.target.client.send(
            b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\nConnection: close\r\n"
            b"Authorization: Bearer " + b"e" * size + b"\r\n\r\n",
        )
        assert answer.split(b" ", 2)[1:2] in ([b"401"], [b"400"], [b"431"]) or answer == b""
    assert gate.status(gate.good()) == 200


def test_missing_scope_is_not_granted(gate: Gate) -> None:
    assert gate.status(gate.good(scope="tools.user tools.us xtools.use TOOLS.USE tools.use.more")) == 403
    status = "/-/status"
    for scope in ("tools.use", "tools.use gateway:admins", "tools.use GATEWAY:ADMIN", "tools.use gateway:*"):
        fields = [("Authorization", f"Bearer {gate.good(scope=scope)}")]
        assert gate.target.client.request("GET", status, fields=fields).status == 403
    fields = [("Authorization", f"Bearer {gate.good(scope='tools.use gateway:admin')}")]
    assert gate.target.client.request("GET", status, fields=fields).status == 200


def test_local_caller_is_no_operator_if_auth_is_configured(gate: Gate) -> None:
    for method, path in (("GET", "/-/status"), ("POST", "/-/reload"), ("GET", "/metrics")):
        assert gate.target.direct.request(method, path).status == 401


def test_no_credential_is_logged(gate: Gate, tmp_path: Path) -> None:
    token = gate.good(sub="marked-subject-9Qx")
    assert gate.status(token) == 200
    assert gate.status(f"{token}x") == 401
    assert gate.knock(("X-API-Key", "wrong-key-that-is-mine-2Wd")).status == 401
    said = "".join(gate.target.log)
    for secret in (token, token.split(".")[2], "wrong-key-that-is-mine-2Wd", KEY, OPERATOR):
        assert secret not in said
