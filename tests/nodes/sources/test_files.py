"""Lines, JSON Lines and CSV, from files below the directory of artifacts."""

from __future__ import annotations

import csv
import json
import os
import tracemalloc
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rune.core.errors import NodeError
from rune.core.sources import Csv, Descriptor
from rune.nodes._artifacts import Artifacts
from rune.nodes._sources import read_portion
from rune.nodes._sources.files import LONGEST, read_file
from rune.nodes._threads import Threads
from tests.nodes.fakes import FakeContext
from tests.nodes.sources.reading import items, portions

Written = Callable[[bytes | str], str]


@pytest.fixture
async def context(tmp_path: Path) -> AsyncIterator[FakeContext]:
    threads = Threads()
    yield FakeContext(services={"artifacts": Artifacts(tmp_path), "threads": threads})
    await threads.close()


@pytest.fixture
def written(tmp_path: Path) -> Written:
    """Write the file."""

    def write(content: bytes | str) -> str:
        data = content.encode() if isinstance(content, str) else content
        (tmp_path / "data.txt").write_bytes(data)
        return "data.txt"

    return write


async def refused(context: FakeContext, source: dict[str, Any]) -> NodeError:
    with pytest.raises(NodeError) as raised:
        await items(context, source)
    return raised.value


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"one", ["one"]),
        (b"one\n", ["one"]),
        (b"one\n\ntwo", ["one", "", "two"]),
        (b"one\r\ntwo\r\n", ["one", "two"]),
        (b"\xef\xbb\xbfone\ntwo", ["one", "two"]),
        (b"\xef\xbb\xbf", []),
        ("müde\n☃\n".encode(), ["müde", "☃"]),
        (b" one \n", [" one "]),
    ],
)
@pytest.mark.parametrize("wanted", [1, 2, 1000])
async def test_lines(
    context: FakeContext, written: Written, content: bytes, lines: list[str], wanted: int
) -> None:
    assert await items(context, {"lines": written(content)}, wanted) == lines


@pytest.mark.parametrize("wanted", [1, 2, 1000])
async def test_json_lines_leave_out_blank_ones(context: FakeContext, written: Written, wanted: int) -> None:
    name = written('\n{"a": 1}\r\n\n  \n[2]\nnull\n"x"')
    assert await items(context, {"jsonl": name}, wanted) == [{"a": 1}, [2], None, "x"]


@pytest.mark.parametrize("wanted", [1, 2, 1000])
async def test_csv_with_a_header_gives_objects(context: FakeContext, written: Written, wanted: int) -> None:
    name = written('\ufeffid,text\r\n1,"two\r\nlines, ""quoted"""\r\n\r\n2,\r\n3,end')
    assert await items(context, {"csv": name}, wanted) == [
        {"id": "1", "text": 'two\r\nlines, "quoted"'},
        {"id": "2", "text": ""},
        {"id": "3", "text": "end"},
    ]


async def test_csv_without_a_header_gives_lists(context: FakeContext, written: Written) -> None:
    source = {"csv": {"file": written("1;a\n2;b;c\n"), "header": False, "delimiter": ";"}}
    assert await items(context, source, 1) == [["1", "a"], ["2", "b", "c"]]


async def test_the_names_of_columns_count_with_every_record(context: FakeContext, written: Written) -> None:
    names = [f"{n}".ljust(1000, "x") for n in range(100)]
    rows = [[f"{n}"] * 100 for n in range(25)]
    name = written("\n".join(",".join(row) for row in [names, *rows]))
    found = await portions(context, {"csv": name})
    assert list(map(len, found)) == [10, 11, 4], "about a megabyte each; the first has the header, too"
    assert [row for portion in found for row in portion] == [
        dict(zip(names, row, strict=True)) for row in rows
    ]


@pytest.mark.parametrize("content", ["", "id,text\n"])
async def test_csv_without_records(context: FakeContext, written: Written, content: str) -> None:
    assert await portions(context, {"csv": written(content)}) == [[]]


_texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)


@given(rows=st.lists(st.lists(_texts, min_size=2, max_size=2), max_size=12), wanted=st.integers(1, 5))
def test_csv_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]], wanted: int
) -> None:
    directory = tmp_path_factory.mktemp("csv")
    with (directory / "f.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows(rows)
    source = Descriptor(csv=Csv(file="f.csv", header=False))
    found: list[Any] = []
    position: Any = None
    while True:
        portion = read_file(Artifacts(directory), source, position, wanted)
        found += portion.items
        position = portion.position
        if position is None:
            break
    assert found == rows


@pytest.mark.parametrize(
    ("kind", "content", "line", "said"),
    [
        ("jsonl", '{"a": 1}\n\n{"a": \n', 3, "not JSON"),
        ("jsonl", "[" * 100_000 + "\n", 1, "not JSON"),
        ("lines", b"fine\n\xff\xfe\n", 2, "UTF-8"),
        ("lines", b"fine\n" + b"x" * (LONGEST + 1), 2, "longer than"),
        ("csv", 'a,b\n1,2\n"x\ny",2,3\n', 3, "3 fields"),
        ("csv", 'a,b\n1,2\n1,"never ends\n', 3, "not CSV"),
        ("csv", "a,b\n1,2\n" + 'x,"' + "long\n" * 100_000, 3, "not CSV"),
        ("csv", "a,b\n1,2\n" + ('"' + "x" * 99_998 + '\n",') * 84 + "3\n", 86, "longer than"),
        ("csv", "a,b,a\n", 1, "two columns"),
    ],
)
async def test_a_broken_line_is_named(
    context: FakeContext, written: Written, kind: str, content: str | bytes, line: int, said: str
) -> None:
    error = await refused(context, {kind: written(content)})
    assert (error.code, error.details) == ("SOURCE_LINE", {"file": "data.txt", "line": line})
    assert f"line {line} of 'data.txt'" in error.message
    assert said in error.message
    assert not error.retryable


async def test_what_is_added_later_is_not_part_of_it(context: FakeContext, tmp_path: Path) -> None:
    file = tmp_path / "grows"
    file.write_text("1\n2\n")
    source = {"jsonl": "grows"}
    first = await read_portion(source, context, None, 1)
    with file.open("a") as more:
        more.write("3\n")
    second = await read_portion(source, context, first.position, 10)
    assert (first.items, second.items, second.position) == ([1], [2], None)


@pytest.mark.parametrize("content", ["1\n2\n", "1,2,3,4,5,6,7,8\n"])
async def test_a_file_that_changes_is_refused(context: FakeContext, tmp_path: Path, content: str) -> None:
    """One that became shorter, and one that has no line end where we were."""
    (tmp_path / "f").write_text("1\n2\n3\n4\n5\n6\n")
    first = await read_portion({"lines": "f"}, context, None, 2)
    (tmp_path / "f").write_text(content)
    with pytest.raises(NodeError, match="was changed while it was read"):
        await read_portion({"lines": "f"}, context, first.position, 2)


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "sub/../../secret", "link", "a\0b", "."])
async def test_files_elsewhere_are_refused(tmp_path: Path, name: str) -> None:
    home = tmp_path / "artifacts"
    (home / "sub").mkdir(parents=True)
    (tmp_path / "secret").write_text("1\n")
    (home / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(NodeError) as raised:
        Artifacts(home).open(name)
    assert raised.value.code == "ARTIFACT_KEY"


async def test_what_is_no_file_is_refused(context: FakeContext, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    assert "is not a file" in (await refused(context, {"lines": "folder"})).message
    assert "is not a file" in (await refused(context, {"lines": "pipe"})).message
    error = await refused(context, {"lines": "missing"})
    assert (error.code, error.retryable) == ("ARTIFACT_MISSING", False)


def test_files_beside_a_workflow_are_for_whoever_may(tmp_path: Path) -> None:
    home, beside = tmp_path / "artifacts", tmp_path / "workflow"
    beside.mkdir()
    (beside / "f").write_text("beside")
    with pytest.raises(NodeError):
        Artifacts(home).open("f")
    with Artifacts(home, beside).open("f") as file:
        assert file.read() == b"beside"
    home.mkdir()
    (home / "f").write_text("home")
    with Artifacts(home, beside).open("f") as file:
        assert file.read() == b"home"
    with pytest.raises(NodeError, match="leads out"):
        Artifacts(home, beside).open("../secret")


async def test_a_portion_is_bounded_in_bytes(context: FakeContext, tmp_path: Path) -> None:
    line = json.dumps("x" * 100_000) + "\n"
    with (tmp_path / "large").open("w") as file:
        file.writelines(line for _ in range(200))
    tracemalloc.start()
    try:
        position: Any = None
        count = 0
        while True:
            portion = await read_portion({"jsonl": "large"}, context, position, 4096)
            count += len(portion.items)
            position = portion.position
            if position is None:
                break
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == 200
    assert peak < 8 * 1024 * 1024
