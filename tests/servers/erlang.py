"""A line into a running Erlang node: a thousand times as fast as rabbitmqctl."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import time
from pathlib import Path

from tests.servers.process import free_port

__all__ = ["Shell"]

_SERVE = """
spawn(fun() ->
  {ok, L} = gen_tcp:listen(PORT, [binary, {packet, 4}, {active, false}, {ip, {127, 0, 0, 1}}]),
  {ok, S} = gen_tcp:accept(L),
  (fun Serve() ->
    {ok, Code} = gen_tcp:recv(S, 0),
    Answer = try
      {ok, Tokens, _} = erl_scan:string(binary_to_list(Code)),
      {ok, Expressions} = erl_parse:parse_exprs(Tokens),
      {value, Value, _} = erl_eval:exprs(Expressions, []),
      io_lib:format("ok ~0p", [Value])
    catch Kind:Reason -> io_lib:format("~p ~0p", [Kind, Reason])
    end,
    ok = gen_tcp:send(S, Answer),
    Serve()
  end)()
end).
"""
"""Evaluates what it is sent, for one client."""


class Shell:
    """Evaluates Erlang in a node that listens on a port of this machine."""

    def __init__(self, port: int, cookie: str, home: Path) -> None:
        self._port = port
        self._cookie = cookie
        self._home = home
        self._line: socket.socket | None = None

    def eval(self, code: str) -> str:
        """The value of an expression, as Erlang writes it."""
        line = self._line or self._open()
        try:
            body = f"{code}.".encode()
            line.sendall(struct.pack(">I", len(body)) + body)
            (size,) = struct.unpack(">I", line.recv(4, socket.MSG_WAITALL))
            kind, _, value = line.recv(size, socket.MSG_WAITALL).decode().partition(" ")
        except (OSError, struct.error) as error:
            self.close()
            raise ConnectionError(f"the node has gone: {error}") from error
        if kind != "ok":
            raise RuntimeError(f"{code}: {value}")
        return value

    def close(self) -> None:
        """Hang up; the next `eval` calls again."""
        if self._line is not None:
            self._line.close()
            self._line = None

    def _open(self) -> socket.socket:
        port = free_port()
        self._call(_SERVE.replace("PORT", str(port)))
        limit = time.monotonic() + 30
        while self._line is None:
            try:
                self._line = socket.create_connection(("127.0.0.1", port), 30)
            except OSError:
                assert time.monotonic() < limit, "the node does not listen"
                time.sleep(0.01)
        return self._line

    def _call(self, code: str) -> None:
        for _ in range(20):
            done = subprocess.run(
                ["erl_call", "-address", f"localhost:{self._port}", "-c", self._cookie, "-e"],
                input=code.encode(),
                env={"PATH": os.environ["PATH"], "HOME": str(self._home)},
                capture_output=True,
                check=False,
                timeout=30,
            )
            said = (done.stdout + done.stderr).decode()
            # Now and then the node refuses a connection that comes too soon after the last.
            if "failed to connect" not in said:
                break
            time.sleep(0.2)
        if done.returncode or not said.startswith("{ok, "):
            raise RuntimeError(said)
