"""The process that user code is forked from: started with an empty environment, knows nothing of the engine.

It is run as a script of its own and imports only the standard library. Requests come over its standard input,
a socket, each with the writing end of a pipe. For each it forks; the child lowers its limits, runs the code
and writes its answer, one JSON object, into the pipe.
"""

import array
import contextlib
import ctypes
import io
import json
import os
import resource
import signal
import socket
import sys
import traceback

_MOST = 1 << 20
"""Characters of printed text that are kept."""


def serve() -> None:
    """Fork for each request, until the socket is closed."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    channel = socket.socket(fileno=os.dup(0))
    while True:
        size, answer = _receive(channel)
        if answer is None:
            return
        body = bytearray()
        while len(body) < size:
            part = channel.recv(min(1 << 16, size - len(body)))
            if not part:
                return
            body += part
        if os.fork() == 0:
            channel.close()
            with os.fdopen(answer, "wb") as pipe:
                _child(json.loads(body), pipe)
            os._exit(0)
        os.close(answer)


def _receive(channel: socket.socket) -> tuple[int, int | None]:
    head, ancillary, _, _ = channel.recvmsg(8, socket.CMSG_SPACE(4), socket.MSG_WAITALL)
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors = array.array("i")
            descriptors.frombytes(data[:4])
            return int.from_bytes(head, "big"), descriptors[0]
    return 0, None


def _child(request: dict, pipe: io.BufferedWriter) -> None:  # type: ignore[type-arg]
    pipe.write(b"%d\n" % os.getpid())
    pipe.flush()
    os.setsid()
    _die_with_parent()
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
    pipe.write(data.encode("utf-8", "replace"))


def _die_with_parent() -> None:
    """Have the kernel end this process when the one it was forked from is gone: its worker has died."""
    if sys.platform == "linux":
        death = 1  # PR_SET_PDEATHSIG
        ctypes.CDLL(None).prctl(death, signal.SIGKILL)


def _limit(limits: dict) -> None:  # type: ignore[type-arg]
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, limits["seconds"])
    cpu = int(limits["seconds"]) + 1
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
        return main(**args)
    return names.get("result")


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
    sys.exit(0)
