"""Takes standard input and output away from everything else in the process.

On stdio they are the wire. A plugin's `print`, a library's progress bar or a child's chatter on file descriptor 1 would
end up between the messages, and whoever reads file descriptor 0 would eat some. So the protocol keeps private
duplicates; descriptor 1 becomes standard error, and descriptor 0 reads as empty.
"""

import os
from typing import Self

import msgspec


class StandardStreams(msgspec.Struct, frozen=True):
    """Private descriptors of what were standard input and output. Children do not inherit them."""

    reading: int
    writing: int

    @classmethod
    def take(cls) -> Self:
        """Do it, once, before anything else is imported or started.

        It is not undone: what a plugin leaves in Python's own buffer is written when the process ends, and must not
        reach the wire then either.
        """
        streams = cls(os.dup(0), os.dup(1))
        empty = os.open(os.devnull, os.O_RDONLY)
        os.dup2(empty, 0)
        os.close(empty)
        os.dup2(2, 1)
        return streams
