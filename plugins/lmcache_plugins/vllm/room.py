"""How many loads of a hybrid model may be under way, so that all of them can be computed."""

from __future__ import annotations


class Room:
    """Blocks that requests may come to need whose loads are under way. One thread.

    vLLM lets a load begin where its blocks are free, and reckons what the loads before it will still need. Of a
    windowed group it counts places whose blocks were never given as given. So too many may begin: then each
    holds what the others need, none of them runs, and vLLM waits for ever.

    Args:
        blocks: In vLLM's pool; one of them is never given.
        block_tokens: Tokens in a block.
        groups: Of layers, each of which takes blocks of its own.
    """

    def __init__(self, *, blocks: int, block_tokens: int, groups: int) -> None:
        self._blocks = blocks - 1
        self._block_tokens = block_tokens
        self._groups = groups
        self._needs: dict[str, int] = {}

    def has(self, tokens: int) -> bool:
        """Whether a request of so many tokens can be computed beside all that wait; always where none does."""
        return not self._needs or sum(self._needs.values()) + self._need(tokens) <= self._blocks

    def take(self, request_id: str, tokens: int) -> None:
        """Count a request whose load has been ordered, until it `leave`s."""
        self._needs[request_id] = self._need(tokens)

    def leave(self, request_id: str) -> None:
        """Count it no longer: it runs, or is gone."""
        self._needs.pop(request_id, None)

    def _need(self, tokens: int) -> int:
        """Give all blocks of a request and its next token, even those that windows let go of."""
        return self._groups * (-(-(tokens + 1) // self._block_tokens) + 1)
