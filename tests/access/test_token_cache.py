"""What is remembered of tokens that were proven, and for how long."""

from dataclasses import dataclass

from gateway.access.identity.access_tokens import MAX_TOKENS, TokenCache
from gateway.access.identity.identity import Identity

ALICE = Identity(principal="alice", realm="https://idp.example.com", scopes=frozenset(), expires_at=1000.0)


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_token_is_known_with_its_keys_until_it_expires() -> None:
    clock = Clock()
    proven = TokenCache(clock=clock)
    proven.remember("token", ALICE, keys_version=1)
    assert proven.find("token", keys_version=1) is ALICE
    assert proven.find("tokem", keys_version=1) is None
    clock.now = 1000.0
    assert proven.find("token", keys_version=1) is None
    assert len(proven) == 0


def test_other_keys_prove_nothing() -> None:
    proven = TokenCache(clock=Clock())
    proven.remember("token", ALICE, keys_version=1)
    assert proven.find("token", keys_version=2) is None
    assert proven.find("token", keys_version=1) is None


def test_so_many_are_known_and_the_least_used_goes_first() -> None:
    proven = TokenCache(clock=Clock())
    for number in range(MAX_TOKENS):
        proven.remember(str(number), ALICE, keys_version=1)
    assert proven.find("0", keys_version=1)
    proven.remember("another", ALICE, keys_version=1)
    assert len(proven) == MAX_TOKENS
    assert proven.find("0", keys_version=1)
    assert proven.find("1", keys_version=1) is None
