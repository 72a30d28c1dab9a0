"""Code in a sandbox cannot reach the network, files or processes, and gains no privileges.

Each attack is Python code that prints `got` if it succeeds. As a control, it must succeed outside the sandbox.
"""

import os
import shutil
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.attacks.target import Plan, Target
from tests.examples import examples
from tests.programs import need_sandboxes

PLAN = Plan(
    file=f"""
    tools:
      inside:
        description: Run code in a sandbox.
        input: {{code: string}}
        shell: &run
          script: |
            import os
            exec(os.environ["INPUT_CODE"])
          interpreter: ["@python@", -IS]
          timeout: 20s
          limits: {{cpu: 10s}}
          sandbox:
            readable: ["{sys.base_prefix}", shown]
            writable: [out]
      outside:
        description: Run code without a sandbox.
        input: {{code: string}}
        shell:
          script: |
            import os
            exec(os.environ["INPUT_CODE"])
          interpreter: ["@python@", -IS]
          timeout: 20s
      brief:
        description: Run code in a sandbox, not for long.
        input: {{code: string}}
        shell: {{<<: *run, timeout: 2s}}
      connected:
        description: Run code in a sandbox with a network.
        input: {{code: string}}
        shell: {{<<: *run, sandbox: {{network: true, readable: ["{sys.base_prefix}"]}}}}
      placed:
        description: A caller chooses the directory.
        input: {{folder: string}}
        shell: {{command: [ls, -A], cwd: "{{{{ folder }}}}", sandbox: {{readable: [shown]}}}}
      listed:
        description: List the visible files.
        input: {{folder: {{type: string, within: shown}}}}
        shell: {{command: [ls, -A, "--", "{{{{ folder }}}}"], sandbox: {{readable: [shown]}}}}
    resources:
      results:
        files: "*.txt"
        root: out
      looked_up:
        uri: "looked-up://{{name}}"
        shell: {{command: [sh, -c, 'printf %s "$1"; ls -A | wc -l', sh, "{{{{ name }}}}"], sandbox: {{}}}}
        complete:
          name: {{command: [sh, -c, 'test -e "@canary@" && echo got; echo "$1"', sh, "{{{{ value }}}}"]}}
    """,
    files={"shown/file.txt": "shown", "out/ours.txt": "ours"},
)


@pytest.fixture(scope="module", autouse=True)
def _sandboxes() -> None:
    need_sandboxes()


def got(target: Target, tool: str, code: str) -> bool:
    """Return whether the code succeeds without an exception."""
    guarded = (
        f"try:\n    print('got' if (lambda: {code})() else 'no')\nexcept Exception as error:\n    print('no', error)"
    )
    text = target.client.text(tool, {"code": guarded})
    assert text.startswith(("got", "no")), text
    return text.startswith("got")


def successful(target: Target, tool: str, codes: Sequence[str]) -> list[str]:
    """Run several codes in one process, and return the successful ones."""
    attempts = "".join(
        f"try:\n    print('got' if (lambda: {code})() else 'no')\nexcept Exception:\n    print('no')\n"
        for code in codes
    )
    words = target.client.text(tool, {"code": attempts}).split()
    return [code for code, word in zip(codes, words, strict=True) if word == "got"]


def assert_confined(target: Target, attack: str, *, control: str | None = None) -> None:
    """Check that code succeeds outside and fails inside. `control` replaces code that would harm the target outside."""
    assert got(target, "outside", control or attack), control or attack
    assert not got(target, "inside", attack), attack


@contextmanager
def listener(family: int, address: tuple[str, int] | str, kind: int = socket.SOCK_STREAM) -> Iterator[socket.socket]:
    with socket.socket(family, kind) as server:
        server.bind(address)
        if kind == socket.SOCK_STREAM:
            server.listen()
        yield server


CONNECT = "__import__('socket').create_connection(('{host}', {port}), 5)"
UNIX = "__import__('socket').socket(1).connect({path!r}) is None"


def test_code_runs_in_the_sandbox(target: Target) -> None:
    """As a control, the code can read and write the configured paths."""
    assert target.client.text("inside", {"code": "print(6 * 7)"}) == "42\n"
    assert got(target, "inside", f"open('{target.folder}/shown/file.txt').read() == 'shown'")
    assert got(target, "inside", f"open('{target.folder}/out/made.txt', 'w').write('made') == 4")
    assert (target.folder / "out" / "made.txt").read_text() == "made"
    assert got(target, "inside", "open(os.environ['INPUTS_FILE']).read()")


# The network


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0", "::ffff:127.0.0.1"])
def test_listeners_of_the_host_are_unreachable(target: Target, host: str) -> None:
    with listener(socket.AF_INET, ("127.0.0.1", 0)) as server:
        assert_confined(target, CONNECT.format(host=host, port=server.getsockname()[1]))
    assert not got(target, "inside", CONNECT.format(host=host, port=target.canary.port))
    assert not got(target, "inside", CONNECT.format(host=host, port=target.direct.port))


def test_sandbox_with_network_reaches_servers(target: Target) -> None:
    with listener(socket.AF_INET, ("127.0.0.1", 0)) as server:
        assert got(target, "connected", CONNECT.format(host="127.0.0.1", port=server.getsockname()[1]))


def test_datagrams_cannot_leave(target: Target) -> None:
    send = "__import__('socket').socket(2, 2).sendto({data!r}, ('127.0.0.1', {port}))"
    with listener(socket.AF_INET, ("127.0.0.1", 0), socket.SOCK_DGRAM) as server:
        port = server.getsockname()[1]
        got(target, "inside", send.format(data=b"inside", port=port))
        assert got(target, "outside", send.format(data=b"outside", port=port))
        server.settimeout(10)
        assert server.recv(100) == b"outside"


def test_only_loopback_is_reachable(target: Target) -> None:
    names = "[name for _, name in __import__('socket').if_nameindex()]"
    assert got(target, "inside", f"{names} in (['lo'], [])")
    assert not got(target, "inside", CONNECT.format(host="192.0.2.1", port=80))


def test_outside_socket_files_are_unreachable(target: Target, tmp_path: Path) -> None:
    path = str(target.folder.parent / "outside" / "s")
    with listener(socket.AF_UNIX, path):
        assert_confined(target, UNIX.format(path=path))
    Path(path).unlink()


def test_abstract_sockets_are_unreachable(target: Target) -> None:
    name = f"\0mcp-gateway-attack-{os.getpid()}"
    with listener(socket.AF_UNIX, name):
        assert_confined(target, UNIX.format(path=name))


# Reading


OUTSIDE = (
    "{canary}",
    "{served}/main.yaml",
    "{served}/plain.secret",
    "{served}/shown/../plain.secret",
    "{served}/shown/../../outside/canary.txt",
    "/proc/self/root{canary}",
    "/proc/1/root{canary}",
    "/proc/self/cwd/../outside/canary.txt",
    "/proc/{pid}/environ",
    "/proc/{pid}/cmdline",
    "/proc/{pid}/root{canary}",
    "/proc/{pid}/cwd/pyproject.toml",
    "/sys/kernel/uevent_seqnum",
    "/etc/fstab",
    "/etc/shadow",
    "/proc/kmsg",
    "/dev/mem",
)


def test_outside_files_cannot_be_read(target: Target) -> None:
    names = {"canary": target.canary.file, "served": target.folder, "pid": target.process.pid}
    codes = {f"open({path.format(**names)!r}, 'rb').read(20)": path for path in OUTSIDE}
    assert successful(target, "inside", [*codes]) == []
    # These files do not exist, or the daemon cannot read them, on some machines.
    closed = codes.keys() - successful(target, "outside", [*codes])
    assert all(codes[code].startswith(("/etc", "/sys", "/dev", "/proc")) for code in closed), closed


STEPS = (
    "..",
    ".",
    "proc",
    "self",
    "1",
    "root",
    "cwd",
    "fd",
    "3",
    "out",
    "shown",
    "tmp",
    "dev",
    "thread-self",
    "task",
    "",
)


@given(steps=st.lists(st.sampled_from(STEPS), max_size=8), is_absolute=st.booleans())
@examples(25)
def test_indirect_paths_cannot_leave_the_sandbox(target: Target, steps: list[str], *, is_absolute: bool) -> None:
    """No path leads to a file with the content of the canary."""
    start = "/" if is_absolute else f"{target.folder}/"
    ends = (str(target.canary.file), "outside/canary.txt", "canary.txt", "plain.secret", "main.yaml")
    paths = [start + "/".join([*steps, end]) for end in ends]
    probe = f"[p for p in {paths!r} if os.path.exists(p)]"
    assert not got(target, "inside", probe), paths


def test_link_in_a_writable_directory_is_not_followed(target: Target) -> None:
    out, canary = target.folder / "out", target.canary.file
    link = f"[os.path.lexists('{out}/link.txt') or os.symlink('{canary}', '{out}/link.txt'), "
    assert not got(target, "inside", f"{link}open('{out}/link.txt').read()][1]")
    assert got(target, "outside", f"open('{out}/link.txt').read()")
    # The daemon does not follow the link either.
    for uri in ("results:///link.txt", "results:///ours.txt"):
        answer = target.client.modern("resources/read", {"uri": uri})
        assert (answer.json.get("error") is None) is uri.endswith("ours.txt"), answer
    assert not got(target, "inside", f"os.link('{canary}', '{out}/hard.txt') is None")
    (out / "link.txt").unlink()


def test_caller_cannot_choose_a_hidden_directory(target: Target) -> None:
    assert target.client.text("placed", {"folder": "shown"}) == "file.txt\n"
    for folder in ("/", "/usr"):  # the directories exist
        assert "root" not in target.client.text("placed", {"folder": folder}).split()
    way = [[], *([name] for name in (*target.folder.parts[1:], "shown"))]
    for folder in (str(target.canary.file.parent), "/root", "/home", "..", "out"):
        says = target.client.call("placed", {"folder": folder})
        # The parents of `shown` exist, and are otherwise empty.
        assert says.get("isError") or says["content"][0]["text"].split() in way, says


def test_sandbox_confines_paths_too(target: Target) -> None:
    shown = target.folder / "shown"
    assert target.client.text("listed", {"folder": str(shown)}) == "file.txt\n"
    for folder in (f"{shown}/..", f"{shown}/../out", "/", str(target.canary.file.parent)):
        assert "must be an absolute path under" in target.client.refusal("listed", {"folder": folder})


def test_resource_command_runs_in_the_sandbox(target: Target) -> None:
    answer = target.client.modern("resources/read", {"uri": "looked-up://x"})
    assert answer.json["result"]["contents"][0]["text"] == "x0\n", answer


def test_completion_command_has_the_sandbox_of_its_definition(target: Target) -> None:
    answer = target.client.modern(
        "completion/complete",
        {"ref": {"type": "ref/resource", "uri": "looked-up://{name}"}, "argument": {"name": "name", "value": "x"}},
        name="looked-up://{name}",
    )
    assert answer.json["result"]["completion"]["values"] == ["x"], answer


# Writing


def tree(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Return all paths below a directory, with their modification times."""
    facts = {str(path): path.lstat() for path in folder.rglob("*")}
    return {path: (fact.st_mode, fact.st_size, fact.st_mtime_ns) for path, fact in facts.items()}


@pytest.mark.parametrize(
    "attack",
    [
        "open('{parent}/outside/new', 'w').write('x')",
        "open('{served}/main.yaml', 'a').write('# more')",
        "open('{served}/shown/file.txt', 'a').write('more')",
        "open('{served}/shown/new', 'w').write('x')",
        "open('{served}/out/../new', 'w').write('x')",
        "open('{parent}/served/plugins', 'w').write('x')",
        "os.chmod('{served}/shown/file.txt', 0o640) is None",
        "os.utime('{served}/shown/file.txt') is None",
        "os.truncate('{served}/main.yaml', 1) is None",
        "os.rename('{served}/shown', '{served}/hidden') is None",
        "os.symlink('/', '{served}/shown/link') is None",
        "os.remove('{served}/shown/file.txt') is None",
    ],
)
def test_outside_files_cannot_be_written(target: Target, attack: str, tmp_path: Path) -> None:
    """Writes inside can seem to succeed, because the files are below /tmp, which is private to the call."""
    parent = target.folder.parent
    before = tree(parent)
    got(target, "inside", attack.format(parent=parent, served=target.folder))
    assert tree(parent) == before
    copy = tmp_path / "copy"
    shutil.copytree(parent, copy, symlinks=True)
    before = tree(copy)
    assert got(target, "outside", attack.format(parent=copy, served=copy / "served"))
    assert tree(copy) != before


def test_system_files_are_read_only(target: Target) -> None:
    paths = ["/new", "/usr/new", "/etc/passwd", "/etc/new", "/dev/new", "/bin/sh", "/proc/new", "/tmp/new"]
    codes = [f"open({path!r}, 'a') is not None" for path in paths]
    assert successful(target, "inside", codes) == codes[-1:]


def test_input_files_are_read_only(target: Target) -> None:
    assert not got(target, "inside", "open(os.environ['INPUTS_FILE'], 'a') is not None")
    assert got(target, "inside", "open(os.environ['INPUTS_FILE']) is not None")


def test_kernel_settings_cannot_be_changed(target: Target) -> None:
    """The settings are only opened for writing, because root could change them outside."""
    settings = ("sys/kernel/core_pattern", "sys/kernel/hostname", "sysrq-trigger", "self/oom_score_adj")
    codes = [f"os.open('/proc/{setting}', os.O_WRONLY) is not None" for setting in settings]
    assert successful(target, "inside", codes) == []
    assert got(target, "outside", "os.open('/proc/self/oom_score_adj', os.O_WRONLY) is not None")


# Processes


def test_other_processes_are_invisible_and_cannot_be_signalled(target: Target) -> None:
    seen = "len([name for name in os.listdir('/proc') if name.isdigit()]) > 3"
    assert_confined(target, seen)
    assert_confined(target, f"os.kill({target.process.pid}, 0) is None")
    assert not got(target, "inside", "os.kill(-1, 15) is None and False")
    assert target.process.poll() is None


def test_first_process_of_the_sandbox_cannot_be_killed(target: Target) -> None:
    assert got(target, "inside", "[os.kill(1, 9), os.kill(os.getppid(), 15)]")


def test_parent_of_the_first_process_is_invisible(target: Target) -> None:
    assert got(target, "inside", "open('/proc/1/stat').read().rpartition(')')[2].split()[1] == '0'")


# Privileges


def test_sandbox_has_no_capabilities_and_gains_none(target: Target) -> None:
    status = target.client.text("inside", {"code": "print(open('/proc/self/status').read())"})
    facts = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert facts["NoNewPrivs"] == "1"
    assert {int(facts[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {0}


LIBC = "__import__('ctypes').CDLL(None)"


CALLS = (
    "unshare(0x10000000)",  # CLONE_NEWUSER
    "unshare(0x00020000)",  # CLONE_NEWNS
    "mount(b'none', b'/tmp', b'tmpfs', 0, None)",
    "mount(b'none', b'/usr', None, 32 | 4096, None)",  # MS_REMOUNT | MS_BIND: writable again
    "umount2(b'/proc', 2)",
    "pivot_root(b'/tmp', b'/tmp')",
    "chroot(b'/tmp')",
    "setuid(12345)",
    "sethostname(b'x', 1)",
    "mknod(b'/tmp/disk', 0o60644, 0x0800)",
    "setns(__import__('os').open('/proc/1/ns/mnt', 0), 0)",
)


def test_system_calls_cannot_leave_the_sandbox(target: Target) -> None:
    """As a control, a harmless system call succeeds."""
    codes = [f"{LIBC}.{call} == 0" for call in (*CALLS, "chdir(b'/tmp')")]
    assert successful(target, "inside", codes) == codes[-1:]


def test_descriptors_of_the_daemon_are_not_inherited(target: Target) -> None:
    assert got(target, "inside", "sorted(os.listdir('/proc/self/fd'))[:3] == ['0', '1', '2']")
    kinds = "[os.readlink(f'/proc/self/fd/{n}') for n in '012']"
    assert got(target, "inside", f"all(kind.startswith(('pipe:', '/dev/null')) for kind in {kinds})")


def test_variables_of_the_daemon_are_not_inherited(target: Target) -> None:
    code = "[name for name in os.environ if 'SEEDED' in name or 'SECRET' in name]"
    assert not got(target, "inside", code)
    assert not got(target, "inside", "b'SEE' + b'DED' in open('/proc/1/environ', 'rb').read()")


# Exhaustion


def test_full_temporary_directory_only_affects_its_call(target: Target) -> None:
    fill = "open('/tmp/full', 'wb').write(bytes(100 * 2**20))"
    assert not got(target, "inside", fill)
    assert got(target, "inside", "open('/tmp/more', 'wb').write(bytes(2**20))")


def test_background_processes_end_with_the_sandbox(target: Target) -> None:
    code = (
        "import subprocess, time\n"
        "for _ in range(5):\n"
        "    subprocess.Popen(['sh', '-c', 'trap \"\" TERM HUP; sleep 600'], start_new_session=True)\n"
        "    subprocess.Popen(['sleep', '600'], start_new_session=True, env={})\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        time.sleep(600)\n"
        "    os._exit(0)\n"
        "print('left')"
    )
    assert target.client.text("inside", {"code": code}) == "left\n"  # the rest is checked by `assert_unharmed`


def test_sandbox_that_stops_its_supervisor_is_killed_in_time(target: Target) -> None:
    """The code traces the first process of the sandbox, which stops it."""
    text = target.client.refusal("brief", {"code": f"print({LIBC}.ptrace(16, 1, 0, 0), flush=True)"})
    assert "timed out after 2.0 s" in text
    assert "0" in text.rpartition("stdout:")[2]


@pytest.mark.build
def test_fork_bomb_ends_with_its_call(target: Target) -> None:
    code = "import time\nfor _ in range(200):\n    if os.fork() == 0:\n        time.sleep(600)\nprint('stormed')"
    callers = [threading.Thread(target=target.client.call, args=("inside", {"code": code})) for _ in range(3)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    with suppress(FileNotFoundError):
        (target.folder / "free").unlink()
    assert target.client.text("inside", {"code": "print('calm')"}) == "calm\n"
