"""Where items come from when nobody writes them down: descriptions, fixed before the first item is read."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

__all__ = ["Csv", "Descriptor", "Pages", "Query", "span_of"]

Text = Annotated[str, Meta(min_length=1)]
Span = int | Annotated[list[int], Meta(min_length=1, max_length=3)]


class Csv(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The records of a CSV file: objects by column, or lists where no line names the columns."""

    file: Annotated[str, Meta(description="Its name, below the directory of artifacts.", min_length=1)]
    header: Annotated[bool, Meta(description="The first record names the columns.")] = True
    delimiter: Annotated[
        str, Meta(description="What stands between two fields.", min_length=1, max_length=1)
    ] = ","

    def __post_init__(self) -> None:
        if self.delimiter in '"\r\n':
            raise ValueError("a quote or a line break cannot be the `delimiter`")


class Query(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The rows of a query, in the order of a column whose values are unique and never null."""

    query: Annotated[str, Meta(description="One SELECT, without ORDER BY and LIMIT.", min_length=1)]
    key: Annotated[
        str, Meta(description="The column that orders the rows: unique, never null.", min_length=1)
    ]
    params: Annotated[list[Any] | None, Meta(description="The values of `$1`, `$2`, …")] = None
    engine: Annotated[Literal["postgres", "duckdb"], Meta(description="Which database.")] = "postgres"
    database: Annotated[str, Meta(description="The file of DuckDB.")] = ""
    auth: Annotated[
        str | None, Meta(description="The credential with the address; without it, the node's own.")
    ] = None
    timeout: Annotated[float, Meta(description="Seconds a portion may take.", gt=0)] = 60


class Pages(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The items of a web service that answers page by page."""

    url: Annotated[str, Meta(description="Address of the first page.", min_length=1)]
    items: Annotated[
        str,
        Meta(description="Where in an answer the list is, such as `data.users`; empty: the answer is it."),
    ] = ""
    page: Annotated[
        str, Meta(description="The query parameter that takes the number of a page; it ends at an empty one.")
    ] = ""
    first: Annotated[int, Meta(description="The number of the first page.")] = 1
    next: Annotated[
        str, Meta(description="Where in an answer the next page's URL or cursor is; it ends where none is.")
    ] = ""
    cursor: Annotated[str, Meta(description="The query parameter that takes the cursor found at `next`.")] = (
        ""
    )
    params: Annotated[dict[str, Any] | None, Meta(description="Query parameters.")] = None
    headers: Annotated[dict[str, Any] | None, Meta(description="Request headers.")] = None
    auth: Annotated[
        str | None, Meta(description="The credential that signs; without it, the node's own.")
    ] = None
    timeout: Annotated[float, Meta(description="Seconds for one page.", gt=0)] = 30

    def __post_init__(self) -> None:
        if bool(self.page) == bool(self.next):
            raise ValueError(
                "pages are found by `page` (a parameter that takes a number) or by `next` (a place in the "
                "answer): give one of them"
            )
        if self.cursor and not self.next:
            raise ValueError("`cursor` is for what is found at `next`")


class Descriptor(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One source, by the name of its kind."""

    range: Annotated[
        Span | None,
        Meta(description="`n`, `[stop]`, `[start, stop]` or `[start, stop, step]`, without the stop itself."),
    ] = None
    lines: Annotated[Text | None, Meta(description="The lines of a text file below the artifacts.")] = None
    jsonl: Annotated[Text | None, Meta(description="A JSON value a line of a file below the artifacts.")] = (
        None
    )
    csv: Annotated[Text | Csv | None, Meta(description="The records of a CSV file below the artifacts.")] = (
        None
    )
    sql: Annotated[Query | None, Meta(description="The rows of a query.")] = None
    pages: Annotated[Pages | None, Meta(description="The pages of a web service.")] = None

    def __post_init__(self) -> None:
        given = [name for name in self.__struct_fields__ if getattr(self, name) is not None]
        if len(given) != 1:
            kinds = ", ".join(f"`{name}`" for name in self.__struct_fields__)
            raise ValueError(f"a source has exactly one of {kinds}, not {len(given)} of them")
        span_of(self)

    @property
    def lazy(self) -> bool:
        """Whether it has to be read to know how many items there are."""
        return self.range is None

    def fixed(self) -> dict[str, Any]:
        """The description as it travels with a fan-out."""
        made: dict[str, Any] = msgspec.to_builtins(self)
        return made


def span_of(descriptor: Descriptor) -> range | None:
    """The numbers of a range; None of what has to be read."""
    given = descriptor.range
    if given is None:
        return None
    bounds = given if isinstance(given, list) else [given]
    if bounds[2:] == [0]:
        raise ValueError("the step of a `range` must not be zero")
    return range(*bounds)
