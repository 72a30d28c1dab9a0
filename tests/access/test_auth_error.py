"""Authentication errors and their header fields."""

import re

import pytest

from gateway.access.auth_error import (
    AuthError,
    Challenge,
    insufficient_scope,
    invalid_request,
    invalid_token,
    missing_credentials,
    temporarily_unavailable,
)

METADATA = "https://tools.example.com/.well-known/oauth-protected-resource/mcp"
MESSAGE = "This request requires the scopes a b"
RESOURCE = f'resource_metadata="{METADATA}"'
TAIL = f'scope="tools.use", {RESOURCE}'
ENTRY = Challenge(metadata_url=METADATA, scopes=("tools.use",))


@pytest.mark.parametrize(
    ("auth_error", "expected"),
    [
        (missing_credentials(), f'Bearer scope="tools.use", resource_metadata="{METADATA}"'),
        (
            invalid_token("The token has expired"),
            f'Bearer error="invalid_token", error_description="The token has expired", {TAIL}',
        ),
        (
            insufficient_scope({"b", "a"}),
            f'Bearer error="insufficient_scope", error_description="{MESSAGE}", scope="tools.use a b", {RESOURCE}',
        ),
        (
            invalid_request("No credential"),
            f'Bearer error="invalid_request", error_description="No credential", resource_metadata="{METADATA}"',
        ),
    ],
)
def test_challenge_lists_scopes_and_metadata(auth_error: AuthError, expected: str) -> None:
    assert auth_error.headers(ENTRY) == {"WWW-Authenticate": expected}


def test_challenge_without_an_authorization_server() -> None:
    assert missing_credentials().headers(Challenge()) == {"WWW-Authenticate": "Bearer"}


def test_temporary_error_has_retry_after() -> None:
    auth_error = temporarily_unavailable("Not now", retry_after=3)
    assert auth_error.status == 503
    assert auth_error.headers(ENTRY) == {"Retry-After": "3"}


def test_error_description_is_escaped() -> None:
    [field] = invalid_token('a" x="\\\r\nInjected: é').headers(Challenge()).values()
    assert re.fullmatch(r"Bearer error=\"invalid_token\", error_description=\"[\x20\x21\x23-\x5b\x5d-\x7e]*\"", field)
