"""Models of `auth`, and masking of its secrets in errors."""

from pathlib import Path

import pytest

from gateway.config.loader import load
from gateway.config.models.auth import Auth
from gateway.config.models.outbound_auth import OutboundAuth
from gateway.errors import Problem, Severity
from gateway.json_types import Json

DIGEST = "ab" * 32
DIGEST_FORM = "expected the SHA-256 of the key in 64 hexadecimal digits (printf %s KEY | sha256sum)"
KEY_FORM = "expected 1 to 4096 ASCII characters without spaces, because a key is sent in a header"


def errors_of(tmp_path: Path, text: str) -> list[Problem]:
    main = tmp_path / "config.yaml"
    main.write_text(text, encoding="utf-8")
    return [each for each in load(main, environ={}).problems if each.severity is Severity.ERROR]


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("{scopes: [ops.read]}", "auth.api_keys.ci: needs a key: `secret` or `sha256`"),
        ("{sha256: abc123}", f"auth.api_keys.ci.sha256: {DIGEST_FORM}"),
        (f"{{sha256: [{DIGEST}, {DIGEST[1:]}]}}", f"auth.api_keys.ci.sha256.1: {DIGEST_FORM}"),
        (f"{{sha256: {DIGEST[1:]}g}}", f"auth.api_keys.ci.sha256: {DIGEST_FORM}"),
        ('{secret: "two words"}', f"auth.api_keys.ci.secret: {KEY_FORM}"),
        ("{secret: schlüsselchen-lang}", f"auth.api_keys.ci.secret: {KEY_FORM}"),
        ('{secret: ""}', f"auth.api_keys.ci.secret: {KEY_FORM}"),
    ],
)
def test_invalid_api_key_is_reported_without_showing_it(tmp_path: Path, key: str, message: str) -> None:
    [problem] = errors_of(tmp_path, f"auth:\n  api_keys:\n    ci: {key}\n")
    assert f"{problem.path}: {problem.message}" == message
    assert problem.location is not None
    assert problem.location.line == 3
    for secret in ("abc123", "two words", "schlüssel"):
        assert secret not in problem.source_line


@pytest.mark.parametrize(
    ("auth", "message"),
    [
        (f'{{api_keys: {{"": {{sha256: {DIGEST}}}}}}}', "auth: an API key must have a name"),
        ('{oauth: {issuer: https://idp.example.com, audience: ""}}', "auth.oauth.audience: must not be empty"),
        (
            f'{{api_keys: {{ci: {{sha256: {DIGEST}}}}}, rules: [{{match: {{name: ""}}, scopes: [a]}}]}}',
            "auth.rules.0.match.name: must not be empty",
        ),
    ],
)
def test_empty_auth_sections_are_errors(tmp_path: Path, auth: str, message: str) -> None:
    [problem] = errors_of(tmp_path, f"auth: {auth}\n")
    assert f"{problem.path}: {problem.message}" == message


@pytest.mark.parametrize("name", ["ci\\n", "\\u202eic", "c\\u200bi"])
def test_unprintable_holder_name_is_an_error(tmp_path: Path, name: str) -> None:
    [problem] = errors_of(tmp_path, f'auth: {{api_keys: {{"{name}": {{sha256: {DIGEST}}}}}}}\n')
    assert problem.message.startswith("the holder's name contains invisible characters")
    assert errors_of(tmp_path, f'auth: {{api_keys: {{"Zoë of ops": {{sha256: {DIGEST}}}}}}}\n') == []


def test_api_key_is_one_secret_or_a_list() -> None:
    auth = Auth.model_validate({"api_keys": {"ci": {"secret": "one", "sha256": [DIGEST.upper(), DIGEST]}}})
    assert auth.api_keys["ci"].secret == ["one"]
    assert auth.api_keys["ci"].sha256 == [DIGEST, DIGEST]


@pytest.mark.parametrize("issuer", ["https://idp.example.com", "https://idp.example.com/realms/a/", "http://[::1]:80"])
def test_issuer_must_use_https_or_loopback(issuer: str) -> None:
    assert Auth.model_validate({"oauth": {"issuer": issuer}}).oauth is not None


@pytest.mark.parametrize(
    "issuer",
    [
        "http://idp.example.com",
        "http://127.0.0.1.example.com",
        "https://idp.example.com/?tenant=a",
        "https://idp.example.com/#a",
        "https:///path",
        "https://idp.example.com:port",
        "ftp://idp.example.com",
        "idp.example.com",
        "https://idp example.com",
        "",
    ],
)
def test_other_issuer_urls_are_rejected(tmp_path: Path, issuer: str) -> None:
    [problem] = errors_of(tmp_path, f'auth: {{oauth: {{issuer: "{issuer}"}}}}\n')
    assert problem.path == "auth.oauth.issuer"


@pytest.mark.parametrize(
    ("auth", "secrets"),
    [
        ({"bearer": "a-token"}, ["a-token"]),
        ({"basic": {"username": "ann", "password": "pass"}}, ["pass"]),
        ({"token_exchange": {"client_id": "c", "private_key": "key.pem"}}, []),
        ({"client_credentials": {"assertion": "a.jwt", "issuer": "https://idp.example.com"}}, ["a.jwt"]),
        ({"authorization_code": {"client_id": "c", "client_secret": "s"}}, ["s"]),
        (
            {
                "enterprise": {
                    "client_id": "c",
                    "private_key": "-----BEGIN KEY",
                    "idp": {"issuer": "https://i", "client_id": "d", "client_secret": "s", "subject_token": "t"},
                }
            },
            ["-----BEGIN KEY", "s", "t"],
        ),
    ],
)
def test_secrets_of_outbound_authentication_are_known(auth: dict[str, Json], secrets: list[str]) -> None:
    assert list(OutboundAuth.model_validate(auth).secrets()) == secrets
