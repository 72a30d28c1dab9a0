"""Signs what clients carry for the daemon, and reads what one of its keys has signed.

A client can read such a token; the signature keeps it from being guessed or changed.
"""

import base64
import hashlib
import hmac
from typing import Final, Generic, TypeVar

import msgspec
from itsdangerous import Signer

from gateway.state.keys import FromKeys, SigningKeys

T = TypeVar("T")


class SignedTokens(Generic[T]):
    """Tokens in visible ASCII that carry a struct. Those of one purpose are good for no other."""

    def __init__(self, keys: SigningKeys, kind: type[T], *, purpose: str) -> None:
        def signer(key: bytes) -> Signer:
            return Signer(key, salt=purpose, key_derivation="hmac", digest_method=hashlib.sha256)

        self._signers: Final = FromKeys(keys, lambda newest_first: [*map(signer, newest_first)])
        self._decoder: Final = msgspec.json.Decoder(kind)

    def sign(self, content: T) -> str:
        """Make a token, with the newest key."""
        return self._signers()[0].sign(base64.urlsafe_b64encode(msgspec.json.encode(content)).rstrip(b"=")).decode()

    def read(self, token: str) -> T | None:
        """Return the content of a token; None if it is none of ours."""
        if not token.isascii():
            return None
        given = token.encode()
        content = given.rpartition(b".")[0]
        # Signed anew and compared whole: `unsign` reads base64 leniently, and would take several spellings of a token.
        if not any(hmac.compare_digest(signer.sign(content), given) for signer in self._signers()):
            return None
        try:
            return self._decoder.decode(base64.urlsafe_b64decode(content + b"=" * (-len(content) % 4)))
        except msgspec.DecodeError:  # of another version of the gateway
            return None
