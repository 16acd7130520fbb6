"""RabbitMQ away, killed, blocked, or closing what we have open: nothing is lost, and work goes on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rune.backends.rabbitmq import RabbitBroker, open_rabbitmq
from rune.backends.rabbitmq.topology import EXECUTION, STATUS
from rune.core.errors import InfrastructureError
from rune.core.ports import Delivery
from tests.backends.rabbitmq.taking import Place, connected, next_of, status, taking, task
from tests.servers.rabbitmq import RabbitMQ
from tests.servers.tls import encrypted


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rune.backends.rabbitmq.link._LONGEST_REST", 0.3)


async def test_a_broker_that_is_not_there(unused_tcp_port: int) -> None:
    with pytest.raises(InfrastructureError, match="cannot be reached at amqp://guest@127"):
        async with open_rabbitmq(f"amqp://127.0.0.1:{unused_tcp_port}"):
            pass


async def test_a_wrong_password_is_said_and_not_shown(place: Place) -> None:
    with pytest.raises(InfrastructureError, match="ACCESS_REFUSED") as raised:
        async with open_rabbitmq(place.server.url(place.vhost, password="secret")):
            pass
    assert "secret" not in str(raised.value)


async def test_a_broker_with_tls_is_checked(place: Place, tmp_path: Path) -> None:
    async with encrypted(place.server.port, tmp_path) as door:
        url = f"amqps://guest:guest@127.0.0.1:{door.port}/{place.vhost}"
        async with open_rabbitmq(f"{url}?ca={door.ca}") as broker, taking(broker.deliveries(1)) as deliveries:
            await broker.publish([task("a", path="p" * 500_000)])
            assert (await next_of(deliveries)).task.current_node == "a"
        for option, reason in (("", "CERTIFICATE_VERIFY_FAILED"), ("?ca=/no/file", "/no/file")):
            with pytest.raises(InfrastructureError, match=f"cannot be reached at .*{reason}"):
                async with open_rabbitmq(url + option):
                    pass


async def test_an_unknown_virtual_host(place: Place) -> None:
    with pytest.raises(InfrastructureError, match="vhost nowhere not found"):
        async with open_rabbitmq(place.server.url("nowhere")):
            pass


async def test_a_lost_connection_redelivers_what_was_not_finished(broker: RabbitBroker, place: Place) -> None:
    await broker.publish([task("a"), task("b")])
    async with taking(broker.deliveries(1)) as deliveries:
        old = await next_of(deliveries)
        place.server.disconnect_all()
        again = await next_of(deliveries)
        assert (again.task.current_node, again.redelivered) == ("a", True)
        await broker.finish(old, [task("child")])  # published, but this acknowledges nothing
        assert place.depth(EXECUTION) == (2, 1)
        await broker.finish(again)
        assert [(await _finish(broker, deliveries)) for _ in range(2)] == ["b", "child"]
        await place.settles(EXECUTION, 0)


async def _finish(broker: RabbitBroker, deliveries: AsyncIterator[Delivery]) -> str:
    delivery = await next_of(deliveries)
    await broker.finish(delivery)
    return delivery.task.current_node


async def test_all_listeners_go_on_after_a_lost_connection(broker: RabbitBroker, place: Place) -> None:
    async with taking(broker.controls()) as controls, taking(broker.statuses()) as statuses:
        hearing = asyncio.ensure_future(next_of(controls))
        seeing = asyncio.ensure_future(next_of(statuses))
        await asyncio.sleep(0.1)
        place.server.disconnect_all()
        while not hearing.done():
            await broker.broadcast({"a": 1})
            await asyncio.sleep(0.02)
        broker.emit([status("a")])
        assert (await seeing)[0].node_id == "a"


async def test_the_broker_may_close_a_consumer_that_takes_too_long(
    broker: RabbitBroker, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """RabbitMQ closes the channel of one who holds a message for longer than its `consumer_timeout`."""
    await broker.publish([task("slow")])
    place.server.eval("application:set_env(rabbit, consumer_timeout, 1)")
    async with taking(broker.deliveries(5)) as deliveries:
        old = await next_of(deliveries)
        place.server.eval("application:set_env(rabbit, consumer_timeout, 1800000)")
        coming = asyncio.ensure_future(next_of(deliveries))
        while not coming.done():
            # Channels look at the clock once a minute; this is how they are told to.
            place.server.eval("[Channel ! tick || Channel <- rabbit_channel:list_local()]")
            await asyncio.sleep(0.05)
        again = await coming
        assert again.redelivered
        await broker.finish(old)
        await broker.finish(again)
        await place.settles(EXECUTION, 0)
        assert "delivery acknowledgement" in caplog.text


async def test_publishing_waits_while_the_broker_is_blocked(broker: RabbitBroker, place: Place) -> None:
    await broker.publish([task("a"), task("b")])
    async with taking(broker.deliveries(1)) as deliveries:
        first = await next_of(deliveries)
        place.server.block()
        try:
            await asyncio.wait({asyncio.ensure_future(broker.publish([task("x")]))}, timeout=0.3)
            publishing = asyncio.ensure_future(broker.publish([task("c")]))
            finishing = asyncio.ensure_future(broker.finish(first))
            broker.emit([status("s")])
            # Acknowledgements go through all the same.
            assert (await next_of(deliveries)).task.current_node == "b"
            assert not publishing.done()
        finally:
            place.server.block(False)
        await asyncio.wait_for(asyncio.gather(publishing, finishing), 10)
        await place.settles(STATUS, 1)


async def test_a_blocked_broker_does_not_keep_a_worker_from_ending(place: Place) -> None:
    try:
        async with open_rabbitmq(place.url) as broker:
            await broker.publish([task("a"), task("b"), task("c")])
            async with taking(broker.deliveries(2)) as deliveries:
                await next_of(deliveries)
                place.server.block()
                # The broker stops reading from a connection when it has published once more.
                await asyncio.wait({asyncio.ensure_future(broker.publish([task("d")]))}, timeout=0.3)
                waiting = asyncio.ensure_future(broker.publish([task("e")]))
        with pytest.raises(InfrastructureError, match="closed"):
            await waiting
    finally:
        place.server.block(False)
    # What was said to have failed may have got through all the same: at least once.
    while place.depth(EXECUTION) not in ((4, 0), (5, 0)):
        await asyncio.sleep(0.05)


async def test_a_deleted_queue_is_declared_again(broker: RabbitBroker, place: Place) -> None:
    async with taking(broker.deliveries(5)) as deliveries:
        waiting = asyncio.ensure_future(next_of(deliveries, 20))
        await asyncio.sleep(0.1)
        place.delete(EXECUTION)
        while not waiting.done():
            try:
                await broker.publish([task("a")])
            except InfrastructureError:
                await asyncio.sleep(0.05)
            else:
                break
        assert (await waiting).task.current_node == "a"


async def test_a_broker_that_falls_silent_is_given_up(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    async with (
        open_rabbitmq(f"{place.url}?heartbeat=1") as broker,
        taking(broker.deliveries(1)) as deliveries,
    ):
        place.server.freeze()
        try:
            publishing = asyncio.ensure_future(broker.publish([task("a")]))
            while "fallen silent" not in caplog.text:
                await asyncio.sleep(0.05)
            assert not publishing.done()
        finally:
            place.server.thaw()
        await asyncio.wait_for(publishing, 10)
        assert (await next_of(deliveries)).task.current_node == "a"


async def test_a_quiet_connection_stays_open(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    async with open_rabbitmq(f"{place.url}?heartbeat=1") as broker:
        await asyncio.sleep(3.5)
        await broker.publish([task("a")])
    assert caplog.text == ""


async def test_statuses_wait_for_the_broker_within_limits(broker: RabbitBroker, place: Place) -> None:
    place.server.disconnect_all()
    await asyncio.sleep(0)
    broker.emit([status(f"n{i}") for i in range(20)])
    await asyncio.sleep(0.5)
    broker.emit([status("last")])
    async with connected(place.url) as (_, reader):
        await reader.consume(STATUS)
        while b"last" not in (await reader.next()).body:
            pass


async def test_kill_minus_nine_of_the_broker_loses_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """1,000 executions of three steps; the broker is killed twice on the way."""
    caplog.set_level(logging.ERROR)
    with RabbitMQ() as server:
        async with open_rabbitmq(server.url()) as broker:
            ended: set[str] = set()
            enough = asyncio.Event()

            async def work() -> None:
                async for delivery in broker.deliveries(100):
                    background.append(asyncio.create_task(step(delivery)))

            async def step(delivery: Delivery) -> None:
                depth = int(delivery.task.path)
                execution = delivery.task.execution_id
                following = [task("n", path=str(depth + 1), execution_id=execution)] if depth < 3 else []
                await broker.finish(delivery, following)
                if not following:
                    ended.add(execution)
                    if len(ended) == 1000:
                        enough.set()

            async def start() -> None:
                tasks = [task("n", path="1", execution_id=f"e{i}") for i in range(1000)]
                await asyncio.gather(*(broker.publish(tasks[i : i + 10]) for i in range(0, 1000, 10)))

            background = [asyncio.create_task(work()), asyncio.create_task(start())]
            for goal in (100, 500):
                while len(ended) < goal:
                    await asyncio.sleep(0.01)
                server.kill()
                await asyncio.to_thread(server.start)
            await asyncio.wait_for(enough.wait(), 60)
            assert ended == {f"e{i}" for i in range(1000)}
            background[0].cancel()
            await asyncio.gather(*background, return_exceptions=True)
