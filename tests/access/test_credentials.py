"""Reading the credential of a request."""

import pytest

from gateway.access.auth_error import AuthError
from gateway.access.authenticator import read_credential
from gateway.access.identity import Credential


@pytest.mark.parametrize(
    ("authorization", "api_key", "expected"),
    [
        (["Bearer abc.def-_~+/="], [], Credential("abc.def-_~+/=", is_bearer=True)),
        (["bearer abc"], [], Credential("abc", is_bearer=True)),
        (["Bearer   abc "], [], Credential("abc", is_bearer=True)),
        ([], ["key!with%marks"], Credential("key!with%marks", is_bearer=False)),
        ([], [], None),
        (["Basic dXNlcjpwYXNz"], [], None),
        (["Digest username=a"], [], None),
    ],
)
def test_single_credential_is_read(authorization: list[str], api_key: list[str], expected: Credential | None) -> None:
    assert read_credential(authorization=authorization, api_key=api_key) == expected


@pytest.mark.parametrize(
    ("authorization", "api_key"),
    [
        (["Bearer"], []),
        (["Bearer "], []),
        (["Bearer a b"], []),
        (["Bearer a\tb"], []),
        (["Bearer schlüssel"], []),
        (["Bearer \x00"], []),
        ([""], []),
        ([], [""]),
        ([], ["a b"]),
        (["Bearer a", "Bearer a"], []),
        (["Bearer a", "Basic a"], []),
        (["Bearer a"], ["a"]),
        ([], ["a", "a"]),
    ],
)
def test_malformed_credential_is_invalid_request(authorization: list[str], api_key: list[str]) -> None:
    auth_error = read_credential(authorization=authorization, api_key=api_key)
    assert isinstance(auth_error, AuthError)
    assert (auth_error.status, auth_error.error) == (400, "invalid_request")
