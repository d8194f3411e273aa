"""The walls around code that nobody has read.

A fork server (`warm`) imports the libraries once and forks a process per submission. Two rings of walls stand around it:

==========================================  =========================================================================
wall                                        built by
==========================================  =========================================================================
whitelist root, read only                   bubblewrap, around the server: /usr, the Python prefix, the environment, the
                                            helper package; no other file of the machine exists inside
no network, own ipc, uts, pid namespaces    bubblewrap, around the server; again by `enter`, around each submission
uid 65534, no capabilities over the machine bubblewrap (ordinary user) or `settle` (root), before anything is imported
own pid, mount, user namespace per child    `fork`, `enter`: bubblewrap starts programs by exec, which would lose the
                                            warm imports
private /tmp, /dev/shm, home; own /proc     `enter`: fresh tmpfs with a size limit in the child's mount namespace
time, memory, files, processes              `enter`: setrlimit; `Cgroup` (exact memory, where cgroups are usable)
dangerous system calls                      libseccomp, loaded by `enter`
wall clock, memory watch, output            the grader's own process (`forkserver`), outside of both rings
==========================================  =========================================================================

Everything from `settle` on runs as an ordinary user, whoever started the grader: the server's only capabilities are
those over its own user namespace, and each child ends up in one of its own without any. That also gives each submission
its own count of processes, so that a fork bomb takes nothing from its neighbors. Memory without a usable cgroup is a
weaker wall: each process is limited by RLIMIT_DATA, and the sum over processes is watched every 50 ms, so a burst can
pass the limit for that long; files in the private folders count toward their own limit then, not toward memory.

A wall that cannot be built raises `SandboxError`, which names it and says why.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import itertools
import os
import resource
import shutil
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

NOBODY = 65534
HOME = "/home/learner"
SITE = "/opt/site"  # where the packages of the course stand inside
PRIVATE = ("/tmp", "/dev/shm", HOME)  # writable for a submission, empty at its start

# From <sched.h>, <sys/mount.h>, <sys/prctl.h>, <linux/capability.h>.
CLONE_NEWUSER = 0x10000000
OTHER_NAMESPACES = {"mount": 0x20000, "cgroup": 0x2000000, "uts": 0x4000000, "ipc": 0x8000000, "pid": 0x20000000,
                    "net": 0x40000000}  # fmt: skip
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REC, MS_PRIVATE = 1, 2, 4, 8, 0x4000, 1 << 18
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 4, 24, 38
CAPABILITY_VERSION_3 = 0x20080522

# What no answer to an exercise needs, and what kernel faults of the past were reached through. Denied with EPERM.
DENIED = """
    mount umount2 pivot_root chroot unshare setns open_tree move_mount fsopen fsconfig fsmount fspick mount_setattr
    ptrace process_vm_readv process_vm_writev process_madvise kcmp pidfd_getfd
    add_key request_key keyctl bpf perf_event_open userfaultfd io_uring_setup io_uring_enter io_uring_register
    memfd_create memfd_secret shmget msgget semget io_setup open_by_handle_at name_to_handle_at fanotify_init
    init_module finit_module delete_module kexec_load kexec_file_load reboot swapon swapoff acct quotactl quotactl_fd
    syslog settimeofday clock_settime clock_adjtime adjtimex iopl ioperm modify_ldt personality vhangup
    mremap sethostname setdomainname lookup_dcookie nfsservctl uselib ustat sysfs _sysctl move_pages migrate_pages mbind
    setxattr lsetxattr fsetxattr setxattrat seccomp landlock_create_ruleset open_tree_attr
    sched_setaffinity sched_setattr timerfd_create sync syncfs
""".split()
NEWER = {"setxattrat": 463, "open_tree_attr": 467}  # than most libseccomps; the same on all architectures
SHARED_ANONYMOUS, MAP_GROWSDOWN = 0x21, 0x100  # the first is MAP_SHARED | MAP_ANONYMOUS; <sys/mman.h>
# Of prctl: the first three take kernel memory that no count of a process shows, the fourth a core's other thread.
PR_SET_SECCOMP, PR_FUTEX_HASH, PR_SET_VMA, PR_SCHED_CORE, PR_SET_TIMERSLACK = 22, 78, 0x53564D41, 62, 29
# Of setsockopt: the programs of sockets are compiled into a memory that all users share (net.core.bpf_jit_limit), without
# which nobody's system call filter can be loaded; keys and memberships are kept where no cgroup counts them.
# From <asm-generic/socket.h>, <linux/tcp.h>, <linux/in.h> and <linux/in6.h>; the levels are those of <sys/socket.h>.
SOL_SOCKET, IPPROTO_IP, IPPROTO_TCP, IPPROTO_IPV6 = 1, 0, 6, 41
SOCKET_OPTIONS = {
    SOL_SOCKET: (26, 50, 51, 52),  # SO_ATTACH_FILTER, SO_ATTACH_BPF and the same for SO_REUSEPORT
    IPPROTO_TCP: (14, 32, 38),  # TCP_MD5SIG, TCP_MD5SIG_EXT, TCP_AO_ADD_KEY
    IPPROTO_IP: (35, 39, 42, 46),  # IP_ADD_MEMBERSHIP, IP_ADD_SOURCE_MEMBERSHIP, MCAST_JOIN_GROUP, .._SOURCE_GROUP
    IPPROTO_IPV6: (20, 27, 42, 46),  # IPV6_JOIN_GROUP, IPV6_JOIN_ANYCAST, MCAST_JOIN_GROUP, MCAST_JOIN_SOURCE_GROUP
}
F_SETLK, F_SETLKW, F_OFD_SETLK, F_OFD_SETLKW = 6, 7, 37, 38  # of fcntl: locks of parts of files, likewise uncounted
TIMER_SLACK = 1_000_000  # nanoseconds: wake-ups each microsecond would slow neighbors, whatever their priority
FAMILIES, AF_NETLINK = (1, 2, 10), 16  # AF_UNIX, AF_INET, AF_INET6: the ones that may be


class SandboxError(RuntimeError):
    """A wall that cannot be built on this machine.

    Attributes
    ----------
    wall
        Its name: "user namespace".
    why
        The reason, and where one is known the remedy.
    """

    def __init__(self, wall: str, why: str) -> None:
        super().__init__(f"the sandbox's wall {wall!r} cannot be built here: {why}")
        self.wall, self.why = wall, why


@dataclass(frozen=True)
class Limits:
    """What a submission may use. Times are in seconds of wall clock, sizes in bytes.

    Parameters
    ----------
    cell_seconds, request_seconds, job_seconds
        One cell; one probe request; everything together, further attempts included.
    grace_seconds
        How long an interrupted cell has to stop before its process is killed.
    memory_bytes
        Memory on top of what the warm server already holds.
    disk_bytes, file_bytes
        Each of the private folders; one file.
    processes, open_files
        At one time.
    kept_output_bytes, kept_in_all_bytes
        What is kept of one cell's output, and of all cells'; the rest is read and thrown away.
    output_bytes
        Output of one attempt, thrown away or not, after which the process is killed.
    reply_bytes
        The longest line that a child may answer.
    retries
        How many further children a job may have, each without the cell or request that ended the one before.
    """

    cell_seconds: float = 30.0
    request_seconds: float = 45.0
    job_seconds: float = 300.0
    grace_seconds: float = 1.0
    memory_bytes: int = 2 << 30
    disk_bytes: int = 128 << 20
    file_bytes: int = 64 << 20
    processes: int = 64
    open_files: int = 256
    kept_output_bytes: int = 100_000
    kept_in_all_bytes: int = 2_000_000
    output_bytes: int = 1 << 30
    reply_bytes: int = 32 << 20
    retries: int = 4


# --- around the server: bubblewrap -----------------------------------------------------------------------------------


def bubblewrap(
    command: Sequence[str], packages: Mapping[str, Path], environment: Mapping[str, str], passwd: int
) -> list[str]:
    """Put `command` behind the outer ring of walls.

    Parameters
    ----------
    command
        The program, which sees the whitelisted root.
    packages
        What stands under `SITE` inside: name → file or folder.
    environment
        All environment variables that it gets.
    passwd
        A file descriptor from which the sandbox's /etc/passwd is read.

    Raises
    ------
    SandboxError
        bubblewrap is missing, or the whitelist would hold the repository.
    """
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise SandboxError(
            "bubblewrap", "the program bwrap is not installed; on Debian and Ubuntu: apt install bubblewrap"
        )
    arguments = [bwrap, "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    arguments += ["--hostname", "sandbox", "--new-session", "--clearenv"]
    for name, value in environment.items():
        arguments += ["--setenv", name, value]
    # Wall: whitelist root. Nothing of the machine but these.
    arguments += ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        path = Path("/", name)
        if path.is_symlink():
            arguments += ["--symlink", os.readlink(path), str(path)]
        elif path.is_dir():
            arguments += ["--ro-bind", str(path), str(path)]
    arguments += ["--dir", "/etc", "--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache"]
    arguments += ["--perms", "0444", "--ro-bind-data", str(passwd), "/etc/passwd"]
    shown = {inside(prefix): Path(prefix) for prefix in python_prefixes()}
    shown |= {Path(SITE, name): source.resolve() for name, source in packages.items()}
    for place, source in shown.items():
        for parent in reversed(place.parents):  # or bubblewrap copies the modes from outside: 0700 for /root
            arguments += ["--dir", str(parent)]
        arguments += ["--ro-bind", str(source), str(place)]
    arguments += ["--dev", "/dev"]
    arguments += ["--dev-bind", "/dev/null", "/dev/zero"]  # mapped, it is the memory that `Filter` refuses
    for folder in (HOME, "/tmp"):  # the server's own; each submission gets fresh ones on top
        arguments += ["--perms", "1777", "--tmpfs", folder]
    # Wall: no privileges. Root keeps three capabilities until `settle`, an ordinary user has none from the start.
    if os.geteuid() == 0:
        arguments += ["--dir", "/proc", "--cap-drop", "ALL"]
        for capability in ("CAP_SYS_ADMIN", "CAP_SETUID", "CAP_SETGID"):
            arguments += ["--cap-add", capability]
    else:
        arguments += ["--unshare-user", "--uid", str(NOBODY), "--gid", str(NOBODY), "--proc", "/proc"]
    arguments += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", HOME, "--"]
    return [*arguments, str(inside(command[0])), *command[1:]]


def inside(path: str | Path) -> Path:
    """Where a file or folder is seen inside: in its own place, unless that lies where a submission has a private folder."""
    path = Path(path)
    covered = any(path.is_relative_to(place) for place in PRIVATE)
    return Path("/opt", *path.parts[1:]) if covered else path


def python_prefixes() -> list[str]:
    """The folders outside of /usr that Python runs from, outermost first.

    Raises
    ------
    SandboxError
        Such a folder holds the repository, with the solutions in it.
    """
    found: list[str] = []
    program = Path(os.path.realpath(sys.executable))
    for prefix in sorted({sys.base_prefix, sys.prefix, str(program.parent.parent)}):
        if not any(Path(prefix).is_relative_to(shown) for shown in ("/usr", *found)):
            found.append(prefix)
    repository = Path(__file__).resolve().parents[1]
    for prefix in ("/usr", *found):
        if (repository / "solutions").is_dir() and repository.is_relative_to(Path(prefix).resolve()):
            raise SandboxError(
                "whitelist root", f"{prefix}, where Python is, holds this repository; move the repository out of it"
            )
    return found


def settle() -> int:
    """In the server, before any import: become a nobody whose capabilities reach nothing but what it makes itself.

    Root gives up its uid for 65534. Then, for everybody alike, a user namespace and a pid namespace of the server's own:
    its capabilities hold in there only, and when it dies, the kernel kills all that it forked.

    Returns
    -------
    int
        A descriptor of the server's pid namespace, for `fork`.

    Raises
    ------
    SandboxError
        A wall cannot be built.
    """
    if os.getuid() == 0:
        # bubblewrap, when root runs it, covers parts of /proc, and the kernel lets nobody mount a fresh /proc who sees
        # only a part of one: so bubblewrap mounts none then.
        _mount("proc", "/proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, "")
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)  # from 0 to another uid: the kernel takes all capabilities
        _call("uid", "prctl", PR_SET_DUMPABLE, 1, 0, 0, 0)  # or /proc/self/uid_map stays root's
    _own_user_namespace(os.open("/proc/self", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
    _unshare("mount")
    _unshare("pid")
    child = os.fork()  # a pid namespace begins with the next child
    if child:
        _wait_with(child)
    die_with_parent()
    _call("mount namespace", "mount", None, b"/", None, MS_REC | MS_PRIVATE, None)
    _mount("proc", "/proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, "")
    return os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)


# --- around each submission: after the fork, no exec ------------------------------------------------------------------


class _Comparison(ctypes.Structure):
    """`struct scmp_arg_cmp` of <seccomp.h>."""

    _fields_ = (("arg", ctypes.c_uint), ("op", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64))


class Filter:
    """Wall: dangerous system calls. Made once in the server, loaded in each child.

    Raises
    ------
    SandboxError
        libseccomp is missing or refuses a rule.
    """

    _ALLOW, _ERRNO, _KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
    _BAD_ARCHITECTURE = 2  # SCMP_FLTATR_ACT_BADARCH
    _EQ, _GT, _MASKED_EQ = 4, 6, 7

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL("libseccomp.so.2", use_errno=True)
        except OSError as error:
            why = f"libseccomp.so.2 is not installed; on Debian and Ubuntu: apt install libseccomp2 ({error})"
            raise SandboxError("system call filter", why) from None
        self._library.seccomp_init.restype = ctypes.c_void_p
        self._context = ctypes.c_void_p(self._library.seccomp_init(ctypes.c_uint32(self._ALLOW)))
        # Another architecture's calls (i386, x32) end the process: by default they end one thread of it.
        self._library.seccomp_attr_set(self._context, self._BAD_ARCHITECTURE, ctypes.c_uint32(self._KILL_PROCESS))
        for name in DENIED:
            self._deny(name, errno.EPERM)
        # New namespaces would give a process capabilities of its own again. clone3 hides its flags from filters; the C
        # library falls back to clone when it hears that there is no such call.
        for flag in (CLONE_NEWUSER, *OTHER_NAMESPACES.values()):
            self._deny("clone", errno.EPERM, _Comparison(0, self._MASKED_EQ, flag, flag))
        self._deny("clone3", errno.ENOSYS)
        # Sockets that no network namespace confines, such as those to the machine's hypervisor (AF_VSOCK), and those whose
        # queues no cgroup counts (AF_NETLINK; libzmq goes on after this error, as on the Windows Subsystem for Linux).
        for family in range(AF_NETLINK):
            if family not in FAMILIES:
                self._deny("socket", errno.EAFNOSUPPORT, _Comparison(0, self._EQ, family, 0))
        self._deny("socket", errno.EOPNOTSUPP, _Comparison(0, self._EQ, AF_NETLINK, 0))
        self._deny("socket", errno.EAFNOSUPPORT, _Comparison(0, self._GT, AF_NETLINK, 0))
        for option in (PR_SET_SECCOMP, PR_FUTEX_HASH, PR_SET_VMA, PR_SCHED_CORE, PR_SET_TIMERSLACK):
            self._deny("prctl", errno.EPERM, self._int(0, option))
        for level, options in SOCKET_OPTIONS.items():
            for option in options:
                self._deny("setsockopt", errno.EPERM, self._int(1, level), self._int(2, option))
        for command in (F_SETLK, F_SETLKW, F_OFD_SETLK, F_OFD_SETLKW):
            self._deny("fcntl", errno.ENOLCK, self._int(1, command))
        # Memory that lives on when all but one of its pages is unmapped: no count of a process shows it.
        self._deny("mmap", errno.EPERM, _Comparison(3, self._MASKED_EQ, SHARED_ANONYMOUS, SHARED_ANONYMOUS))
        # Memory that the kernel takes for a stack, so that RLIMIT_DATA does not count it. Threads' stacks are not made so.
        self._deny("mmap", errno.EPERM, _Comparison(3, self._MASKED_EQ, MAP_GROWSDOWN, MAP_GROWSDOWN))

    def _int(self, argument: int, value: int) -> _Comparison:
        """The kernel looks at the lower half of an int's register only."""
        return _Comparison(argument, self._MASKED_EQ, 0xFFFFFFFF, value)

    def _deny(self, name: str, number: int, *comparisons: _Comparison) -> None:
        call = NEWER.get(name) or self._library.seccomp_syscall_resolve_name(name.encode())
        if call == -1:
            return  # a call newer than this libseccomp, or older than this architecture
        array = (_Comparison * len(comparisons))(*comparisons)
        result = self._library.seccomp_rule_add_array(
            self._context, ctypes.c_uint32(self._ERRNO | number), call, len(comparisons), array
        )
        if result < 0:
            raise SandboxError("system call filter", f"libseccomp refuses the rule for {name}: {os.strerror(-result)}")

    def load(self) -> None:
        """Put it on this process and its descendants, for good."""
        result = self._library.seccomp_load(self._context)
        if result < 0:
            raise SandboxError("system call filter", os.strerror(-result))


def fork(pid_namespace: int) -> int:
    """`os.fork` into a new pid namespace, whose init is the child: when it ends, all its descendants do.

    One fork of the warm process, not two: each copies page tables for about 10 ms.

    Parameters
    ----------
    pid_namespace
        What `settle` returned: where the server goes back to.
    """
    _unshare("pid")
    child = os.fork()
    if child:
        _call("pid namespace", "setns", pid_namespace, OTHER_NAMESPACES["pid"])
    return child


def enter(limits: Limits, filter_: Filter, keep: Sequence[int]) -> None:
    """Build the inner ring around this process, the child that `fork` made.

    Parameters
    ----------
    limits
        The submission's limits.
    filter_
        The system call filter.
    keep
        The file descriptors that stay open.

    Raises
    ------
    SandboxError
        A wall cannot be built.
    """
    # Wall: namespaces of its own, beside the pid namespace.
    for wall in ("mount", "cgroup", "uts", "ipc", "net"):
        _unshare(wall)
    # Wall: private places. Nothing that is mounted here is seen elsewhere.
    _call("mount namespace", "mount", None, b"/", None, MS_REC | MS_PRIVATE, None)
    size = f"size={limits.disk_bytes},nr_inodes=20000,mode=1777"
    for place in PRIVATE:
        _mount("tmpfs", place, MS_NOSUID | MS_NODEV, size)
    # Wall: terminals of its own: bubblewrap's are one set for all, and of one owner.
    _mount("devpts", "/dev/pts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620,max=64")
    # Wall: /proc shows the processes of this pid namespace and no others, and nobody sets anything by it.
    own = os.open("/proc/self", os.O_PATH | os.O_DIRECTORY)  # in the server's, which is covered then
    _mount("proc", "/proc", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, "")
    os.chdir(HOME)
    # Wall: a user namespace of its own: no rights over what was made above, and its own count of processes.
    _own_user_namespace(own)
    # Wall: no inherited file descriptor but those of the protocol.
    close_all_but(keep)
    os.setsid()
    # Wall: resources.
    _limit(limits)
    # Wall: no capabilities, and no program that gives any.
    for capability in range(64):
        _libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)  # EINVAL for numbers that this kernel does not have
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    _call("capabilities", "capset", header, (ctypes.c_uint32 * 6)())
    _call("no new privileges", "prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _call("timers", "prctl", PR_SET_TIMERSLACK, TIMER_SLACK, 0, 0, 0)
    # Wall: system calls. The last, since the walls above need some of what it denies.
    filter_.load()


def _own_user_namespace(proc: int) -> None:
    """Make one; `proc` is this process's own folder in a /proc that can be written to."""
    uid, gid = os.getuid(), os.getgid()
    _call("user namespace", "unshare", CLONE_NEWUSER)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        try:
            with open(os.open(name, os.O_WRONLY, dir_fd=proc), "w") as file:
                file.write(text)
        except OSError as error:
            raise SandboxError("user namespace", f"/proc/self/{name}: {error}") from None


def _unshare(wall: str) -> None:
    _call(f"{wall} namespace", "unshare", OTHER_NAMESPACES[wall])


def _wait_with(child: int) -> None:
    """End with `child`, holding nothing open in the meantime."""
    os.closerange(0, 1 << 16)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    while True:
        with contextlib.suppress(InterruptedError):
            os.waitpid(child, 0)
            os._exit(0)


def close_all_but(keep: Sequence[int]) -> None:
    """Close every descriptor that is not in `keep`."""
    low = 0
    for descriptor in sorted(keep):
        if low < descriptor:  # an empty range from 0 would close them all
            os.closerange(low, descriptor)
        low = descriptor + 1
    os.closerange(low, 1 << 20)


def _limit(limits: Limits) -> None:
    data = _status(os.getpid()).get(b"VmData", 0) + limits.memory_bytes
    for which, value in (
        (resource.RLIMIT_CPU, int(limits.job_seconds * 4) + 60),  # several threads may run; the wall clock is watched
        (resource.RLIMIT_DATA, data),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_NOFILE, limits.open_files),
        (resource.RLIMIT_NPROC, limits.processes),
        # 0 would let the kernel hand a core to a program of the machine, 1 does not: core(5).
        (resource.RLIMIT_CORE, 1),
        (resource.RLIMIT_MEMLOCK, 1 << 20),
        (resource.RLIMIT_NICE, 0),  # an account for sound or the like may have more
        (resource.RLIMIT_RTPRIO, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_SIGPENDING, 256),  # timers too; the kernel counts them by the user who grades
    ):
        _, hard = resource.getrlimit(which)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(which, (value, value))
    stack, hard = resource.getrlimit(resource.RLIMIT_STACK)  # the first also says how large new threads' are
    most = 64 << 20 if hard == resource.RLIM_INFINITY else min(64 << 20, hard)
    resource.setrlimit(resource.RLIMIT_STACK, (most if stack == resource.RLIM_INFINITY else min(stack, most), most))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a file at its limit is an OSError, not the end


_libc = ctypes.CDLL(None, use_errno=True)


def _call(wall: str, function: str, *arguments: object) -> None:
    ctypes.set_errno(0)
    if getattr(_libc, function)(*arguments) < 0:
        number = ctypes.get_errno()
        raise SandboxError(wall, f"{function}: {os.strerror(number)}{remedy() if 'namespace' in wall else ''}")


def remedy() -> str:
    """What an administrator may have switched off, as the end of a sentence about namespaces."""
    for name, off, remedy in (
        ("kernel/apparmor_restrict_unprivileged_userns", "1", "sysctl kernel.apparmor_restrict_unprivileged_userns=0"),
        ("kernel/unprivileged_userns_clone", "0", "sysctl kernel.unprivileged_userns_clone=1"),
        ("user/max_user_namespaces", "0", "sysctl user.max_user_namespaces=10000"),
    ):
        with contextlib.suppress(OSError):
            if Path("/proc/sys", name).read_text().strip() == off:
                return f"; an administrator can allow it: {remedy}"
    return ""


def _mount(kind: str, place: str, flags: int, options: str) -> None:
    _call(f"private {place}", "mount", kind.encode(), place.encode(), kind.encode(), flags, options.encode())


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends; other systems than Linux cannot."""
    if sys.platform == "linux":
        _call("end with the server", "prctl", PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


# --- in the grader's process: memory ------------------------------------------------------------------------------------


_COUNTED = (b"RssAnon", b"VmSwap", b"HugetlbPages", b"VmPTE")


def _status(pid: int) -> dict[bytes, int]:
    """What a process holds, by kind, in bytes. Its name is its own choice: no text, but never the end of a line."""
    sizes = {kind: size for kind, _, size in (line.partition(b":") for line in _lines(pid, "status", b"\nRssAnon:"))}
    return {kind: int(sizes[kind].split()[0]) * 1024 for kind in (*_COUNTED, b"VmData") if kind in sizes}


def _lines(pid: int, name: str, telling: bytes) -> list[bytes]:
    """A file of /proc, from the first thread that has one: the kernel says nothing of one that ended, be it the first."""
    for task in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(OSError):
            text = Path("/proc", str(pid), "task", task, name).read_bytes()
            if telling in text:
                return text.split(b"\n")
    return []


class Cgroup:
    """Wall: memory, exact. A memory cgroup (v2 or v1) of one job. `Cgroup.create` gives None where none can be made."""

    _count = itertools.count()

    def __init__(self, path: Path, unified: bool) -> None:
        self.path, self._unified = path, unified

    @classmethod
    def create(cls, memory_bytes: int) -> Cgroup | None:
        """A new group limited to `memory_bytes`, swap included, beneath the grader's own or the hierarchy's root."""
        for parent, unified in _hierarchies():
            _sweep(parent)
            path = parent / f"underhood-{os.getpid()}-{next(cls._count)}"
            limit = path / ("memory.max" if unified else "memory.limit_in_bytes")
            try:
                path.mkdir()
            except OSError:
                continue
            # A folder can be made on a tmpfs as well: only a group has these files.
            if (path / "cgroup.procs").exists() and limit.exists():
                group = cls(path, unified)
                try:
                    limit.write_text(str(memory_bytes))
                    swap, value = ("memory.swap.max", 0) if unified else ("memory.memsw.limit_in_bytes", memory_bytes)
                    with contextlib.suppress(FileNotFoundError, PermissionError):
                        (path / swap).write_text(str(value))
                    return group
                except OSError:
                    pass
            with contextlib.suppress(OSError):
                path.rmdir()
        return None

    def add(self, pid: int) -> None:
        """Move a process in; its later children are born inside."""
        (self.path / "cgroup.procs").write_text(str(pid))

    def killed(self) -> bool:
        """Whether the kernel killed a process in it for want of memory."""
        text = (self.path / ("memory.events" if self._unified else "memory.oom_control")).read_text()
        return any(int(line.split()[1]) > 0 for line in text.splitlines() if line.startswith("oom_kill "))

    def peak(self) -> int:
        """The most memory that was in use, in bytes; 0 where the kernel does not say."""
        try:
            return int((self.path / ("memory.peak" if self._unified else "memory.max_usage_in_bytes")).read_text())
        except OSError:
            return 0

    def remove(self) -> None:
        """Remove it, after its processes were killed."""
        for _ in range(200):
            try:
                self.path.rmdir()
                return
            except FileNotFoundError:
                return
            except OSError:
                time.sleep(0.01)


def _hierarchies() -> list[tuple[Path, bool]]:
    """Where memory groups may be made: (folder, whether cgroup v2)."""
    own: dict[bool, str] = {}
    places: list[tuple[Path, bool]] = []
    try:
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            number, controllers, path = line.split(":", 2)
            if number == "0" or "memory" in controllers.split(","):
                own[number == "0"] = path.lstrip("/")
        for line in Path("/proc/self/mounts").read_text().splitlines():
            _, place, kind, options, *_ = line.split()
            unified = kind == "cgroup2"
            if unified or (kind == "cgroup" and "memory" in options.split(",")):
                places += [(Path(place, own.get(unified, "")), unified), (Path(place), unified)]
    except OSError:
        pass
    return [(path, unified) for path, unified in dict.fromkeys(places) if os.access(path, os.W_OK)]


def _sweep(parent: Path) -> None:
    """Remove the groups of graders that were killed before they could."""
    for path in parent.glob("underhood-*-*"):
        if not Path("/proc", path.name.split("-")[1]).exists():
            with contextlib.suppress(OSError):
                path.rmdir()


def cpu_seconds(pid: int) -> float:
    """CPU time of a process and of its children that it has waited for; 0 where it is gone."""
    try:
        fields = Path("/proc", str(pid), "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return 0.0
    return sum(int(ticks) for ticks in fields[11:15]) / os.sysconf("SC_CLK_TCK")  # utime, stime, cutime, cstime


def descendants(pid: int) -> list[int]:
    """A process, its children, their children, …"""
    pids = [pid]
    for one in pids:
        with contextlib.suppress(OSError):
            for task in Path("/proc", str(one), "task").iterdir():
                pids += [int(child) for child in (task / "children").read_text().split()]
    return pids


def stand_back(pid: int) -> int:
    """Let all threads and processes of a submission but its first run only where nobody else wants the processor.

    The kernel shares it out by thread, or by session where it groups them: sixty of one submission would starve the others.
    Nobody in a sandbox can take it back; where this may not be done, it is not.

    Returns
    -------
    int
        How many had not stood back yet.
    """
    fresh = 0
    for one in descendants(pid):
        with contextlib.suppress(OSError):
            for task in map(int, os.listdir(f"/proc/{one}/task")):
                with contextlib.suppress(OSError):
                    if task != pid and os.getpriority(os.PRIO_PROCESS, task) < 19:
                        fresh += 1
                        os.setpriority(os.PRIO_PROCESS, task, 19)
            group = Path("/proc", str(one), "autogroup")
            if os.getsid(one) != pid and not group.read_text().endswith("nice 19\n"):
                group.write_text("19")
    return fresh


def memory_in_use(pid: int, at_start: int = 0, limit: int = 0) -> int:
    """Private memory of a process and its descendants in bytes, page tables included, for where there is no cgroup.

    Parameters
    ----------
    pid
        The first process.
    at_start
        What it held when it was forked: shared with the server, not counted.
    limit
        Only a sum above it is worth the slower count, in which pages that forks share are counted once.
    """
    pids = descendants(pid)
    total = tables = 0
    for one in pids:
        with contextlib.suppress(OSError):
            status = _status(one)
            total += sum(status.get(kind, 0) for kind in _COUNTED)
            tables += status.get(b"VmPTE", 0)
    if total - at_start <= limit or len(pids) == 1:
        return max(total - at_start, 0)
    total = tables
    for one in pids:
        with contextlib.suppress(OSError):
            lines = _lines(one, "smaps_rollup", b"\nPss_Anon:")
            if not lines:  # it may not be read
                total += sum(_status(one).get(kind, 0) for kind in _COUNTED[:-1])
            for line in lines:
                if line.startswith((b"Pss_Anon:", b"SwapPss:", b"Private_Hugetlb:")):
                    total += int(line.split()[1]) * 1024
    return total
