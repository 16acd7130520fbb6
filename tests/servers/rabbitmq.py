"""A private RabbitMQ: its own epmd, node, directories and ports; it ends with the tests, however they end."""

from __future__ import annotations

import atexit
import itertools
import json
import os
import re
import shutil
import signal
import socket
import tempfile
import time
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.servers.erlang import Shell
from tests.servers.process import Process, answers, binary, free_port

__all__ = ["RabbitMQ", "shared_rabbitmq"]

_SERVER = "/usr/lib/rabbitmq/bin/rabbitmq-server"
"""The script itself: the wrapper in /usr/sbin changes the user."""
_COOKIE = "RUNETESTS"


class RabbitMQ(Process):
    """A broker of one's own; `kill` and `start` again, and it goes on with the same data."""

    def __init__(self, definitions: dict[str, Any] | None = None) -> None:
        self.port, self._dist_port, epmd_port = free_port(), free_port(), free_port()
        self.node = f"rune{self.port}@localhost"
        self.directory = Path(tempfile.mkdtemp(prefix="rune-rabbitmq-"))
        self._shell = Shell(self._dist_port, _COOKIE, self.directory / "home")
        self._names = itertools.count(1)
        self._write_files(definitions or _GUEST)
        # Without an epmd of its own, the node would leave a daemon behind.
        command = ["epmd", "-port", str(epmd_port), "-address", "127.0.0.1"]
        self._epmd = Process(command, self.directory / "home", lambda: answers(epmd_port))
        super().__init__(
            [binary(_SERVER, "rabbitmq-server")],
            self.directory,
            self._answers,
            environ=self._environment(epmd_port),
            patience=90.0,
        )

    def _write_files(self, definitions: dict[str, Any]) -> None:
        home = self.directory / "home"
        home.mkdir()
        cookie = home / ".erlang.cookie"
        cookie.write_text(_COOKIE)
        cookie.chmod(0o400)
        (self.directory / "definitions.json").write_text(json.dumps(definitions))
        (self.directory / "plugins").write_text("[].")
        (self.directory / "rabbitmq.conf").write_text(
            f"listeners.tcp.1 = 127.0.0.1:{self.port}\n"
            f"load_definitions = {self.directory}/definitions.json\n"
            "loopback_users = none\n"
            "vm_memory_high_watermark.relative = 0.9\n"
            "disk_free_limit.absolute = 1MB\n"
            "log.console = false\n"
        )

    def _environment(self, epmd_port: int) -> dict[str, str]:
        at = self.directory
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(at / "home"),
            "RUNNING_UNDER_SYSTEMD": "true",  # the script then execs the VM: the child is what we kill
            "ERL_EPMD_PORT": str(epmd_port),
            "RABBITMQ_NODENAME": self.node,
            "RABBITMQ_DIST_PORT": str(self._dist_port),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_CONFIG_FILE": str(at / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(at / "plugins"),
            "RABBITMQ_MNESIA_BASE": str(at / "mnesia"),
            "RABBITMQ_LOG_BASE": str(at / "log"),
            "RABBITMQ_PID_FILE": str(at / "pid"),
            "RABBITMQ_GENERATED_CONFIG_DIR": str(at / "generated"),
            "RABBITMQ_PLUGINS_EXPAND_DIR": str(at / "expanded"),
        }

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as client:
                client.settimeout(5)
                client.sendall(b"AMQP\0\0\x09\x01")
                return bool(client.recv(1))
        except OSError:
            return False

    def close(self) -> None:
        """Kill it, and forget its data."""
        self.kill()
        self._epmd.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            self._epmd.start()
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- administration ---

    def eval(self, code: str) -> str:
        """Run Erlang in the broker."""
        return self._shell.eval(code)

    def _end(self, how: signal.Signals) -> None:
        super()._end(how)
        self._shell.close()

    def add_vhost(self) -> str:
        """A new virtual host, open to guest."""
        name = f"test{next(self._names)}"
        self.eval(f'rabbit_vhost:add(<<"{name}">>, <<"tests">>)')
        self.permit("guest", name)
        return name

    def delete_vhost(self, name: str) -> None:
        """Forget a virtual host with all that is in it."""
        self.eval(f'rabbit_vhost:delete(<<"{name}">>, <<"tests">>)')

    def permit(self, user: str, vhost: str, permissions: tuple[str, str, str] = (".*", ".*", ".*")) -> None:
        """Set what a user may configure, write and read."""
        arguments = ", ".join(f"<<{json.dumps(text)}>>" for text in (user, vhost, *permissions, "tests"))
        self.eval(f"rabbit_auth_backend_internal:set_permissions({arguments})")

    def add_user(self, user: str) -> None:
        """Add a user whose password is the name, unless it is there."""
        self.eval(f'(catch rabbit_auth_backend_internal:add_user(<<"{user}">>, <<"{user}">>, <<"tests">>))')

    def block(self, blocked: bool = True) -> None:
        """Raise or clear the memory alarm, which blocks connections that publish."""
        self.eval(f"vm_memory_monitor:set_vm_memory_high_watermark({'1.0e-6' if blocked else '0.9'})")

    def disconnect_all(self) -> None:
        """Close every client's connection, as an operator would."""
        self.eval('[rabbit_networking:close_connection(C, "tests") || C <- rabbit_networking:connections()]')

    def purge(self, vhost: str = "/") -> None:
        """Empty all queues of a virtual host."""
        self.eval(f'[rabbit_amqqueue:purge(Q) || Q <- rabbit_amqqueue:list(<<"{vhost}">>)]')

    def counts(self, *queues: str, vhost: str = "/") -> list[tuple[int, int]]:
        """How many messages wait in each of these queues, and how many are in somebody's hands."""
        names = ", ".join(f'<<"{queue}">>' for queue in queues)
        code = (
            '[begin {ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"' + vhost + '">>, queue, N)), '
            "[{_, R}, {_, U}] = rabbit_amqqueue:info(Q, [messages_ready, messages_unacknowledged]), "
            f"{{R, U}} end || N <- [{names}]]"
        )
        numbers = [int(number) for number in re.findall(r"\d+", self.eval(code))]
        return list(zip(numbers[::2], numbers[1::2], strict=True))

    def settled(self, queue: str, vhost: str = "/") -> int:
        """How many messages are in a queue, once none of them is in anybody's hands, or after a while."""
        limit = time.monotonic() + 2
        while True:
            ((ready, taken),) = self.counts(queue, vhost=vhost)
            if not taken or time.monotonic() > limit:
                return ready + taken
            time.sleep(0.02)

    def url(self, vhost: str = "/", user: str = "guest", password: str = "guest") -> str:
        """Where clients find it."""
        return f"amqp://{user}:{password}@127.0.0.1:{self.port}/{'%2f' if vhost == '/' else vhost}"


@cache
def shared_rabbitmq() -> RabbitMQ:
    """A broker for all tests of this process that empty it before they use it."""
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(RabbitMQ())


_GUEST = {
    "users": [{"name": "guest", "password": "guest", "tags": ["administrator"]}],
    "vhosts": [{"name": "/"}],
    "permissions": [{"user": "guest", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}],
}
