"""Questions that are asked one by one and answered together."""

from __future__ import annotations

import asyncio

from rune.core.errors import ConflictError, InfrastructureError
from rune.history.grouping import Grouped


async def test_those_who_come_while_others_are_served_share_a_turn() -> None:
    turns: list[list[int]] = []
    entered, served = asyncio.Event(), asyncio.Event()

    async def work(questions: list[int]) -> list[int]:
        turns.append(questions)
        entered.set()
        if len(turns) == 1:
            await served.wait()
        return [question * 2 for question in questions]

    grouped = Grouped(work, most=3)
    first = asyncio.ensure_future(grouped.ask(1))
    await entered.wait()
    others = [asyncio.ensure_future(grouped.ask(n)) for n in range(2, 7)]
    await asyncio.sleep(0)
    served.set()
    assert await asyncio.gather(first, *others) == [2, 4, 6, 8, 10, 12]
    assert turns == [[1], [2, 3, 4], [5, 6]]


async def test_what_is_wrong_with_one_question_is_told_to_who_asked_it() -> None:
    async def work(questions: list[int]) -> list[int]:
        if 3 in questions:
            raise ConflictError("not three")
        return questions

    grouped = Grouped(work)
    answers = await asyncio.gather(*(grouped.ask(n) for n in range(5)), return_exceptions=True)
    assert [answer for answer in answers if not isinstance(answer, ConflictError)] == [0, 1, 2, 4]
    assert isinstance(answers[3], ConflictError)


async def test_an_outage_is_told_to_all_without_asking_again() -> None:
    asked = 0

    async def work(questions: list[int]) -> list[int]:
        nonlocal asked
        asked += 1
        raise InfrastructureError("away")

    grouped = Grouped(work)
    answers = await asyncio.gather(*(grouped.ask(n) for n in range(5)), return_exceptions=True)
    assert all(isinstance(answer, InfrastructureError) for answer in answers)
    assert asked == 1


async def test_whoever_leaves_keeps_nobody_from_their_answer() -> None:
    entered, served = asyncio.Event(), asyncio.Event()

    async def work(questions: list[int]) -> list[int]:
        entered.set()
        await served.wait()
        return questions

    grouped = Grouped(work)
    leaving = asyncio.ensure_future(grouped.ask(1))
    staying = asyncio.ensure_future(grouped.ask(2))
    await entered.wait()
    leaving.cancel()
    served.set()
    assert await staying == 2


async def test_a_bug_is_told_to_all_who_asked() -> None:
    async def work(questions: list[int]) -> list[int]:
        raise ZeroDivisionError

    grouped = Grouped(work)
    answers = await asyncio.gather(*(grouped.ask(n) for n in range(3)), return_exceptions=True)
    assert [type(answer) for answer in answers] == [ZeroDivisionError] * 3
