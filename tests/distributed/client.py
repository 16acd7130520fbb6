"""A plain AMQP client, as somebody who has only read RFC 001 would write it; nothing of Rune is imported."""

from __future__ import annotations

import contextlib
import itertools
import json
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pika
from pika.exceptions import AMQPError

__all__ = ["Client", "condition", "flow", "node", "put"]

EXECUTION, TIMEOUT = "workflow.execution", "workflow.timeout.process"
STATUS, COMPLETION, DEAD = "workflow.node.status", "workflow.completion", "workflow.execution.dead"


def node(id: str, type: str, /, **rest: Any) -> dict[str, Any]:
    """A node of a definition; what is not a field of the node is a parameter."""
    fields = {"error", "retry", "credentials", "pool"}
    made = {"id": id, "type": type, "parameters": {k: v for k, v in rest.items() if k not in fields}}
    return made | {k: v for k, v in rest.items() if k in fields}


def put(id: str, **values: Any) -> dict[str, Any]:
    """A node that makes an object of these."""
    assignments = [{"name": name, "value": value} for name, value in values.items()]
    return node(id, "edit", mode="keep_only", assignments=assignments)


def condition(id: str, expression: str) -> dict[str, Any]:
    """A node that goes two ways."""
    return node(id, "conditional", expression=expression)


def flow(nodes: Sequence[dict[str, Any]], *ways: str) -> dict[str, Any]:
    """A definition; a way is a chain such as `a > b > c` or `a:true > b`."""
    edges: list[dict[str, Any]] = []
    for way in ways:
        for src, dst in itertools.pairwise(stop.strip() for stop in way.split(">")):
            name, _, port = src.partition(":")
            target = dst.partition(":")[0]
            edges.append({"id": f"{name}-{target}-{port}", "src": name, "dst": target, "port": port or "out"})
    return {"workflow_id": "wf", "nodes": list(nodes), "edges": edges}


class Client:
    """Publishes to `workflow.execution`, and keeps what it hears of statuses and completions."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.statuses: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self.completions: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self.dead: list[tuple[dict[str, Any], bytes]] = []
        """Headers and bodies of what was dead-lettered."""
        self.sizes: list[int] = []
        self.connect()

    def connect(self) -> None:
        """Connect."""
        self._connection = pika.BlockingConnection(pika.URLParameters(self._url))
        self._channel = self._connection.channel()
        self._channel.confirm_delivery()
        self._channel.basic_qos(prefetch_count=1000)
        for queue, heard in ((STATUS, self._status), (COMPLETION, self._completion), (DEAD, self._letter)):
            self._channel.basic_consume(queue, self._hearing(heard))

    def reconnect(self) -> None:
        """Connect again, after the broker has died."""
        self.close()
        self.connect()

    def close(self) -> None:
        """Hang up."""
        with contextlib.suppress(AMQPError):
            # Where the broker has gone without a word, this finds out.
            self._connection.process_data_events(0)
            self._connection.close()

    def _hearing(self, heard: Callable[[Any, bytes], None]) -> Any:
        def hear(channel: Any, method: Any, properties: Any, body: bytes) -> None:
            heard(properties, body)
            channel.basic_ack(method.delivery_tag)

        return hear

    def _status(self, properties: Any, body: bytes) -> None:
        self.sizes.append(len(body))
        said = json.loads(body)
        for status in said if isinstance(said, list) else [said]:
            self.statuses[status["execution_id"]].append(status)

    def _completion(self, properties: Any, body: bytes) -> None:
        self.sizes.append(len(body))
        completion = json.loads(body)
        self.completions[completion["execution_id"]].append(completion)

    def _letter(self, properties: Any, body: bytes) -> None:
        self.dead.append((properties.headers or {}, body))

    # --- out ---

    def send(self, body: bytes, *, times: int = 1, priority: int = 0) -> None:
        """Publish these bytes."""
        properties = pika.BasicProperties(delivery_mode=2, priority=priority)
        for _ in range(times):
            self._channel.basic_publish(EXECUTION, EXECUTION, body, properties, mandatory=True)

    def publish(self, message: Mapping[str, Any], *, times: int = 1) -> None:
        """Publish a message."""
        self.send(json.dumps(message).encode(), times=times)

    def start(
        self, definition: Mapping[str, Any], trigger: Any = None, *, times: int = 1, **more: Any
    ) -> str:
        """Start an execution at the definition's first node, with exactly the fields of RFC 001 §6.1."""
        execution = f"exec_{uuid.uuid4().hex[:12]}"
        message = {
            "workflow_id": "wf",
            "execution_id": execution,
            "current_node": definition["nodes"][0]["id"],
            "workflow_definition": definition,
            "accumulated_context": {"$trigger": trigger if trigger is not None else {}},
        }
        self.publish(message | more, times=times)
        return execution

    @contextlib.contextmanager
    def echoing(self) -> Iterator[None]:
        """Publish every Task once more that is published meanwhile."""
        queue = self._overhear([], echo=True)
        yield
        self._channel.basic_cancel(queue)
        self._channel.queue_delete(queue)

    def overhear(self, *, echo: bool = False) -> list[bytes]:
        """All Tasks that are published from now on; with `echo`, each is published once more."""
        heard: list[bytes] = []
        self._overhear(heard, echo)
        return heard

    def _overhear(self, heard: list[bytes], echo: bool) -> str:
        queue: Any = self._channel.queue_declare("", exclusive=True).method.queue
        for key in (EXECUTION, TIMEOUT):
            self._channel.queue_bind(queue, EXECUTION, key)
        known: set[str] = set()

        def hear(channel: Any, method: Any, properties: Any, body: bytes) -> None:
            heard.append(body)
            name = _name(body)
            # What a duplicate publishes is not doubled again, or they would breed.
            if echo and name not in known:
                known.add(name)
                channel.basic_publish(EXECUTION, method.routing_key, body, properties)

        return str(self._channel.basic_consume(queue, hear, auto_ack=True, consumer_tag=queue))

    def tap(self, exchange: str, key: str = "") -> list[tuple[dict[str, Any], bytes]]:
        """Headers and bodies of all that is published to an exchange from now on."""
        queue: Any = self._channel.queue_declare("", exclusive=True).method.queue
        self._channel.queue_bind(queue, exchange, key)
        heard: list[tuple[dict[str, Any], bytes]] = []

        def hear(channel: Any, method: Any, properties: Any, body: bytes) -> None:
            heard.append((properties.headers or {}, body))

        self._channel.basic_consume(queue, hear, auto_ack=True)
        return heard

    # --- in ---

    def wait(self, come: Callable[[], Any], seconds: float = 30, what: str = "") -> Any:
        """Listen until this has come."""
        limit = time.monotonic() + seconds
        while not (found := come()):
            assert time.monotonic() < limit, f"waited {seconds:g} s in vain for {what or come}"
            self._connection.process_data_events(0.05)  # type: ignore[arg-type]
        return found

    def listen(self, seconds: float) -> None:
        """Listen for a while."""
        self._connection.process_data_events(seconds)  # type: ignore[arg-type]

    def completion(self, execution: str, seconds: float = 30) -> dict[str, Any]:
        """The completion of an execution: the only one, or several that are the same."""
        self.wait(lambda: self.completions[execution], seconds, f"the end of {execution}")
        first, *others = self.completions[execution]
        for other in others:
            assert other == first, "two different ends"
        return first

    def named(self, execution: str) -> set[str]:
        """The hashes of the values that the completion only names."""
        return {ref["hash"] for ref in self.completion(execution).get("refs", ())}

    def result(self, execution: str, seconds: float = 30) -> dict[str, Any]:
        """The final context of an execution that has completed, with payloads instead of their wrappings."""
        completion = self.completion(execution, seconds)
        assert completion["status"] == "completed", completion
        context: dict[str, Any] = completion["final_context"]
        return {name: _unwrapped(value) for name, value in context.items()}

    def told(self, execution: str, node: str) -> list[str]:
        """The statuses of a node that have come, in order."""
        return [s["status"] for s in self.statuses[execution] if s["node_id"] == node]

    def letters(self, word: str) -> list[dict[str, Any]]:
        """The headers of dead letters that have this word in their body."""
        return [headers for headers, body in self.dead if word.encode() in body]


def _name(body: bytes) -> str:
    """What makes a Task the same as another."""
    try:
        task = json.loads(body)
    except ValueError:
        task = None
    if not isinstance(task, dict):
        return repr(body)
    steps = [twig[0] for twig in task.get("twigs", ())] or task.get("step")
    fields = ("execution_id", "current_node", "phase", "attempt", "cursor")
    return json.dumps([steps, *(task.get(field) for field in fields)])


def _unwrapped(value: Any) -> Any:
    """What `edit` puts out is `{"$json": payload}`."""
    if isinstance(value, list):
        return [_unwrapped(each) for each in value]
    if isinstance(value, dict):
        plain = {name: _unwrapped(each) for name, each in value.items()}
        return plain["$json"] if plain.keys() == {"$json"} else plain
    return value
