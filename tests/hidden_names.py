"""Removes names that Python's modules have on Linux but not on macOS.

The part `portable` of `.ci/run` runs this file whenever an interpreter starts. It also hides /proc.
"""

from importlib import import_module
from typing import Final

_NAMES: Final[dict[str, tuple[str, ...]]] = {
    "select": ("epoll",),  # first, because importing `socket` imports `selectors`
    "fcntl": ("F_ADD_SEALS", "F_GETPIPE_SZ", "F_GET_SEALS", "F_NOTIFY", "F_OFD_SETLK", "F_SETPIPE_SZ"),
    "os": (
        *("O_DIRECT", "O_LARGEFILE", "O_NOATIME", "O_PATH", "O_RSYNC", "O_TMPFILE", "P_PIDFD"),
        *("copy_file_range", "eventfd", "eventfd_read", "eventfd_write", "fdatasync", "getrandom", "getresgid"),
        *("getresuid", "getxattr", "listxattr", "memfd_create", "pidfd_open", "pipe2", "posix_fadvise"),
        *("posix_fallocate", "removexattr", "sched_getaffinity", "sched_getparam", "sched_getscheduler"),
        *("sched_rr_get_interval", "sched_setaffinity", "sched_setparam", "sched_setscheduler", "setresgid"),
        *("setresuid", "setxattr", "splice", "waitid"),
    ),
    "resource": ("RLIMIT_MSGQUEUE", "RLIMIT_NICE", "RLIMIT_OFILE", "RLIMIT_RTPRIO", "RLIMIT_SIGPENDING", "prlimit"),
    "signal": (
        *("SIGPOLL", "SIGPWR", "SIGRTMAX", "SIGRTMIN", "SIGSTKFLT", "pidfd_send_signal", "sigtimedwait"),
        *("sigwaitinfo",),
    ),
    "socket": (
        *("AF_NETLINK", "MSG_CMSG_CLOEXEC", "SOCK_CLOEXEC", "SOCK_NONBLOCK", "SO_BINDTODEVICE", "SO_DOMAIN"),
        *("SO_INCOMING_CPU", "SO_MARK", "SO_PASSCRED", "SO_PEERCRED", "SO_PROTOCOL", "TCP_CORK", "TCP_DEFER_ACCEPT"),
        *("TCP_QUICKACK", "TCP_USER_TIMEOUT"),
    ),
    "time": ("CLOCK_BOOTTIME", "CLOCK_TAI"),
}

for module_name, names in _NAMES.items():
    module = import_module(module_name)
    for name in names:
        if hasattr(module, name):
            delattr(module, name)
