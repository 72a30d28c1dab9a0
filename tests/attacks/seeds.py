"""Secrets that an attacker must not get: one of each kind that a file can contain, and files outside every root."""

import base64
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote

SECRETS: Final[Mapping[str, str]] = {
    "env in a header": "seeded-header-5fQ2xW9nLr",
    "env in an environment": "seeded-environment-8KbV3mTz",
    "env in a query": "seeded-query-J7pR4cYh",
    "env in a body": "seeded-body-Wd6Zs9Gk",
    "file": "seeded-file-Nq3Xv8Bt",
    "file with marks": 'seeded-"quoted"\\and-ümlaut-Hc5Lp2',
    "file of lines": "-----BEGIN SEEDED KEY-----\nseeded-lines-Tt7Mm4\n-----END SEEDED KEY-----",
    "api key": "seeded-api-key-Rk4Vb7Ng2Hs9",
    "signing key": "seeded-signing-key-Pz9Fj6Uw",
}

MIN_LINE_LENGTH: Final = 8
"""The minimum length of a line of a secret that is searched separately."""

FILE: Final = """
connections:
  seeded:
    base_url: "${env:SEEDED_URL}"
    allow_private: true
    headers:
      Authorization: "Bearer ${env:SEEDED_HEADER}"
      X-Marks: "${file:marks.secret}"
      X-Key: "${env:SEEDED_KEY}"
tools:
  seeded_command:
    description: Prints the lengths of the secrets of its child.
    shell:
      script: 'printf %s "${#FROM_ENV} ${#FROM_FILE} ${#FROM_LINES}"'
      env:
        FROM_ENV: "${env:SEEDED_ENVIRONMENT}"
        FROM_FILE: "${file:plain.secret}"
        FROM_LINES: "${file:lines.secret}"
  seeded_request:
    description: Sends secrets to a closed port.
    http:
      connection: seeded
      url: /
      method: POST
      query: {key: "${env:SEEDED_QUERY}"}
      json: {key: "${env:SEEDED_BODY}"}
  seeded_echo:
    description: A child that prints its environment.
    shell:
      script: "env; env >&2; exit 3"
      env: {FROM_ENV: "${env:SEEDED_ENVIRONMENT}", FROM_FILE: "${file:plain.secret}"}
"""
"""An additional file next to the attacked one."""


def environment(*, unreachable: str) -> dict[str, str]:
    """Return the daemon's variables with secrets. The seeded connection uses the URL `unreachable`."""
    return {
        "SEEDED_URL": unreachable,
        "SEEDED_HEADER": SECRETS["env in a header"],
        "SEEDED_ENVIRONMENT": SECRETS["env in an environment"],
        "SEEDED_QUERY": SECRETS["env in a query"],
        "SEEDED_BODY": SECRETS["env in a body"],
        "SEEDED_KEY": SECRETS["api key"],
        "MCP_GATEWAY_SECRET_KEY": SECRETS["signing key"],
    }


def write_files(folder: Path) -> None:
    (folder / "plain.secret").write_text(SECRETS["file"] + "\n")
    (folder / "marks.secret").write_text(SECRETS["file with marks"])
    (folder / "lines.secret").write_text(SECRETS["file of lines"] + "\n")
    (folder / "seeded.yaml").write_text(FILE)


def written_forms() -> Iterator[tuple[str, bytes]]:
    """Return each secret by its name, in the forms that can occur in sent or logged bytes."""
    for name, secret in SECRETS.items():
        lines = [line for line in secret.splitlines() if len(line) >= MIN_LINE_LENGTH]
        forms = {secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], quote(secret, safe="")}
        yield from ((name, form.encode()) for form in (*forms, *lines, *in_base64(secret)))


def in_base64(secret: str) -> Iterator[str]:
    """Yield the base64 forms of a secret within a longer text, without the characters that depend on its neighbours."""
    for before in range(3):
        yield base64.b64encode(b"." * before + secret.encode() + b"..").decode()[4:-8]
