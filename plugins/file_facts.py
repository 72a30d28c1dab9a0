"""A file as an argument: a parameter of type `bytes` is an input of `type: file`."""

import hashlib
from dataclasses import dataclass


@dataclass
class FileFacts:
    """Facts about a file."""

    size: int
    lines: int
    sha256: str


def examine(file: bytes) -> FileFacts:
    """Count the bytes and lines of a file, and compute its SHA-256."""
    return FileFacts(size=len(file), lines=file.count(b"\n"), sha256=hashlib.sha256(file).hexdigest())
