"""The executor inside a bubblewrap sandbox: starts commands, reports their exit, opens listeners. A script.

Standard library only and nothing of this package: it is mounted into the sandbox as one file and run as
`execd.py CONTROL_FD SETTINGS_JSON`. One thread, one `selectors` loop, no blocking call but short ones.

Protocol: JSON datagrams over a SOCK_SEQPACKET socket, descriptors by SCM_RIGHTS.
  in   {"op": "exec", "id"} + [request, stdin, stdout, stderr]   request: a memfd holding {"argv", "cwd", "env"}
       {"op": "kill", "id"}        {"op": "listen", "id", "port"}
  out  {"ready"}   {"id", "returncode", "limit"}   {"id", "error"}   {"id", "listening"} + [socket]   {"ended"}

Invariants
- An exit is reported by `waitpid` of this one thread, so none is lost or taken by another; a stream's end is never
  waited for.
- Each command has a supervisor process that is the sub-reaper of everything the command starts. A kill stops the
  supervisor and then ends its whole subtree, so `setsid` and double forks do not escape. When the command exits by
  itself the supervisor goes, and what it left in the background belongs to the sandbox's init until the sandbox ends.
- Commands share this process's user, but cannot read or trace it: it is not dumpable. They can kill or stop it; the
  host sees the former at once and bounds the latter by its own clock.
- Memory and process counts are polled, not hard limits: a burst shorter than `WATCH_SECONDS` is seen too late.
- What was ended by the process limit no longer counts against it, though hundreds take a while to leave the table: a
  command that comes just after a fork bomb must not die of it.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import resource
import selectors
import signal
import socket
import struct
import sys
import time
from typing import Any

WATCH_SECONDS = 0.2
IDLE_WATCH_SECONDS = 1.0
KILL_PATIENCE_SECONDS = 2.0
FRAME_BYTES = 4096
HIGHEST_DESCRIPTOR = 1 << 20
WRITABLE_MOUNTS = ("/", "/tmp", "/dev/shm")
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
LIBC = ctypes.CDLL(None, use_errno=True)


class Command:
    """A running command: its supervisor's pid, the pipe its exit status comes by, and the limit that killed it."""

    def __init__(self, id: int, supervisor: int, status: int) -> None:
        self.id = id
        self.supervisor = supervisor
        self.status = status
        self.limit = ""

    def returncode(self) -> int:
        """What the supervisor wrote before it exited; SIGKILL's when it was killed first."""
        try:
            data = os.read(self.status, 4)
        except BlockingIOError:
            data = b""  # a child that the same kill ends, but has not ended yet, still holds the writing end
        os.close(self.status)
        return int(struct.unpack("i", data)[0]) if len(data) == 4 else -signal.SIGKILL


class Process:
    """One line of the process table: parent, threads, and bytes of private and shared memory."""

    def __init__(self, status: str) -> None:
        fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        self.parent = int(fields["PPid"])
        self.dead = fields["State"].split()[0] in "ZX"
        self.threads = int(fields["Threads"])
        self.memory = sum(int(fields.get(key, "0 kB").split()[0]) for key in ("RssAnon", "RssShmem")) * 1024


def process_ids() -> set[int]:
    return {int(name) for name in os.listdir("/proc") if name.isdigit()}


def process_table() -> dict[int, Process]:
    table = {}
    for pid in process_ids():
        try:
            with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
                table[pid] = Process(file.read())
        except (OSError, KeyError):
            continue  # it exited between the listing and the reading
    return table


def descendants(table: dict[int, Process], root: int) -> set[int]:
    children: dict[int, list[int]] = {}
    for pid, process in table.items():
        children.setdefault(process.parent, []).append(pid)
    found: set[int] = set()
    todo = [root]
    while todo:
        below = [pid for pid in children.get(todo.pop(), ()) if pid not in found]
        found.update(below)
        todo += below
    return found


def send_signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return  # already gone


class Executor:
    """The loop and what it owns. `settings`: memory (bytes), processes, file (bytes), nproc (0: do not set it)."""

    def __init__(self, control: socket.socket, settings: dict[str, int]) -> None:
        self._control = control
        self._settings = settings
        self._commands: dict[int, Command] = {}
        self._condemned: set[int] = set()
        self._selector = selectors.DefaultSelector()
        wake_read, self._wake_write = socket.socketpair()
        wake_read.setblocking(False)
        self._wake_write.setblocking(False)
        signal.set_wakeup_fd(self._wake_write.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        self._selector.register(control, selectors.EVENT_READ, self._on_frame)
        self._selector.register(wake_read, selectors.EVENT_READ, lambda: self._on_child(wake_read))

    def run(self) -> None:
        self._reply({"ready": True})
        watched = time.monotonic()
        while True:
            for key, _ in self._selector.select(WATCH_SECONDS if self._commands else IDLE_WATCH_SECONDS):
                key.data()
            if time.monotonic() - watched >= WATCH_SECONDS:
                self._watch()
                watched = time.monotonic()

    def _reply(self, frame: dict[str, Any], descriptors: list[int] | None = None) -> None:
        socket.send_fds(self._control, [json.dumps(frame).encode()], descriptors or [])

    def _on_frame(self) -> None:
        data, descriptors, _, _ = socket.recv_fds(self._control, FRAME_BYTES, 8)
        if not data:
            os._exit(0)  # the host is gone, and the sandbox with it
        frame = json.loads(data)
        try:
            if frame["op"] == "exec":
                self._spawn(frame["id"], descriptors)
            elif frame["op"] == "kill":
                self._kill(frame["id"])
            elif frame["op"] == "listen":
                self._listen(frame["id"], frame["port"])
        except OSError as error:
            self._reply({"id": frame["id"], "error": str(error)})
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _spawn(self, id: int, descriptors: list[int]) -> None:
        request_fd, *stdio = descriptors
        with open(request_fd, "rb", closefd=False) as file:
            request = json.loads(file.read())
        status_read, status_write = os.pipe()
        os.set_blocking(status_read, False)
        try:
            pid = os.fork()
            if pid == 0:
                try:
                    self._supervise(request, stdio, status_write)
                finally:
                    os._exit(1)
        except OSError:
            os.close(status_read)
            raise
        finally:
            os.close(status_write)
        self._commands[pid] = Command(id, pid, status_read)

    def _supervise(self, request: dict[str, Any], stdio: list[int], status_write: int) -> None:
        """The supervisor's whole life: start the command, reap everything, tell the command's status, exit."""
        signal.set_wakeup_fd(-1)
        self._control.close()
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        pid = os.fork()
        if pid == 0:
            try:
                self._become(request, stdio)
            finally:
                os._exit(1)
        for descriptor in stdio:
            os.close(descriptor)
        while True:
            ended, status = os.wait()
            if ended == pid:
                os.write(status_write, struct.pack("i", os.waitstatus_to_exitcode(status)))
                os._exit(0)

    def _become(self, request: dict[str, Any], stdio: list[int]) -> None:
        """Turn this process into the command; exit 126 or 127 like a shell when it cannot be run."""
        os.setsid()
        for target, descriptor in enumerate(stdio):
            os.dup2(descriptor, target)
        os.closerange(3, HIGHEST_DESCRIPTOR)
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGXFSZ}:
            signal.signal(number, signal.SIG_DFL)
        # Ignored, so that a write beyond the file limit is an error a program names, not a silent death.
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        lower_limit(resource.RLIMIT_CORE, 0)
        lower_limit(resource.RLIMIT_FSIZE, self._settings["file"])
        if self._settings["nproc"]:
            lower_limit(resource.RLIMIT_NPROC, self._settings["nproc"])
        try:
            os.chdir(request["cwd"])
            os.execvpe(request["argv"][0], request["argv"], request["env"])
        except (OSError, ValueError) as error:
            os.write(2, f"cannot run {request['argv'][0]!r} in {request['cwd']!r}: {error}\n".encode())
            os._exit(127 if isinstance(error, FileNotFoundError) else 126)

    def _listen(self, id: int, port: int) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", port))
            listener.listen(128)
            self._reply({"id": id, "listening": True}, [listener.fileno()])

    def _on_child(self, wake_read: socket.socket) -> None:
        wake_read.recv(4096)
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            command = self._commands.pop(pid, None)
            if command is not None:
                self._reply({"id": command.id, "returncode": command.returncode(), "limit": command.limit})

    def _kill(self, id: int) -> None:
        """End a command and everything it started; a subtree that forks faster than this takes all others along."""
        command = next((command for command in self._commands.values() if command.id == id), None)
        if command is None:
            return
        send_signal(command.supervisor, signal.SIGSTOP)
        deadline = time.monotonic() + KILL_PATIENCE_SECONDS
        while True:
            table = process_table()
            victims = [pid for pid in descendants(table, command.supervisor) if not table[pid].dead]
            if not victims:
                break
            if time.monotonic() > deadline:
                self._kill_all("")
                break
            for pid in victims:
                send_signal(pid, signal.SIGKILL)
            time.sleep(0.001)
        send_signal(command.supervisor, signal.SIGKILL)

    def _kill_all(self, limit: str) -> None:
        """SIGKILL to every process inside but init and this one, in one system call that no fork can outrun."""
        for command in self._commands.values():
            command.limit = command.limit or limit
        send_signal(-1, signal.SIGKILL)
        self._condemned = process_ids()

    def _watch(self) -> None:
        present = process_ids()
        self._condemned &= present
        uncounted = {1, os.getpid(), *self._commands} | self._condemned
        if len(present - uncounted) > self._settings["processes"]:
            self._kill_all("processes")
            return
        whole = process_table()
        table = {pid: process for pid, process in whole.items() if pid not in uncounted and not process.dead}
        if sum(process.threads for process in table.values()) > self._settings["processes"]:
            self._kill_all("processes")
            return
        files = files_in_memory()
        if files > self._settings["memory"]:
            self._reply({"ended": "the files written inside take more than the memory limit"})
            os._exit(1)
        if table and files + sum(process.memory for process in table.values()) > self._settings["memory"]:
            self._kill_largest(whole, max(table, key=lambda pid: table[pid].memory))

    def _kill_largest(self, table: dict[int, Process], pid: int) -> None:
        for command in self._commands.values():
            if pid in descendants(table, command.supervisor):
                command.limit = "memory"
        send_signal(pid, signal.SIGKILL)


def files_in_memory() -> int:
    """Bytes held by files in the sandbox's memory file systems."""
    used = 0
    for mount in WRITABLE_MOUNTS:
        status = os.statvfs(mount)
        used += (status.f_blocks - status.f_bfree) * status.f_frsize
    return used


def lower_limit(kind: int, value: int) -> None:
    """Set both limits, but never above a hard limit that the host was under already."""
    hard = resource.getrlimit(kind)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (value, value))


def prctl(option: int, value: int) -> None:
    zero = ctypes.c_ulong(0)
    if LIBC.prctl(option, ctypes.c_ulong(value), zero, zero, zero) != 0:
        raise OSError(ctypes.get_errno(), f"prctl {option}")


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    # bwrap hands on what it was started with (its filter, its pipes); no command is to hold any of it.
    os.closerange(3, control.fileno())
    os.closerange(control.fileno() + 1, HIGHEST_DESCRIPTOR)
    prctl(PR_SET_DUMPABLE, 0)
    os.umask(0o022)
    gc.freeze()  # what exists now is never collected, so that forks share its pages
    executor = Executor(control, json.loads(sys.argv[2]))
    null = os.open("/dev/null", os.O_RDWR)
    for target in (0, 1, 2):
        os.dup2(null, target)
    os.close(null)
    executor.run()


if __name__ == "__main__":
    main()
