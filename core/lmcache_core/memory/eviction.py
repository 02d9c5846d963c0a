"""What tier 0 holds, and what goes first when room is needed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence

from lmcache_core.memory.arena import Block

_INDEX_ALONE = 1


class LRUIndex:
    """Blocks by chunk digest, least recently used first. Not safe by itself: its owner locks.

    The chunks of one request are ordered from the last to the first, so that the tail of a prompt
    is evicted before its head: a prefix without its head is worth nothing.
    """

    def __init__(self) -> None:
        self._blocks: OrderedDict[bytes, Block] = OrderedDict()

    def __len__(self) -> int:
        return len(self._blocks)

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._blocks

    def get(self, digest: bytes) -> Block | None:
        """Give the block without touching its place."""
        return self._blocks.get(digest)

    def put(self, digest: bytes, block: Block) -> None:
        """Add as the most recently used; the digest must be new."""
        self._blocks[digest] = block

    def pop(self, digest: bytes) -> Block | None:
        """Take a block out; None if it is not there."""
        return self._blocks.pop(digest, None)

    def leading_run(self, digests: Sequence[bytes]) -> list[Block]:
        """Give the blocks of the leading digests that are all here."""
        found: list[Block] = []
        get = self._blocks.get
        for digest in digests:
            block = get(digest)
            if block is None:
                break
            found.append(block)
        return found

    def touch(self, digests: Sequence[bytes]) -> None:
        """Mark present digests as just used, the first of them last of all to go."""
        move = self._blocks.move_to_end
        for digest in reversed(digests):
            move(digest)

    def victims(self) -> Iterator[bytes]:
        """Give the digests that nobody leases, in the order they should go. Do not change the index meanwhile."""
        for digest, block in self._blocks.items():
            if block.references == _INDEX_ALONE:
                yield digest

    def drain(self) -> list[Block]:
        """Take everything out."""
        blocks = list(self._blocks.values())
        self._blocks.clear()
        return blocks
