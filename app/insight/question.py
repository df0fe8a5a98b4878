"""What can be asked of the copy of the ledger (`app.process.copy`): a value that knows how to find its answer.

A question is answered on a state that is thrown away afterwards: it may put and drop objects and run cycles on it.
"""

from collections.abc import Iterator
from typing import Protocol, TypeVar

from app.engine import State

PartT = TypeVar("PartT", covariant=True)


class Question(Protocol[PartT]):
    """A question; it travels to another process, and so do the parts of its answer: both can be pickled."""

    def answer(self, state: State) -> Iterator[PartT]:
        """The answer, in small parts. May change the state. Raises InvalidValue for a question that makes no sense."""
