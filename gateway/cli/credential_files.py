"""Recognises files with credentials by name and content, so that `bundle` can leave out such files."""

import re
from base64 import b64decode
from fnmatch import fnmatchcase
from pathlib import PurePath
from typing import Final

_NAMES: Final = (
    *(".env", ".env.*", ".envrc", ".git", ".hg", ".svn", ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker"),
    *(".gcloud", ".netrc", "_netrc", ".pgpass", ".my.cnf", ".npmrc", ".pypirc", ".git-credentials", ".htpasswd"),
    *(".dockercfg", ".s3cfg", ".boto", ".vault-token", "credentials", "credentials.json", "*.tfstate", "*.kdbx"),
    *("id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "id_ecdsa_sk", "id_ed25519_sk", "*.p12", "*.pfx", "*.jks"),
    *("*.keystore", "*.ppk", "*.env", "kubeconfig", "*.kubeconfig"),
)
_PEM: Final = re.compile(rb"----[- ]BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?[- ]----")
"""Headers of private keys in RFC 7468 §10 and §11, OpenSSH, SSH2 (RFC 4716) and OpenPGP (RFC 9580 §6.2)."""
_LINE_OF_KEY: Final = re.compile(rb"[ \t]*\r?\n\s*\S|(?:\\r)?\\n[A-Za-z0-9+/]")
_BASE64: Final = re.compile(rb"[A-Za-z0-9+/]{32}")
_AFTER_HEADER: Final = 600
"""Maximum bytes of headers, such as `Proc-Type`, between the BEGIN line and the Base64 text of a key."""
_OTHER_TEXT: Final = re.compile(
    rb"(?m)^PuTTY-User-Key-File-\d|AGE-SECRET-KEY-1|^SSH PRIVATE KEY FILE FORMAT|"
    # RFC 7517: private JSON Web Keys have the member `d`, and symmetric keys have the member `k`.
    rb'"kty"\s*:\s*"(?:EC|RSA|OKP|oct)"[^{}]*"[dk]"\s*:\s*"|"[dk]"\s*:\s*"[^{}]*"kty"\s*:'
)
_ENCODED_PEM: Final = re.compile(rb"LS0tLS1CRUdJTi[A-Za-z0-9+/\s]{30,}")
"""Matches the Base64 encoding of `-----BEGIN `, for example in kubeconfigs and Kubernetes secrets."""
_KUBECONFIG: Final = tuple(
    map(re.compile, (rb"\bclusters['\"]?\s*:", rb"\busers['\"]?\s*:", rb"\btoken['\"]?\s*:\s*['\"]?[\w.~+/-]{16}"))
)
_DER: Final = re.compile(
    rb"\x30(?:[\x02-\x7f]|\x81.|\x82..|\x83...)(?:"
    rb"\x02\x01[\x00\x01]\x30.{1,3}\x06|"  # PKCS #8 (RFC 5958)
    rb"\x02\x01\x00\x02[\x20-\x84]|"  # PKCS #1 (RFC 8017 A.1.2), DSA
    rb"\x02\x01\x01\x04|"  # SEC 1 (RFC 5915)
    rb"\x30.{1,3}\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x05|"  # encrypted PKCS #8
    rb"\x30.{1,3}\x06\x0a\x2a\x86\x48\x86\xf7\x0d\x01\x0c|"  # encrypted with PKCS #12 algorithms
    rb"\x02\x01\x03\x30)"  # PKCS #12 (RFC 7292)
    rb"|\xfe\xed\xfe\xed|\xce\xce\xce\xce",  # Java key stores
    re.DOTALL,
)


def named_as_credentials(path: PurePath) -> PurePath | None:
    """Return the first parent of a path, or the path itself, whose name is typical of credentials, such as `.ssh`."""
    for index, part in enumerate(path.parts, 1):
        if any(fnmatchcase(part.lower(), pattern) for pattern in _NAMES):
            return PurePath(*path.parts[:index])
    return None


def holds_private_key(content: bytes) -> bool:
    """Return whether a file contains a private key, or is a kubeconfig with a token.

    A PEM header without a key does not count, because the file is probably source code that handles keys.
    """
    if _DER.match(content) is not None or _OTHER_TEXT.search(content) is not None:
        return True
    text = content.replace(b"\0", b"")  # reduces ASCII text in UTF-16 to ASCII
    if _has_pem(text) or all(each.search(text) for each in _KUBECONFIG):
        return True
    encoded = (b"".join(found[0].split()) for found in _ENCODED_PEM.finditer(text))
    return any(_has_pem(b64decode(each[: len(each) // 4 * 4])) for each in encoded)


def _has_pem(text: bytes) -> bool:
    return any(
        _LINE_OF_KEY.match(text, found.end()) or _BASE64.search(text, found.end(), found.end() + _AFTER_HEADER)
        for found in _PEM.finditer(text)
    )
