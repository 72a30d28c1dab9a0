"""Warnings of `validate`."""

import json
from pathlib import Path

from tests.cli.typed import Run


def test_blocked_literal_hosts_are_warned_about(run: Run, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("""\
connections:
  private: {base_url: "http://10.1.2.3/x"}
  allowed: {base_url: "http://localhost:1/x", allow_private: [localhost]}
tools:
  direct: {description: T., http: {url: "http://127.0.0.1:8021/x"}}
  shared: {description: T., http: {connection: private, url: "/x"}}
  fine: {description: T., http: {connection: allowed, url: "/x"}}
  own: {description: T., http: {connection: private, url: "/y", allow_private: true}}
  ipv6: {description: T., http: {url: "http://[::1]/x", allow_private: ["::1"]}}
  template: {description: T., input: {host: string}, http: {url: "http://{host}/x"}}
  malformed: {description: T., http: {url: "http://[::::]/x"}}
openapi:
  document: {document: "http://127.0.0.1:9/x.json"}
  fine: {document: "http://127.0.0.1:9/x.json", connection: allowed, allow_private: true}
upstreams:
  direct: {url: "http://[::1]:8021/mcp"}
  shared: {connection: private, url: "/mcp"}
  fine: {url: "http://localhost:8021/mcp", allow_private: true}
""")
    finished = run("validate", "--json")
    found = json.loads(finished.out)
    blocked = {each["path"]: each["message"] for each in found if "which is blocked" in each["message"]}
    assert blocked == {
        "connections.private.base_url": "`10.1.2.3` is a private address, which is blocked. "
        "Allow it with `allow_private: [10.1.2.3]`",
        "tools.direct.http.url": "`127.0.0.1` is a loopback address, which is blocked. "
        "Allow it with `allow_private: [127.0.0.1]`",
        "openapi.document.document": "`127.0.0.1` is a loopback address, which is blocked. "
        "Allow it with `allow_private: [127.0.0.1]`",
        "upstreams.direct.url": '`::1` is a loopback address, which is blocked. Allow it with `allow_private: ["::1"]`',
    }
    assert finished.code == 0
