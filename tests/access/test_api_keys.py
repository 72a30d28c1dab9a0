"""Keys of the file: who holds the one that was sent, and what a look at all of them shows."""

import hashlib

import pytest

from gateway.access.api_keys import REALM, ApiKeys, digests
from gateway.access.identity import Identity
from gateway.config.models.auth import ApiKey

OLD, NEW, OTHER = "the-old-key-of-ci-1", "the-new-key-of-ci-2", "another-holders-key"


def digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def keys_of(**keys: dict[str, object]) -> ApiKeys:
    return ApiKeys({name: ApiKey.model_validate(key) for name, key in keys.items()})


def test_a_key_is_its_holders_in_every_form_in_which_it_may_be_written() -> None:
    keys = keys_of(
        ci={"secret": [OLD, NEW], "scopes": ["ops.read"]}, other={"sha256": digest(OTHER).upper(), "scopes": []}
    )
    for secret, principal, scopes in ((OLD, "ci", {"ops.read"}), (NEW, "ci", {"ops.read"}), (OTHER, "other", set())):
        identity = keys.find(secret)
        assert identity is not None
        assert (identity.principal, identity.realm, identity.scopes) == (principal, REALM, frozenset(scopes))


@pytest.mark.parametrize("secret", ["", "the-old-key-of-ci-", OLD + "x", OLD.upper(), digest(OLD), "\ud800"[:0] + "é"])
def test_nothing_else_is_a_key(secret: str) -> None:
    assert keys_of(ci={"secret": OLD}).find(secret) is None


def test_two_keys_of_one_holder_are_one_owner_and_two_credentials() -> None:
    keys = keys_of(ci={"secret": [OLD, NEW]})
    first, second = keys.find(OLD), keys.find(NEW)
    assert first is not None
    assert second is not None
    assert first.subject_key == second.subject_key
    assert first.credential != second.credential
    assert OLD not in repr(first)


def test_what_was_let_in_is_renewed_with_what_its_key_allows_now() -> None:
    identity = keys_of(ci={"secret": [OLD, NEW], "scopes": ["a"]}).find(OLD)
    assert identity is not None
    wider = keys_of(ci={"sha256": [digest(OLD)], "scopes": ["a", "b"]}).revalidate(identity)
    assert wider is not None
    assert wider.scopes == frozenset({"a", "b"})
    assert keys_of(ci={"secret": NEW}).revalidate(identity) is None
    assert keys_of(renamed={"secret": OLD}).revalidate(identity) is None


def test_a_key_and_a_token_of_the_same_name_have_nothing_in_common() -> None:
    holder = keys_of(ci={"secret": OLD}).find(OLD)
    assert holder is not None
    assert holder.subject_key != Identity(principal="ci", realm="https://idp.example.com").subject_key


def test_digests_are_those_of_the_keys() -> None:
    assert list(digests(ApiKey(secret=[OLD], sha256=[digest(NEW)]))) == [digest(OLD), digest(NEW)]
