"""Client configurations: JSON blocks in READMEs of published packages, and files in these packages."""

import json
import re
import tempfile
from collections.abc import AsyncIterator, Iterator
from functools import cache
from pathlib import Path
from typing import Final

from gateway.config.loader import load
from gateway.config.models.upstreams import Upstream
from gateway.errors import ConfigError
from gateway.json_types import Json
from tests.corpus.corpora import Corpus, Verdict, sampled
from tests.corpus.packages import directory

SAMPLE: Final = 60
_BLOCK: Final = re.compile(r"```[a-z0-9]*[^\n]*\n(?P<text>\s*\{.*?)```", re.DOTALL | re.IGNORECASE)
_SHIPPED: Final = (".mcp.json", "mcp.json", "claude_desktop_config*.json")
_SERVERS: Final = re.compile(r'"(mcpServers|servers)":\s*\{')
_VARIABLE: Final = re.compile(r"\$\{(?:env:)?([A-Za-z_]\w*)\}")


async def verdicts(part: str) -> AsyncIterator[Verdict]:
    """Judge one configuration. Each server must become an upstream with the same command or URL."""
    text = _texts()[part]
    with tempfile.TemporaryDirectory() as made:
        (Path(made) / "client.json").write_text(text, encoding="utf-8")
        config = Path(made) / "config.yaml"
        config.write_text("mcp_json: [client.json]\n", encoding="utf-8")
        try:
            loaded = load(config, environ=dict.fromkeys(_VARIABLE.findall(text), "value"))
            loaded.raise_errors()
        except ConfigError as error:
            yield Verdict(check="files", case=part, wrong=str(error).replace(made, ""))
            return
        yield Verdict(check="files", case=part)
        upstreams = loaded.document.upstreams
        for name, entry in _servers(_VARIABLE.sub("value", text.replace("${workspaceFolder}", made))):
            ours, expected = _started(upstreams.get(name)), _expected(entry)
            reason = "input" if ours is None and "${input:" in json.dumps(entry) else ""
            wrong = "" if ours == expected or reason else f"{expected} became {ours}"
            yield Verdict(check="servers", case=f"{part} {name}", reason=reason, wrong=wrong)


def _servers(text: str) -> Iterator[tuple[str, Json]]:
    """Yield the enabled servers of a configuration that is plain JSON."""
    try:
        root = json.loads(text)
    except ValueError:  # comments, trailing commas
        return
    for section in (root.get("mcpServers"), root.get("servers"), root.get("mcp", {}).get("servers")):
        for name, entry in (section or {}).items():
            if not entry.get("disabled") and entry.get("enabled", True):
                yield name, entry


def _started(upstream: Upstream | None) -> Json:
    """Return command, URL and environment of an upstream."""
    if upstream is None:
        return None
    command = [str(word) for word in (*(upstream.command or ()), *upstream.args)]
    env = {name: str(value) for name, value in upstream.env.items()}
    return {"command": command, "url": str(upstream.url or ""), "env": env}


def _expected(entry: Json) -> Json:
    url = next((entry[key] for key in ("url", "httpUrl", "serverUrl") if key in entry), "")
    command = [entry["command"], *entry.get("args", ())] if "command" in entry else []
    return {"command": command, "url": url, "env": entry.get("env", {})}


@cache
def _texts() -> dict[str, str]:
    """Return the configurations without duplicates, by package and number."""
    found: dict[str, str] = {}
    for path in _pages():
        text = path.read_text(encoding="utf-8", errors="replace")
        blocks = [text] if path.suffix == ".json" else [block["text"] for block in _BLOCK.finditer(text)]
        for number, block in enumerate(blocks, 1):
            if _SERVERS.search(block) and block not in found.values():
                found[f"{_package(path)} {number}"] = block
    return found


def _package(path: Path) -> str:
    *_, last = path.as_posix().partition("node_modules/")
    return last.rpartition("/")[0] or path.parent.name.removesuffix(".dist-info")


def _pages() -> Iterator[Path]:
    packages = directory() / "node_modules"
    for pattern in ("README*", *_SHIPPED):
        yield from sorted([*packages.glob(f"*/{pattern}"), *packages.glob(f"@*/*/{pattern}")])
    yield from sorted((directory() / "python").glob("*/lib/python3*/site-packages/*.dist-info/METADATA"))


def parts(*, is_whole: bool) -> list[str]:
    return [*_texts()] if is_whole else sampled([*_texts()], SAMPLE)


CORPUS: Final = Corpus(
    title="Client configurations",
    about="""
JSON blocks with `mcpServers` or `servers` in the READMEs of the servers above and their dependencies, and configuration
files in these packages. They are read with `mcp_json`. Every enabled server must become an upstream with the same
command, arguments, environment and URL.
""",
    checks={"files": "Configurations", "servers": "Servers in configurations without comments"},
    reasons={
        "input": "`${input:…}` asks the user, so the server is skipped with a warning. Use `${env:NAME}` instead.",
    },
    parts=parts,
    verdicts=verdicts,
)
