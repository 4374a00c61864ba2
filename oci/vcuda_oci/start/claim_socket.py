"""The claim socket: the wrapper's work, done by processes that are already running.

The launcher sends one packet: the settings' path, the low-level runtime, and the runtime's
arguments, each ended by NUL. The reply is one packet: "+" the bundle is ready; "-" and the error
line; "?" (or no reply): the launcher starts Python. After "+" and the line come NUL and the
allocation's id, for the log. Three others send "" as the runtime: the launcher at a delete, then
"delete" and the id; the poststop hook, then "poststop", the id and the container's state; the hook
of our CDI devices, then "cdi" and the state. The reply to "cdi" has after the id, which is empty,
the command that the hook has to run, each word after a NUL; none if there is nothing to do.

Several worker processes accept connections, so that a slow claim delays no other; a fork for each
connection would cost twice as much as a claim. Two more processes run while the socket is open: the
page keeper keeps containers' pages open, and the turn keeper (libvcuda/turns) gives the containers
of a GPU exclusive turns. A third one, the MPS keeper, runs while a container is under MPS.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import struct
import sys
import time
import traceback
from collections.abc import Callable

# All that a claim and the page keeper need, so that the processes share it.
from ..container import bundle, hook_state
from ..guest import page_file
from ..guest import process as guest_process
from ..host import nvml
from ..ledger import decision_file, instance_records, liveness
from ..ledger.ledger import LOCK_SECONDS, Ledger
from ..model import names
from ..model.errors import NotKnownYetError, VcudaError
from ..system import files, own_lock, settings_file
from . import after_delete, apply_share, cdi_edits, cdi_stopped, left_over, main, poststop
from .page_keeper import PageKeeper

NAME = names.CLAIM_SOCKET
MOST_BYTES = 65536
_MOST_REPLY_BYTES = 4096 - 2  # PATH_MAX, with two NULs at the end
_MOST_WORDS = 7  # oci/launcher/hooks/hook.c, edit_by_socket
WORKERS = 4
DONE, REFUSED, CLOSED = b"+", b"-", b"?"
_BACKLOG = 128
_LOOK_AROUND_S = 5
_ANSWER_TIME = struct.pack("ll", _LOOK_AROUND_S, 0)  # struct timeval
PAGE_KEEPER, TURN_KEEPER = "page_keeper", "turn_keeper"
MPS_KEEPER = "mps_keeper"  # while a container is under MPS
KEEPERS = (PAGE_KEEPER, TURN_KEEPER)
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
_READY = (decision_file, liveness, nvml, page_file)


class ClaimServer:
    """A listening socket at `<state-dir>/door.sock` that only root can open, and its processes.

    A later server takes the path over; the earlier one notices and ends. Raises VcudaError: cannot
    listen, or no process can be started.
    """

    def __init__(
        self, state_dir: str, settings: str, limit_keeper: Callable[[str], None] = lambda name: None
    ) -> None:
        """settings: path of config.toml, which the page keeper keeps open too.

        limit_keeper: called with a keeper's name in its process before it begins.
        """
        self._settings, self._limit_keeper = settings, limit_keeper
        self.path = f"{state_dir}/{NAME}"
        try:
            self._listen(state_dir)
        except OSError as error:
            raise VcudaError(
                f"cannot listen: {error.strerror or error}",
                self.path,
                "run it as root, with a state-dir of less than 95 letters",
            ) from error
        # Blocked, and received by sigtimedwait only.
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        gc.freeze()  # the workers share today's objects unchanged
        self._workers: set[int] = set()
        self._keepers: dict[str, int] = {}  # pids
        self._sweeper = 0  # pid
        self._ledger = Ledger(state_dir, names.PROGRAM)
        self._keepers_due: dict[str, float] = {}
        try:
            self._fill_up()
        except BaseException:
            self.close()
            raise

    def serve(self) -> None:
        """Serve until another server takes over, or SIGTERM or SIGINT arrives.

        Raises VcudaError: the socket was removed, or no worker is left and none can be started.
        """
        while self._is_ours():
            came = signal.sigtimedwait(_SIGNALS, _LOOK_AROUND_S)
            # After SIGSTOP and SIGCONT CPython may return a signal that was not sent.
            if came and came.si_signo in (signal.SIGTERM, signal.SIGINT):
                return
            self._fill_up()
            self._run_sweeper()
        if not os.path.lexists(self.path):
            raise VcudaError("was removed", self.path, "run 'vcuda serve' again")

    def close(self) -> None:
        children = {*self._workers, *self._keepers.values(), self._sweeper} - {0}
        for pid in children:
            os.kill(pid, signal.SIGTERM)
        for pid in children:
            os.waitpid(pid, 0)
        self._socket.close()
        if self._is_ours():
            os.unlink(self.path)

    def _listen(self, state_dir: str) -> None:
        """Raises OSError."""
        os.makedirs(state_dir, 0o755, exist_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        beside = self.path + ".new"
        # Two servers that open it at the same time take turns.
        lock = own_lock.acquire(f"{state_dir}/lock", LOCK_SECONDS)
        before = os.umask(0o177)
        try:
            files.remove(beside)  # left by a server that was killed here
            self._socket.bind(beside)
            self._socket.listen(_BACKLOG)
            self._socket.settimeout(0)
            self._inode = os.stat(beside).st_ino
            os.rename(beside, self.path)
        finally:
            os.umask(before)
            os.close(lock)

    def _fill_up(self) -> None:
        """Replace the workers and keepers that have ended."""
        self._workers -= {pid for pid in self._workers if os.waitpid(pid, os.WNOHANG)[0]}
        while len(self._workers) < WORKERS:
            try:
                self._workers.add(_fork(self._serve_callers))
            except OSError as error:
                if self._workers:
                    return  # the others answer; tried again at the next check
                what = f"no process can be started: {error.strerror}"
                raise VcudaError(what, self.path, "raise the limits of the service") from error
        for name in KEEPERS:
            self._run_keeper(name)
        # Also until it has ended: a killed one is replaced.
        folder = f"{self._ledger.state_dir}/{names.MPS_FOLDER}"
        if MPS_KEEPER in self._keepers or os.path.isdir(folder):
            self._run_keeper(MPS_KEEPER)
        if MPS_KEEPER in self._keepers:
            os.kill(self._keepers[MPS_KEEPER], signal.SIGCHLD)  # a claim may wait for it

    def _is_ours(self) -> bool:
        try:
            return os.stat(self.path).st_ino == self._inode
        except OSError:
            return False

    def _run_keeper(self, name: str) -> None:
        pid, status = (
            os.waitpid(self._keepers[name], os.WNOHANG) if name in self._keepers else (0, 0)
        )
        if pid:
            del self._keepers[name]
        if pid and status:  # the MPS keeper ends by itself too, and may be needed at once
            self._keepers_due[name] = time.monotonic() + _LOOK_AROUND_S
        # Do not restart a failing keeper in a loop.
        if name in self._keepers or time.monotonic() < self._keepers_due.get(name, 0):
            return
        if name == MPS_KEEPER:
            from ..fences import mps_folder  # late: only where a container is or was under MPS

            if not mps_folder.folders(self._ledger.state_dir):
                return
        else:
            self._keepers_due[name] = time.monotonic() + _LOOK_AROUND_S
        work = {
            PAGE_KEEPER: self._keep_pages, TURN_KEEPER: self._keep_turns, MPS_KEEPER: self._keep_mps
        }[name]  # fmt: skip
        try:
            self._keepers[name] = _fork(work)
        except OSError:
            pass  # tried again at the next check

    def _run_sweeper(self) -> None:
        """Destroy GPU instances that a release has left over, in a process: NVML may hang."""
        if self._sweeper and os.waitpid(self._sweeper, os.WNOHANG)[0]:
            self._sweeper = 0
        try:
            if not self._sweeper and instance_records.stale(self._ledger):
                self._sweeper = _fork(self._sweep)
        except (OSError, VcudaError):
            pass  # tried again at the next check

    def _sweep(self, server: int) -> None:
        self._socket.close()
        left_over.destroy_released(self._ledger)

    def _keep_pages(self, server: int) -> None:
        self._socket.close()
        guest_process.set_own_name(PAGE_KEEPER)
        _let_others_go_on()
        self._limit_keeper(PAGE_KEEPER)
        PageKeeper(os.path.dirname(self.path), self._settings).run(server)

    def _keep_mps(self, server: int) -> None:
        from ..fences.mps_keeper import MpsKeeper  # late: only where a container is under MPS

        self._socket.close()
        guest_process.set_own_name(MPS_KEEPER)
        self._limit_keeper(MPS_KEEPER)
        MpsKeeper(os.path.dirname(self.path)).run(server)

    def _keep_turns(self, server: int) -> None:
        state_dir = os.path.dirname(self.path)
        self._limit_keeper(TURN_KEEPER)
        try:
            Ledger(state_dir).make_folders()
            os.execv(apply_share.TURN_KEEPER, [apply_share.TURN_KEEPER, state_dir, str(server)])
        except OSError as error:
            # Without it every container goes by its own rate.
            what = f"cannot be started: {error.strerror}"
            print(VcudaError(what, apply_share.TURN_KEEPER, "install vcuda again"), file=sys.stderr)

    def _serve_callers(self, server: int) -> None:
        decision_file.may_hold = False  # do not wait in a worker
        gc.disable()  # collect after the reply: see _answer_next
        # A connection wakes one worker, the first of those that wait: its memory is in the caches.
        arrival = select.epoll()
        arrival.register(self._socket, select.EPOLLIN | select.EPOLLEXCLUSIVE)
        while os.getppid() == server:
            if arrival.poll(_LOOK_AROUND_S):
                self._answer_next()

    def _answer_next(self) -> None:
        try:
            connection, _ = self._socket.accept()
        except BlockingIOError:
            return  # another worker has accepted it
        with connection:
            try:
                connection.sendall(_answer(connection))
            except (BrokenPipeError, ConnectionResetError):
                pass  # the caller has ended; a sweep releases its claim
            except Exception:
                # The caller starts Python, which repeats a fault that was not accidental.
                traceback.print_exc()
            finally:
                os.chdir("/")  # do not keep the caller's file system busy
        gc.collect()  # it skips frozen objects


def _let_others_go_on() -> None:
    """Have the kernel interrupt no process when this one wakes: each record that a claim writes
    wakes it, and took a tenth of the claim's time."""
    try:
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    except OSError:
        pass  # not allowed in this container: claims take longer


def _fork(work: Callable[[int], None]) -> int:
    """Call `work` in a child process, with this process's pid. Return the child's pid."""
    server = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            work(server)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        finally:
            os._exit(0)
    return pid


def _answer(connection: socket.socket) -> bytes:
    # Not settimeout(): Python would poll before each call.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _ANSWER_TIME)
    words = [os.fsdecode(word) for word in connection.recv(MOST_BYTES).split(b"\0")[:-1]]
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    pid, user, _ = struct.unpack("iII", credentials)
    # Paths mean other files in another mount namespace. Pid 0, a process outside of this pid
    # namespace, cannot be the claimant.
    if user != os.geteuid() or pid == 0 or len(words) < 2 or not _enter_folder(pid, connection):
        return CLOSED
    allocation = ""
    try:
        if words[1]:
            command = bundle.Command(words[2:])
            if command.creates:
                allocation = main.apply_request(
                    command, words[0], words[1], pid, lambda: _has_left(connection)
                )
        elif words[2:3] == ["poststop"] and len(words) == 5:
            allocation = words[3]
            state = hook_state.parse_state(os.fsencode(words[4]))
            poststop.release(settings_file.load(words[0]), allocation, state)
        elif words[2:3] == ["delete"] and len(words) == 4:
            allocation = words[3]
            after_delete.release(words[0], allocation)
        elif words[2:3] == ["cdi"] and len(words) == 4:
            state = hook_state.parse_state(os.fsencode(words[3]))
            if state.status != "stopped":
                return _of_cdi_hook(words[0], state, pid)
            cdi_stopped.clean_up(words[0], state, lambda: _has_left(connection))
        else:
            return CLOSED
    except NotKnownYetError:
        return CLOSED  # a Python process of the caller's own waits
    except VcudaError as error:
        id = error.allocation or allocation
        return REFUSED + f"{error}\0{id}".encode(errors="replace")
    return DONE + f"\0{allocation}".encode(errors="replace")


def _of_cdi_hook(config: str, state: hook_state.State, pid: int) -> bytes:
    command = cdi_edits.hook_without_mounts(config, state, pid)
    # The words are parted by NUL, and end with an empty one.
    if command is None or len(command) > _MOST_WORDS:
        return CLOSED
    if not all(word and "\0" not in word for word in command):
        return CLOSED
    reply = b"\0".join([DONE, b"", *map(os.fsencode, command)])
    return reply if len(reply) < _MOST_REPLY_BYTES else CLOSED


def _has_left(connection: socket.socket) -> bool:
    """Whether the launcher has given up or ended."""
    try:
        return not connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True


def _enter_folder(pid: int, connection: socket.socket) -> bool:
    """Change to the caller's working folder. Return False if the caller sees other files, or ended.

    The caller is checked after its /proc folder is open: until it ends, no other process can have
    its pid.
    """
    try:
        process = guest_process.open_folder(pid)
    except FileNotFoundError:
        return False  # the caller has ended
    try:
        if _has_left(connection) or not guest_process.sees_our_files(process):
            return False
        guest_process.go_where(process)
        return True
    finally:
        os.close(process)
