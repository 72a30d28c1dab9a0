"""Roles, groups and scopes in the claims of common identity providers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from gateway.cli.commands.test.running import Grade, run_tests
from gateway.cli.commands.validate import check
from gateway.config.models.auth import Auth
from gateway.config.settings import read_settings
from gateway.errors import ConfigError
from tests.access.test_issuers import AUDIENCE, authenticating, identified, status
from tests.authorization_server import authorization_server

PROVIDERS: Final = Path(__file__).parents[2] / "config" / "examples" / "providers"
NAMES: Final = ("auth0", "cognito", "entra", "github", "google", "keycloak", "okta")
GRANTS: Final = {"ops": ["ops.read", "ops.write"], "admin": ["deploy"]}


def test_each_provider_has_an_example() -> None:
    assert sorted(path.stem for path in PROVIDERS.glob("*.yaml")) == list(NAMES)


@pytest.mark.parametrize("name", NAMES)
async def test_example_of_a_provider_is_valid_and_passes_its_tests(name: str) -> None:
    settings = read_settings({"config": PROVIDERS / f"{name}.yaml"})
    assert list(check(settings)[1]) == []
    verdicts = [verdict async for verdict in run_tests(settings)]
    assert verdicts
    assert {verdict.grade for verdict in verdicts} == {Grade.PASSED}, verdicts


@pytest.mark.parametrize(
    ("claims", "roles", "scopes"),
    [
        ({"roles": ["ops", "other"]}, ("ops", "other"), {"ops.read", "ops.write"}),
        ({"scp": "a b", "roles": []}, (), {"a", "b"}),
        ({"scp": ["a", "b"], "groups": ["admin"]}, ("admin",), {"a", "b", "deploy"}),
        ({"realm_access": {"roles": ["ops"]}}, ("ops",), {"ops.read", "ops.write"}),
        (
            {"resource_access": {"tools": {"roles": ["admin"]}, "account": {"roles": ["ops"]}}},
            ("admin",),
            {"deploy"},
        ),
        ({"permissions": ["x:y"], "scope": "a"}, (), {"x:y", "a"}),
        ({"cognito:groups": ["ops"]}, ("ops",), {"ops.read", "ops.write"}),
        ({"groups": "ops admin"}, ("ops admin",), set()),
        ({"groups": [7, {"ops": 1}, None], "realm_access": [], "resource_access": "ops"}, (), set()),
        ({"groups": ["*", "unmapped"]}, ("*", "unmapped"), set()),
    ],
)
async def test_known_layouts(claims: Mapping[str, Any], roles: tuple[str, ...], scopes: set[str]) -> None:
    async with authorization_server() as issuer:
        entry = {"issuer": issuer.issuer, "audience": ["tools", AUDIENCE], "roles": {"scopes": GRANTS}}
        async with authenticating(entry) as authenticator:
            identity = await identified(authenticator, issuer.token(AUDIENCE, **{"scope": None, **claims}))
    assert (identity.roles, set(identity.scopes)) == (roles, scopes)


@pytest.mark.parametrize(
    ("claim", "claims", "roles"),
    [
        ("groups", {"groups": "ops admin", "roles": ["other"]}, ("ops", "admin")),
        ("team.roles[].name", {"team": {"roles": [{"name": "ops"}]}}, ("ops",)),
        ("missing", {"roles": ["ops"]}, ()),
        ("length(level)", {"level": 7}, ()),
        ('"https://x.example/roles"', {"https://x.example/roles": ["ops"]}, ("ops",)),
    ],
)
async def test_explicit_claim_replaces_the_known_layouts(
    claim: str, claims: Mapping[str, Any], roles: tuple[str, ...]
) -> None:
    async with authorization_server() as issuer:
        entry = {"issuer": issuer.issuer, "roles": {"claim": claim, "scopes": GRANTS}}
        async with authenticating(entry) as authenticator:
            assert (await identified(authenticator, issuer.token(AUDIENCE, **claims))).roles == roles


async def test_star_applies_only_to_callers_of_the_issuer() -> None:
    key = "key-of-ci-0123456789"
    async with authorization_server() as issuer:
        entry = {"issuer": issuer.issuer, "roles": {"scopes": {"*": "tools.use"}}, "required_scopes": ["tools.use"]}
        async with authenticating(entry) as authenticator:
            assert (await identified(authenticator, issuer.token(AUDIENCE, scope=""))).scopes == {"tools.use"}
            authenticator.configure(Auth.model_validate({"oauth": entry, "api_keys": {"ci": {"secret": key}}}))
            assert (await identified(authenticator, key)).scopes == frozenset()


async def test_foreign_audience_is_rejected_despite_a_matching_client() -> None:
    async with (
        authorization_server() as issuer,
        authenticating({"issuer": issuer.issuer, "audience": "app"}) as authenticator,
    ):
        token: dict[str, Any] = {"token_use": "access", "client_id": "app", "aud": None}
        assert await status(authenticator, issuer.token("", **token)) == 200
        assert await status(authenticator, issuer.token("", **{**token, "client_id": "other"})) == 401
        assert await status(authenticator, issuer.token("", **{**token, "aud": "other"})) == 401


@pytest.mark.parametrize(
    ("oauth", "expected"),
    [
        ("{issuer: https://a.example, roles: {claim: 'a['}}", "auth.oauth.roles.claim: `a[` is not a JMESPath"),
        ("[{issuer: https://a.example}, {issuer: https://a.example}]", "is in two entries"),
        (
            "{issuer: [https://a.example, https://b.example], introspection: {client_id: a, client_secret: b}}",
            "allows only one `issuer`",
        ),
        ("{issuer: https://a.example, introspection: {client_id: a}}", "client_secret"),
        ("{issuer: https://a.example, dpop: always}", "auth.oauth"),
        ("{issuer: https://a.example, algorithms: [HS256]}", "auth.oauth"),
        (
            "{issuer: https://a.example, introspection: {type: github, client_id: a, client_secret: b}}",
            "requires `url`",
        ),
    ],
)
def test_load_errors(tmp_path: Path, oauth: str, expected: str) -> None:
    (tmp_path / "config.yaml").write_text(f"auth: {{oauth: {oauth}}}\n")
    with pytest.raises(ConfigError) as refused:
        check(read_settings({"config": tmp_path / "config.yaml"}))
    assert any(expected in str(each) for each in refused.value.errors), refused.value.errors
