"""The process that user code is forked from: started with an empty environment, knows nothing of the engine.

It is run as a script of its own and imports only the standard library. Requests come over its standard input,
a socket, each with the writing end of a pipe. For each it forks; the child lowers its limits, runs the code
and writes its answer, one line of JSON, into the pipe. What the code itself has started ends with it.
"""

import array
import contextlib
import ctypes
import io
import json
import os
import resource
import select
import signal
import socket
import sys
import traceback

_MOST = 1 << 20
"""Characters of printed text that are kept."""
_FILES = 0b11111
"""The capabilities that concern files: chown, dac_override, dac_read_search, fowner, fsetid."""

_running: set[int] = set()
"""The processes that run code."""


def serve() -> None:
    """Fork for each request, until the socket is closed."""
    _guard()
    channel = socket.socket(fileno=os.dup(0))
    woken, waking = socket.socketpair()
    waking.setblocking(False)
    signal.set_wakeup_fd(waking.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    more = True
    while more:
        ready, _, _ = select.select([channel, woken], [], [])
        if woken in ready:
            woken.recv(4096)
            _reap()
        if channel in ready:
            more = _start(channel, (woken, waking))
    signal.set_wakeup_fd(-1)
    _end_all()


def _start(channel: socket.socket, others: tuple[socket.socket, ...]) -> bool:
    """Take one request and fork for it; False if there is none to come."""
    size, answer = _receive(channel)
    if answer is None:
        return False
    body = bytearray()
    while len(body) < size:
        part = channel.recv(min(1 << 16, size - len(body)))
        if not part:
            return False
        body += part
    server = os.getpid()
    child = os.fork()
    if child == 0:
        try:
            signal.set_wakeup_fd(-1)
            for one in (channel, *others):
                one.close()
            with os.fdopen(answer, "wb") as pipe:
                _child(json.loads(body), pipe, server)
        finally:
            # Whatever happened, a child never goes on as a server.
            os._exit(0)
    _running.add(child)
    os.close(answer)
    return True


def _receive(channel: socket.socket) -> tuple[int, int | None]:
    head, ancillary, _, _ = channel.recvmsg(8, socket.CMSG_SPACE(4), socket.MSG_WAITALL)
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors = array.array("i")
            descriptors.frombytes(data[:4])
            return int.from_bytes(head, "big"), descriptors[0]
    return 0, None


def _child(request: dict, pipe: io.BufferedWriter, server: int) -> None:  # type: ignore[type-arg]
    itself = os.getpid()
    pipe.write(b"%d\n" % itself)
    pipe.flush()
    os.setsid()
    _confine(server)
    _limit(request["limits"])
    printed = io.StringIO()
    quiet = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(quiet, descriptor)
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            answer = {"result": _run(request["code"], request["args"])}
        data = json.dumps({**answer, "printed": printed.getvalue()[:_MOST]}, allow_nan=False)
    except BaseException as error:  # noqa: BLE001 - user code may raise anything, and this process is its own
        data = json.dumps({"error": _told(error), "printed": printed.getvalue()[:_MOST]})
    # A copy that the code made of this process has nothing to say.
    if os.getpid() == itself:
        pipe.write(data.encode("utf-8", "replace") + b"\n")


def _guard() -> None:
    """Let no code see the memory of another's, and make this process the parent of all that code leaves."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        libc.prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE
        libc.prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def _confine(server: int) -> None:
    """End with the server, whose worker has died then, and give up what only root may, but for files."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        libc.prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
        if os.getppid() != server:
            # It died before this was asked for.
            os._exit(0)
        libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS: programs that it starts do not get it back
        header, held = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
        libc.capget(header, held)
        effective, permitted, *_ = held
        libc.capset(header, (ctypes.c_uint32 * 6)(effective & _FILES, permitted & _FILES))


def _reap() -> None:
    """Let go the processes that have ended, and end what their code left behind."""
    while _wait(os.WNOHANG):
        for stray in _children() - _running:
            _kill(stray)


def _end_all() -> None:
    """Leave nothing that code has started."""
    while left := _children():
        for process in left:
            _kill(process)
        if not _wait(0):
            return


def _wait(options: int) -> int:
    """Wait for a process to end, and end its group; 0 if there is none."""
    try:
        ended, _ = os.waitpid(-1, options)
    except ChildProcessError:
        return 0
    if ended:
        _running.discard(ended)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(ended, signal.SIGKILL)
    return ended


def _kill(process: int) -> None:
    """End a process, and its group if it leads one."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(process, signal.SIGKILL)


def _children() -> set[int]:
    """The processes whose parent this one is: also those that have lost theirs, where the system tells."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
            return set(map(int, file.read().split()))
    except OSError:
        return set(_running)


def _limit(limits: dict) -> None:  # type: ignore[type-arg]
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, limits["seconds"])
    # Threads that run side by side use up more than the clock shows.
    cpu = (int(limits["seconds"]) + 1) * (os.cpu_count() or 1)
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 1))
    resource.setrlimit(resource.RLIMIT_AS, (limits["memory"], limits["memory"]))
    resource.setrlimit(resource.RLIMIT_FSIZE, (limits["file"], limits["file"]))
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _run(code: str, args: dict) -> object:  # type: ignore[type-arg]
    names: dict[str, object] = {"__name__": "__rune__", **args}
    exec(compile(code, "<code>", "exec"), names)
    main = names.get("main")
    if callable(main):
        return main(**_taken(main, args))
    return names.get("result")


def _taken(main: object, args: dict) -> dict:  # type: ignore[type-arg]
    """The arguments that a function takes: those of a step are there whether it asks for them or not."""
    code = getattr(main, "__code__", None)
    if code is None or code.co_flags & 0x08:  # CO_VARKEYWORDS
        return args
    known = code.co_varnames[code.co_posonlyargcount : code.co_argcount + code.co_kwonlyargcount]
    return {name: value for name, value in args.items() if name in known}


def _told(error: BaseException) -> dict[str, object]:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == "<code>"]
    line = getattr(error, "lineno", None) if isinstance(error, SyntaxError) else None
    return {
        "exception": type(error).__name__,
        "message": str(error)[:10_000],
        "line": frames[-1].lineno if frames else line,
    }


if __name__ == "__main__":
    serve()
