"""Node types of your own: a function and a class, used by greet.json."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from msgspec import Meta

import rune


@rune.node("greet.hello", pure=True)
def hello(
    name: Annotated[str, Meta(description="Whom to greet.")],
    language: Annotated[Literal["en", "de", "fr"], Meta(description="In which language.")] = "en",
) -> dict[str, str]:
    """Greet somebody."""
    word = {"en": "Hello", "de": "Hallo", "fr": "Bonjour"}[language]
    return {"text": f"{word}, {name}!"}


class Mood(rune.NodeType, kw_only=True):
    """Go one way with the cheerful, another with the rest."""

    name: ClassVar = "greet.mood"
    ports: ClassVar = ("cheerful", "other")
    pure: ClassVar = True
    effects: ClassVar = False

    text: Annotated[str, Meta(description="What was said.")]

    async def run(self, context: rune.StepContext) -> rune.Outcome:
        if not self.text:
            raise rune.NodeError("nothing was said", "GREET_SILENCE")
        cheerful = self.text.endswith("!")
        return rune.Done({"cheerful": cheerful}, port="cheerful" if cheerful else "other")
