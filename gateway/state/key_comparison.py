"""Warns of other gateways in the same store that do not have the signing keys of this one."""

import hashlib
from typing import Final

import structlog

from gateway.state.keys import SigningKeys
from gateway.state.replica import Replica

log: Final = structlog.get_logger()

_KIND: Final = "signing keys"


def compare_keys(replica: Replica, keys: SigningKeys) -> None:
    """Tell the other replicas digests of the keys, and warn of each one that has no key in common."""
    strangers: set[str] = set()

    def own() -> list[str]:
        return [hashlib.sha256(b"signing key " + key).hexdigest()[:16] for key in keys()]

    def message() -> bytes:
        return " ".join([replica.name, *own()]).encode()

    async def compare(body: bytes) -> bytes:
        name, *digests = body.decode().split()
        if name not in strangers and set(digests).isdisjoint(own()):
            strangers.add(name)
            log.warning(
                "store is shared with a gateway that has other signing keys",
                replica=name,
                advice="give replicas of one gateway the same keys, and other gateways a `prefix` in the store's URL",
            )
            # Warned there too: it may have come first, when nobody was there to compare with.
            await replica.mailbox.tell(name, _KIND, message())
        return b""

    replica.mailbox.on(_KIND, compare)
    replica.store.on_return(lambda: replica.mailbox.tell_all(_KIND, message()))
