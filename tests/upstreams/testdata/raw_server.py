"""A legacy MCP server over stdio that answers with given bytes: `python raw_server.py ANSWERS`.

ANSWERS is a JSON object of lines by tool or method, in Latin-1. ID stands for the id of the request, LONG for 1.5 MB.
"""

import json
import os
import sys

ANSWERS = json.loads(sys.argv[1])
FIXED = {
    "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {}},
    "tools/list": {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in (*ANSWERS, "pid")]},
    "tools/call": {"content": [{"type": "text", "text": str(os.getpid())}]},
}

for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    method = message["method"]
    answer = ANSWERS.get(message["params"]["name"] if method == "tools/call" else method)
    if answer is None and method in FIXED:
        answer = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": FIXED[method]})
    if answer is None:
        answer = '{"jsonrpc": "2.0", "id": ID, "error": {"code": -32601, "message": "Method not found"}}'
    text = answer.replace("ID", str(message["id"])).replace("LONG", "x" * 1_500_000)
    sys.stdout.buffer.write(text.encode("latin-1") + b"\n")
    sys.stdout.buffer.flush()
