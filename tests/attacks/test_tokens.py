"""Only tokens that the issuer created for this server, and keys of this server, are accepted."""

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
from tests.messages import MODERN, modern_request

AUDIENCE: Final = "https://tools.example.com/mcp"
OTHER_AUDIENCE: Final = "https://other.example.com/mcp"
OPERATOR: Final = "operator-key-Yf6Kq2Vb9Xw4"
KEY: Final = "key-of-ci-Rt7Lm3Zc8Hd1"
FILE: Final = f"""
auth:
  api_keys:
    operator: {{secret: "${{env:OPERATOR_KEY}}", scopes: ["gateway:admin"]}}
    ci: {{secret: "${{env:CI_KEY}}", scopes: [ops.read]}}
    hashed: {{sha256: {hashlib.sha256(b"a-key-that-is-stored-as-digest").hexdigest()}}}
  oauth: {{issuer: "%s", audience: "{AUDIENCE}", required_scopes: [tools.use]}}
tools:
  hello: {{description: Says hello., content: [{{text: Hello.}}]}}
"""


@dataclass(frozen=True, kw_only=True)
class ProtectedTarget:
    """A daemon that accepts tokens of an issuer."""

    target: Target
    issuer: AuthorizationServer

    def list_tools(self, *fields: tuple[str, str | bytes], path: str = "/mcp") -> Answer:
        needed = [("MCP-Protocol-Version", MODERN), ("Mcp-Method", "tools/list")]
        return self.target.client.post(modern_request("tools/list"), fields=[*needed, *fields], path=path)

    def status(self, token: str | bytes) -> int:
        """Return the status of a request with a token."""
        bearer = b"Bearer " + (token if isinstance(token, bytes) else token.encode())
        return self.target.client.modern("tools/list", fields=[("Authorization", bearer)]).status

    def valid_token(self, **changes: Any) -> str:
        return self.issuer.token(changes.pop("audience", AUDIENCE), scope=changes.pop("scope", "tools.use"), **changes)


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
def protected(target: Target, issuer: AuthorizationServer) -> ProtectedTarget:
    return ProtectedTarget(target=target, issuer=issuer)


def segment(value: Mapping[str, Any] | bytes) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def forged(protected: ProtectedTarget, sign: Callable[[bytes], bytes], **header: Any) -> str:
    """Return a token with valid claims, and with a header and a signature of the attacker."""
    claims = protected.valid_token().split(".")[1]
    head = segment({"typ": "at+jwt", "kid": protected.issuer.keys[0].kid, **header})
    return f"{head}.{claims}.{segment(sign(f'{head}.{claims}'.encode()))}"


def _constant(signature: bytes, _text: bytes) -> bytes:
    return signature


@cache  # created on demand, to keep test collection fast
def foreign() -> Key:
    return Key.make("RS256", kid="foreign")


def signed_by_attacker(protected: ProtectedTarget, **header: Any) -> str:
    return protected.valid_token(key=foreign(), headers={"kid": protected.issuer.keys[0].kid, **header})


def test_valid_token_and_valid_key_are_accepted(protected: ProtectedTarget) -> None:
    assert protected.status(protected.valid_token()) == 200
    assert protected.status(KEY) == 200
    assert protected.status("a-key-that-is-stored-as-digest") == 200
    assert protected.list_tools(("X-API-Key", KEY)).status == 200


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "nOnE", "", "null", "HS256", "XS256", "RSA", "dir"])
def test_unsigned_token_is_rejected(protected: ProtectedTarget, algorithm: str) -> None:
    for signature in (b"", b"\0", b"\0" * 256):
        assert protected.status(forged(protected, partial(_constant, signature), alg=algorithm)) in {400, 401}
    head, claims, _ = protected.valid_token().split(".")
    for token in (f"{head}.{claims}.", f"{head}.{claims}", f"{segment({'alg': algorithm})}.{claims}."):
        assert protected.status(token) in {400, 401}


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
def test_public_key_is_not_used_as_an_hmac_secret(protected: ProtectedTarget, algorithm: str) -> None:
    public = protected.issuer.keys[0].private.public_key()
    forms = [
        public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).strip(),
        public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
        public.public_bytes(Encoding.PEM, PublicFormat.PKCS1),
        json.dumps(protected.issuer.keys[0].jwk).encode(),
        protected.issuer.keys[0].jwk["n"].encode(),
        b"",
    ]
    digest = {"HS256": "sha256", "HS384": "sha384", "HS512": "sha512"}[algorithm]
    for secret in forms:
        token = forged(protected, partial(hmac.digest, secret, digest=digest), alg=algorithm)
        assert protected.status(token) == 401


def test_key_url_in_a_token_is_ignored(protected: ProtectedTarget) -> None:
    began = time.monotonic()
    asked = protected.issuer.asked[JWKS]
    canary = protected.target.canary
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
        {"kid": "$(touch payload_file)"},
        {"kid": "\0"},
        {"kid": ""},
        {"kid": "é" * 100},
        {"kid": foreign().kid},
    ):
        assert protected.status(signed_by_attacker(protected, **header)) == 401
    earned = (time.monotonic() - began) // AVERAGE_INTERVAL_SECONDS + 1
    assert protected.issuer.asked[JWKS] <= asked + SPARE_FETCHES + earned
    assert protected.status(protected.valid_token(headers={"jku": f"{canary.url}keys", "jwk": foreign().jwk})) == 200


def test_kid_of_another_type_is_rejected(protected: ProtectedTarget) -> None:
    for kid in (7, [], {}, True, ["a"], {"a": 1}):
        head = segment({"alg": "RS256", "typ": "at+jwt", "kid": kid})
        _, claims, signature = protected.valid_token().split(".")
        assert protected.status(f"{head}.{claims}.{signature}") == 401


@pytest.mark.parametrize(
    "changes",
    [
        {"iss": "https://idp.example.com"},
        {"iss": ["https://idp.example.com"]},
        {"audience": OTHER_AUDIENCE},
        {"audience": [OTHER_AUDIENCE]},
        {"audience": f"{AUDIENCE}.example.com"},
        {"audience": f"{AUDIENCE}/deeper"},
        {"audience": AUDIENCE.replace("https", "http")},
        {"audience": f"{AUDIENCE}?a=b"},
        {"audience": AUDIENCE.removesuffix("/mcp")},
        {"audience": []},
        {"aud": None},
        {"aud": {"0": AUDIENCE}},
        {"audience": f"https://a:b@{AUDIENCE.removeprefix('https://')}/.."},
        {"exp": int(time.time()) - 120},
        {"exp": None},
        {"exp": "tomorrow"},
        {"exp": -1},
        {"exp": 10**400},
        {"lasts": 0},
        {"exp": float("inf")},
        {"exp": float("nan")},
        {"exp": [10**10]},
        {"nbf": int(time.time()) + 1_000_000},
        {"nbf": "x"},
        {"nbf": float("inf")},
        {"iat": int(time.time()) + 1_000_000},
        {"iss": None},
        {"sub": None},
        {"sub": ""},
        {"sub": 7},
        {"sub": ["alice"]},
        {"headers": {"kid": "unknown"}},
        {"headers": {"kid": "x" * 5000}},
        {"headers": {"crit": ["x"], "x": 1}},
        {"headers": {"crit": [], "b64": False}},
        {"headers": {"typ": "JOSE"}},
        {"headers": {"typ": "dpop+jwt"}},
        {"headers": {"cty": "JWT", "typ": "secevent+jwt"}},
    ],
)
def test_token_of_another_audience_or_time_is_rejected(protected: ProtectedTarget, changes: dict[str, Any]) -> None:
    assert protected.status(protected.valid_token(**changes)) == 401


@pytest.mark.parametrize("claims", [b"[]", b"7", b'"text"', b"", b"{", b"\xff", b"[" * 5000, b'{"a": NaN}'])
def test_signed_invalid_claims_are_rejected(protected: ProtectedTarget, claims: bytes) -> None:
    assert protected.status(protected.issuer.sign(claims)) in {400, 401}


def test_token_with_trailing_text_is_rejected(protected: ProtectedTarget) -> None:
    valid = protected.valid_token()
    head, claims, signature = valid.split(".")
    for token in (
        f"{valid}x",
        f"{valid}.",
        f"{valid}.{signature}",
        f"{valid}=",
        f"{valid}==",
        f".{valid}",
        f"{head}.{claims}.{signature[:-1]}",
        f"{head}.{claims}.{signature[1:]}",
        f"{head}..{signature}",
        f"{head}.{claims}=.{signature}",
        f"{head}.{segment({'sub': 'root'})}.{signature}",
        f"{claims}.{claims}.{signature}",
        valid.replace("-", "+").replace("_", "/") + "+",
        valid.upper(),
        json.dumps({"protected": head, "payload": claims, "signature": signature}).replace(" ", ""),
    ):
        assert protected.status(token) in {400, 401}, token
    for sent in (
        f"{valid},{valid}",
        f"{valid} {valid}",
        f'"{valid}"',
        f"{valid}\t{valid}",
        valid.encode() + b"\xc3\xa9",
    ):
        assert protected.status(sent) in {400, 401}, sent
    assert protected.status(f"{valid} ") == 200  # white space around a field value is ignored (RFC 9110 §5.5)


@given(st.data())
def test_token_with_one_changed_byte_is_rejected(protected: ProtectedTarget, data: st.DataObject) -> None:
    valid = protected.valid_token()
    place = data.draw(st.integers(0, len(valid) - 1))
    char = data.draw(st.characters(min_codepoint=0x21, max_codepoint=0x7E))
    changed = valid[:place] + char + valid[place + 1 :]
    assert protected.status(changed) in ({200} if changed == valid else {400, 401})


def test_two_credentials_are_rejected(protected: ProtectedTarget) -> None:
    valid, other = f"Bearer {protected.valid_token()}", "Bearer nothing"
    for fields in (
        [("Authorization", valid), ("Authorization", valid)],
        [("Authorization", valid), ("Authorization", other)],
        [("Authorization", other), ("Authorization", valid)],
        [("Authorization", valid), ("authorization", "Basic YTpi")],
        [("Authorization", valid), ("X-API-Key", KEY)],
        [("X-API-Key", KEY), ("X-Api-Key", KEY)],
        [("Authorization", f"{valid}, {valid}")],
    ):
        assert protected.list_tools(*fields).status == 400
    assert protected.list_tools(("Authorization", valid)).status == 200


def test_credential_in_a_wrong_place_is_ignored(protected: ProtectedTarget) -> None:
    valid = protected.valid_token()
    for path in (
        f"/mcp?access_token={valid}",
        f"/mcp?token={KEY}",
        f"/mcp?api_key={KEY}",
        f"/mcp?authorization={valid}",
    ):
        assert protected.list_tools(path=path).status == 401
    for field in (
        ("Cookie", f"access_token={valid}; Authorization=Bearer {valid}"),
        ("Proxy-Authorization", f"Bearer {valid}"),
        ("X-Authorization", f"Bearer {valid}"),
        ("X-Forwarded-Authorization", f"Bearer {valid}"),
        ("X-Access-Token", valid),
        ("Api-Key", KEY),
        ("X-API-Key", valid),
        ("Authorization", f"Token {KEY}"),
        ("Authorization", f"JWT {valid}"),
        ("Authorization", KEY),
    ):
        assert protected.list_tools(field).status == 401, field
    basic = base64.b64encode(f"ci:{KEY}".encode()).decode()
    assert protected.list_tools(("Authorization", f"Basic {basic}")).status == 401


def test_almost_correct_key_is_rejected(protected: ProtectedTarget) -> None:
    digest = hashlib.sha256(b"a-key-that-is-stored-as-digest").hexdigest()
    for key in (KEY[:-1], f"{KEY}x", KEY.upper(), KEY.swapcase(), digest, digest.upper(), "ci", "operator", "*", "0"):
        assert protected.status(key) == 401
        assert protected.list_tools(("X-API-Key", key)).status == 401


def test_huge_tokens_are_rejected_cheaply(protected: ProtectedTarget) -> None:
    for size in (7_000, 20_000, 300_000, 3_000_000):
        answer = protected.target.client.send(
            b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\nConnection: close\r\n"
            b"Authorization: Bearer " + b"e" * size + b"\r\n\r\n",
        )
        assert answer.split(b" ", 2)[1:2] in ([b"401"], [b"400"], [b"431"]) or answer == b""
    assert protected.status(protected.valid_token()) == 200


def test_missing_scope_is_not_granted(protected: ProtectedTarget) -> None:
    assert (
        protected.status(protected.valid_token(scope="tools.user tools.us xtools.use TOOLS.USE tools.use.more")) == 403
    )
    status = "/-/status"
    for scope in ("tools.use", "tools.use gateway:admins", "tools.use GATEWAY:ADMIN", "tools.use gateway:*"):
        fields = [("Authorization", f"Bearer {protected.valid_token(scope=scope)}")]
        assert protected.target.client.request("GET", status, fields=fields).status == 403
    fields = [("Authorization", f"Bearer {protected.valid_token(scope='tools.use gateway:admin')}")]
    assert protected.target.client.request("GET", status, fields=fields).status == 200


def test_local_caller_is_no_operator_if_auth_is_configured(protected: ProtectedTarget) -> None:
    for method, path in (("GET", "/-/status"), ("POST", "/-/reload"), ("GET", "/metrics")):
        assert protected.target.direct.request(method, path).status == 401


def test_no_credential_is_logged(protected: ProtectedTarget, tmp_path: Path) -> None:
    token = protected.valid_token(sub="marked-subject-9Qx")
    assert protected.status(token) == 200
    assert protected.status(f"{token}x") == 401
    assert protected.list_tools(("X-API-Key", "wrong-key-that-is-mine-2Wd")).status == 401
    said = "".join(protected.target.log)
    for secret in (token, token.split(".")[2], "wrong-key-that-is-mine-2Wd", KEY, OPERATOR):
        assert secret not in said
