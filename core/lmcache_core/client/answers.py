"""What an answer means, and whether it can be believed."""

from __future__ import annotations

from typing import TypeVar

from lmcache_core.client.failures import ServerConfusedError, ServerRefusedError
from lmcache_core.storage.run import Found
from lmcache_core.wire.messages import Answer, Message, Refused, Reserved
from lmcache_core.wire.messages import Found as FoundAnswer

AnswerT = TypeVar("AnswerT", bound=Message)


def unexpected(answer: Answer) -> ServerRefusedError | ServerConfusedError:
    """Name the error that an answer of another kind than the expected one means."""
    if isinstance(answer, Refused):
        return ServerRefusedError(answer.code, answer.message, answer.boot_id)
    return ServerConfusedError(f"the cache server answered with a {type(answer).__name__}")


def expect(kind: type[AnswerT], answer: Answer) -> AnswerT:
    """Give the answer back if it is of this kind; else raise what it means."""
    if isinstance(answer, kind):
        return answer
    raise unexpected(answer)


def read_found(answer: Answer, most: int) -> Found:
    """Read what a lookup found, never more chunks than were asked for. Raises a `ServerCallError`."""
    found = expect(FoundAnswer, answer)
    chunks = min(found.chunks, most)
    return Found(min(found.l1_chunks, chunks), chunks)


def check_places(reserved: Reserved, chunks: int) -> None:
    """Refuse blocks for other chunks than were asked for. Raises ServerConfusedError."""
    places = reserved.places
    if len(places) != len(reserved.offsets) or any(not 0 <= place < chunks for place in places):
        raise ServerConfusedError("the cache server reserved blocks for chunks that were not asked for")
