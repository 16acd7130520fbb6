"""What is declared in RabbitMQ, how it looks printed, and who may do what there."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from typing import Any

import pytest

from rune.backends.rabbitmq import as_definitions, as_json, as_table, describe, open_rabbitmq, pool_queue
from rune.backends.rabbitmq.channel import AmqpError, Message
from rune.backends.rabbitmq.topology import COMPLETION, DEAD, EXECUTION, STATUS, TIMEOUT
from rune.backends.rabbitmq.wire import Method
from rune.core.errors import InfrastructureError
from tests.backends.rabbitmq.taking import Place, connected, next_of, taking, task
from tests.servers.rabbitmq import RabbitMQ

HOUR = 3_600_000


def arguments(topology: Any = None) -> dict[str, dict[str, Any]]:
    return {queue.name: queue.arguments for queue in (topology or describe()).queues}


def test_the_queues_are_those_of_the_specification() -> None:
    work = {
        "x-message-ttl": 24 * HOUR,
        "x-dead-letter-exchange": "workflow.execution.dlx",
        "x-max-priority": 10,
    }
    back = {"x-dead-letter-exchange": "workflow.execution"}
    assert arguments() == {
        "workflow.execution": work,
        "workflow.timeout.process": work,
        "workflow.execution.retry.5s": {"x-message-ttl": 5_000, **back},
        "workflow.execution.retry.25s": {"x-message-ttl": 25_000, **back},
        "workflow.execution.retry.125s": {"x-message-ttl": 125_000, **back},
        "workflow.execution.dead": {},
        "workflow.node.status": {"x-message-ttl": HOUR, "x-max-priority": 10},
        "workflow.completion": {"x-message-ttl": 7 * 24 * HOUR, "x-max-priority": 10},
    }


def test_quorum_queues_have_no_priorities() -> None:
    for name, given in arguments(describe(quorum=True)).items():
        assert (given.get("x-queue-type") == "quorum") == (name != STATUS)
        assert ("x-max-priority" in given) == (name == STATUS)
        assert ("x-delivery-limit" in given) == (name != STATUS)


def test_every_queue_is_bound_and_every_exchange_is_named() -> None:
    topology = describe(pools=["gpu"], retry_delays=[0.5])
    assert {binding.queue for binding in topology.bindings} == set(arguments(topology))
    assert all(exchange.name.startswith("workflow.") for exchange in topology.exchanges)
    assert {"workflow.execution.gpu", "workflow.execution.retry.500ms"} <= set(arguments(topology))


@pytest.mark.parametrize("name", ["dead", "retry", "dlx", "a.b", "é", "*"])
def test_a_pool_cannot_have_any_name(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be a pool's name"):
        pool_queue(name)


def test_it_can_be_printed() -> None:
    topology = describe()
    table = as_table(topology)
    assert re.search(r"^workflow\.completion +message-ttl 604800000, max-priority 10$", table, re.MULTILINE)
    assert json.loads(as_json(topology))["bindings"][0] == {
        "exchange": EXECUTION,
        "queue": EXECUTION,
        "key": EXECUTION,
    }


def test_definitions_show_no_password() -> None:
    printed = as_definitions(describe(), passwords={"rune-worker": "secret"})
    assert b"secret" not in printed
    users = {user["name"]: user["password_hash"] for user in json.loads(printed)["users"]}
    assert users["rune-worker"]
    assert users["rune-master"] == ""  # nobody can log in with it until a password is set


async def test_declaring_twice_changes_nothing(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    async with open_rabbitmq(place.url) as broker:
        await broker.publish([task("a")])
    async with open_rabbitmq(place.url):
        assert place.depth(EXECUTION) == (1, 0)
    assert caplog.text == ""


async def test_a_queue_that_is_otherwise_is_used_as_it_is(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    async with connected(place.url) as (_, client):
        await client.channel.call(Method.QUEUE_DECLARE, 0, EXECUTION, 2, {"x-message-ttl": 60_000})
        await client.channel.call(Method.EXCHANGE_DECLARE, 0, STATUS, "topic", 2, {})
    async with open_rabbitmq(place.url) as broker, taking(broker.deliveries(1)) as deliveries:
        await broker.publish([task("a")])
        assert (await next_of(deliveries)).task.current_node == "a"
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 2
    assert warnings[1].startswith(f"{EXECUTION} exists otherwise than described and is used as it is")
    assert "x-max-priority" in warnings[1] or "x-message-ttl" in warnings[1]


async def test_quorum_queues_work(place: Place) -> None:
    async with open_rabbitmq(place.url, quorum=True, retry_delays=[0.05]) as broker:
        await broker.publish([task("a", priority=5), task("t", phase="expire")])
        async with taking(broker.deliveries(5)) as deliveries:
            first, second = await next_of(deliveries), await next_of(deliveries)
            await broker.retry(first, 0.05)
            again = await next_of(deliveries)
            assert again.retries == 1
            await broker.dead_letter(again, "enough")
            await broker.finish(second, [task("b")])
            await broker.finish(await next_of(deliveries))
        (letter,) = await broker.dead_letters()
        assert letter.reason == "enough"


# --- permissions --------------------------------------------------------------------------------------------


async def refused(place: Place, user: str, *call: Any) -> bool:
    async with connected(place.url_of(user)) as (_, client):
        try:
            await client.channel.call(*call)
        except AmqpError as error:
            return error.code == 403
        return False


async def may_publish(place: Place, user: str, exchange: str, key: str) -> bool:
    async with connected(place.url_of(user)) as (_, client):
        await client.channel.call(Method.CONFIRM_SELECT, 0)
        confirmed: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        client.channel.on_confirm = lambda tag, multiple, ok: confirmed.set_result(ok)
        client.channel.publish(Message(exchange, key, b"{}"))
        either: set[asyncio.Future[Any]] = {confirmed, client.channel.closed}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        return confirmed.done()


async def may_read(place: Place, user: str, queue: str) -> bool:
    return not await refused(place, user, Method.BASIC_CONSUME, 0, queue, "", 0, {})


@pytest.fixture
async def guarded(server: RabbitMQ, place: Place) -> Place:
    """A virtual host with everything declared, and a user for each role."""
    async with open_rabbitmq(place.url):
        pass
    for user in describe().users:
        server.add_user(user.name)
        server.permit(user.name, place.vhost, (user.configure, user.write, user.read))
    return place


async def test_a_worker_may_do_its_work_and_no_more(guarded: Place) -> None:
    async with open_rabbitmq(guarded.url_of("rune-worker")) as broker, taking(broker.controls()) as controls:
        await broker.publish([task("a"), task("x", phase="expire")])
        async with taking(broker.deliveries(5)) as deliveries:
            await broker.retry(await next_of(deliveries), 5)
            await broker.dead_letter(await next_of(deliveries), "why")
        hearing = asyncio.ensure_future(next_of(controls))
        while not hearing.done():
            await broker.broadcast({"a": 1})
            await asyncio.sleep(0.02)
    for name in (EXECUTION, "workflow.new", "amq.gen-1", "workflow.control"):
        assert await refused(guarded, "rune-worker", Method.QUEUE_DECLARE, 0, name, 2, {})
        assert await refused(guarded, "rune-worker", Method.EXCHANGE_DECLARE, 0, name, "direct", 2, {})
    assert not await may_publish(guarded, "rune-worker", "", COMPLETION)
    assert not await may_publish(guarded, "rune-worker", "amq.direct", COMPLETION)
    for queue in (EXECUTION, TIMEOUT):
        assert await may_read(guarded, "rune-worker", queue)
    for queue in (STATUS, COMPLETION, DEAD):
        assert not await may_read(guarded, "rune-worker", queue)


async def test_who_may_create_nothing_reaches_the_pools_that_were_created(
    server: RabbitMQ, place: Place
) -> None:
    async with open_rabbitmq(place.url, pools=["gpu"]):
        pass
    for user in describe(pools=["gpu"]).users:
        server.add_user(user.name)
        server.permit(user.name, place.vhost, (user.configure, user.write, user.read))
        async with open_rabbitmq(place.url_of(user.name)) as broker:
            await broker.publish([task("a", pool="gpu")])
            with pytest.raises(InfrastructureError, match=r"workflow\.execution\.tpu does not exist"):
                await broker.publish([task("b", pool="tpu")])
            await broker.publish([task("c")])
    async with (
        open_rabbitmq(place.url_of("rune-worker"), queues=[pool_queue("gpu")]) as broker,
        taking(broker.deliveries(5)) as deliveries,
    ):
        for _ in range(3):
            delivery = await next_of(deliveries)
            assert delivery.task.current_node == "a"
            await broker.finish(delivery)


async def test_a_scheduler_only_publishes(guarded: Place) -> None:
    async with open_rabbitmq(guarded.url_of("rune-scheduler")) as broker:
        await broker.publish([task("a"), task("b", phase="expire")])
        with pytest.raises(InfrastructureError, match="ACCESS_REFUSED"):
            await broker.broadcast({"a": 1})
        await broker.publish([task("c")])
    assert guarded.depth(EXECUTION) == (2, 0)
    assert not await may_publish(guarded, "rune-scheduler", COMPLETION, COMPLETION)
    assert not await may_read(guarded, "rune-scheduler", EXECUTION)


async def test_a_master_starts_and_listens(guarded: Place) -> None:
    async with open_rabbitmq(guarded.url_of("rune-master")) as broker:
        await broker.publish([task("a")])
        await broker.broadcast({"ended": "e"})
        assert await broker.dead_letters() == []
    assert await may_read(guarded, "rune-master", STATUS)
    assert await may_read(guarded, "rune-master", COMPLETION)
    assert not await may_read(guarded, "rune-master", EXECUTION)
    assert not await may_publish(guarded, "rune-master", STATUS, STATUS)
    assert not await may_publish(guarded, "rune-master", "", EXECUTION)


async def test_who_may_not_declare_is_told_what_to_do(server: RabbitMQ, place: Place) -> None:
    server.add_user("poor")
    server.permit("poor", place.vhost, ("^$", ".*", ".*"))
    with pytest.raises(InfrastructureError, match="have an administrator import"):
        async with open_rabbitmq(place.url_of("poor")):
            pass


async def test_a_worker_that_may_create_nothing_works_without_hearing(
    guarded: Place, caplog: pytest.LogCaptureFixture
) -> None:
    worker = describe().users[0]
    guarded.server.permit(worker.name, guarded.vhost, ("^$", worker.write, worker.read))
    async with open_rabbitmq(guarded.url_of(worker.name)) as broker, taking(broker.controls()) as controls:
        with pytest.raises(TimeoutError):
            await next_of(controls, 1)
        await broker.publish([task("a")])
        async with taking(broker.deliveries(1)) as deliveries:
            await broker.finish(await next_of(deliveries))
    assert caplog.text.count("ACCESS_REFUSED") == 1


async def test_the_definitions_file_is_all_that_is_needed() -> None:
    passwords = {user.name: user.name for user in describe().users}
    definitions = json.loads(as_definitions(describe(), vhost="rune", passwords=passwords))
    with RabbitMQ(definitions) as server:
        url = server.url("rune", "rune-worker", "rune-worker")
        async with open_rabbitmq(url) as broker, taking(broker.deliveries(1)) as deliveries:
            await broker.publish([task("a")])
            await broker.finish(await next_of(deliveries))
        with pytest.raises(InfrastructureError, match="ACCESS_REFUSED"):
            async with open_rabbitmq(server.url("rune", "rune-master", "wrong")):
                pass
