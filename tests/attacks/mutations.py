"""Random small changes of messages, because almost valid messages test more code than random bytes."""

import random
from collections.abc import Callable, Sequence
from typing import Final

import orjson

from gateway.json_types import Json
from tests.attacks.payloads import SHELL, TEXTS

VALUES: Final[Sequence[Json]] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**53 + 1, 2**63, -(2**63), 1e308, 0.1, "", [], {}, [[]], {"": {}}),
    *("2.0", "1", "id", "name", "tools/call", "2026-07-28", "2025-11-25", "2024-11-05", "accept", "decline", "debug"),
    *("echo", "slow", "asks", "docs:///a.md", "x://one", "say", "ref/prompt", "ref/resource", "elicitation"),
    *(text for text in TEXTS + SHELL if len(text) < 200),
    "x" * 20_000,
    ["x"] * 500,
    {f"k{number}": number for number in range(200)},
)
TOKENS: Final[Sequence[bytes]] = (
    *(b"\0", b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\r", b"\n", b"\r\n", b"\r\n\r\n", b" ", b"\t", b"\x1b[2J"),
    *(b'"', b"\\", b"{", b"}", b"[", b"]", b":", b",", b"\\ud800", b"\\u0000", b"NaN", b"-", b"1e999", b"null"),
    *(b"0", b"99999999999999999999", b"[" * 200, b'{"a":' * 200, b"x" * 9000, b"%00", b"..", b"/", b"?", b"#"),
    *(b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"Content-Length: 99999999\r\n"),
    *(b"Expect: 100-continue\r\n", b"Connection: upgrade\r\nUpgrade: websocket\r\n", b"Content-Encoding: gzip\r\n"),
    *(b"Host: evil.example\r\n", b"Origin: null\r\n", b"Accept: */*;q=0\r\n", b"Last-Event-ID: 0-0\r\n"),
    *(b"0\r\n\r\n", b"ffffffff\r\n", b"5\r\nhello\r\n", b"HTTP/1.0", b"HTTP/9.9", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    *(
        b"\xef\xbb\xbf",
        b'"_meta":{},',
        b'"id":1,',
        b'"method":"ping",',
        b"Mcp-Session-Id: x\r\n",
        b"GET / HTTP/1.1\r\n",
    ),
)


class Mutator:
    """Creates the same messages for the same seed."""

    def __init__(self, seed: int | str) -> None:
        self.rng: Final = random.Random(seed)

    def message(self, message: Json) -> bytes:
        """Return a message as JSON with random changes."""
        for _ in range(self.rng.choice((0, 1, 1, 2, 4))):
            message = self.value(message)
        body = orjson.dumps(message, option=orjson.OPT_NON_STR_KEYS)
        return self.noise(body) if self.rng.random() < 0.25 else body

    def value(self, value: Json) -> Json:
        """Return a value with one changed member or item at any depth."""
        rng = self.rng
        if isinstance(value, dict) and value and rng.random() < 0.85:
            changed = dict(value)
            key = rng.choice(list(changed))
            match rng.randrange(10):
                case 0:
                    del changed[key]
                case 1:
                    changed[rng.choice(list(value))] = changed[key]
                case 2:
                    changed[str(rng.choice(VALUES))[:50]] = changed.pop(key)
                case _:
                    changed[key] = self.value(changed[key])
            return changed
        if isinstance(value, list) and value and rng.random() < 0.85:
            items = list(value)
            at = rng.randrange(len(items))
            items[at] = self.value(items[at])
            return items * rng.choice((1, 1, 1, 2, 60)) if len(items) < 20 else items
        return rng.choice(VALUES)

    def noise(self, data: bytes) -> bytes:
        """Return data with some bytes changed, removed, duplicated or inserted."""
        for _ in range(self.rng.choice((1, 1, 2, 5))):
            data = self.rng.choice(self._noises)(data)
        return data

    @property
    def _noises(self) -> Sequence[Callable[[bytes], bytes]]:
        return (self._flip, self._cut, self._drop, self._double, self._insert, self._insert, self._insert)

    def _position(self, data: bytes) -> int:
        return self.rng.randrange(len(data) + 1)

    def _flip(self, data: bytes) -> bytes:
        at = self._position(data)
        return data[:at] + bytes([self.rng.randrange(256)]) + data[at + 1 :]

    def _cut(self, data: bytes) -> bytes:
        return data[: self._position(data)]

    def _drop(self, data: bytes) -> bytes:
        start, end = sorted((self._position(data), self._position(data)))
        return data[:start] + data[min(end, start + 30) :]

    def _double(self, data: bytes) -> bytes:
        start, end = sorted((self._position(data), self._position(data)))
        return data[:end] + data[start:]

    def _insert(self, data: bytes) -> bytes:
        at = self._position(data)
        return data[:at] + self.rng.choice(TOKENS) + data[at:]
