"""API keys: holders, revalidation and digests."""

import hashlib

import pytest

from gateway.access.authenticator import ApiKeys, digests
from gateway.access.identity import API_KEY_REALM, Identity
from gateway.config.models.auth import ApiKey

OLD, NEW, OTHER = "the-old-key-of-ci-1", "the-new-key-of-ci-2", "another-holders-key"


def digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def keys_of(**keys: dict[str, object]) -> ApiKeys:
    return ApiKeys({name: ApiKey.model_validate(key) for name, key in keys.items()})


def test_key_identifies_its_holder_in_all_configured_forms() -> None:
    keys = keys_of(
        ci={"secret": [OLD, NEW], "scopes": ["ops.read"]}, other={"sha256": digest(OTHER).upper(), "scopes": []}
    )
    for secret, principal, scopes in ((OLD, "ci", {"ops.read"}), (NEW, "ci", {"ops.read"}), (OTHER, "other", set())):
        identity = keys.find(secret)
        assert identity is not None
        assert (identity.principal, identity.realm, identity.scopes) == (principal, API_KEY_REALM, frozenset(scopes))


@pytest.mark.parametrize("secret", ["", "the-old-key-of-ci-", OLD + "x", OLD.upper(), digest(OLD), "\ud800"[:0] + "é"])
def test_unknown_key_is_rejected(secret: str) -> None:
    assert keys_of(ci={"secret": OLD}).find(secret) is None


def test_two_keys_of_a_holder_are_two_credentials() -> None:
    keys = keys_of(ci={"secret": [OLD, NEW]})
    first, second = keys.find(OLD), keys.find(NEW)
    assert first is not None
    assert second is not None
    assert first.subject_key == second.subject_key
    assert first.credential != second.credential
    assert OLD not in repr(first)


def test_revalidation_returns_current_scopes() -> None:
    identity = keys_of(ci={"secret": [OLD, NEW], "scopes": ["a"]}).find(OLD)
    assert identity is not None
    wider = keys_of(ci={"sha256": [digest(OLD)], "scopes": ["a", "b"]}).revalidate(identity)
    assert wider is not None
    assert wider.scopes == frozenset({"a", "b"})
    assert keys_of(ci={"secret": NEW}).revalidate(identity) is None
    assert keys_of(renamed={"secret": OLD}).revalidate(identity) is None


def test_key_and_token_with_equal_names_are_different_callers() -> None:
    holder = keys_of(ci={"secret": OLD}).find(OLD)
    assert holder is not None
    assert holder.subject_key != Identity(principal="ci", realm="https://idp.example.com").subject_key


def test_digests_are_sha256_of_the_keys() -> None:
    assert list(digests(ApiKey(secret=[OLD], sha256=[digest(NEW)]))) == [digest(OLD), digest(NEW)]
