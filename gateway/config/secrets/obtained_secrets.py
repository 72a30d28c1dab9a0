"""Secrets that the daemon was given while it runs: the access tokens of what it calls. Bounded; the newest stay."""

from collections import OrderedDict
from threading import Lock
from typing import Final

from gateway.config.secrets.redactor import Redactor

MAX_SECRETS: Final = 128
"""What is looked for in all that leaves. An older token is near its end, or that of a caller who was here long ago."""


class ObtainedSecrets:
    """Added by the threads that obtain them; read by all that mask."""

    def __init__(self) -> None:
        self._secrets: Final[OrderedDict[str, None]] = OrderedDict()
        self._adding: Final = Lock()
        self.redactor: Redactor | None = None
        """Masks them; None as long as there are none."""

    def add(self, secret: str) -> None:
        """Mask it from now on. Takes about a millisecond for each that is kept."""
        with self._adding:
            self._secrets[secret] = None
            self._secrets.move_to_end(secret)
            while len(self._secrets) > MAX_SECRETS:
                self._secrets.popitem(last=False)
            self.redactor = Redactor(self._secrets)
