"""Scripts that Redis runs as one command. Imports nothing of its library, which may not be installed."""

import hashlib

import msgspec


class Script(msgspec.Struct, frozen=True):
    """Lua that reads and writes one key, or keys of one slot, at once; Redis knows it by its digest."""

    text: str
    digest: str

    @classmethod
    def of(cls, text: str) -> "Script":
        return cls(text=text, digest=hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())
