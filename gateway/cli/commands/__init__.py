"""The commands that `gateway/cli/__init__.py` lists.

Each command is a module or a package with two functions. `parser` receives a name such as `mcp-gateway serve`, and
returns the argument parser of the command. The coroutine `run` receives the options and two consoles, for results and
for all other output, and returns the exit code. It can raise ConfigError, ExecutionError and RpcError, which
`gateway/cli/execution.py` reports.
"""
