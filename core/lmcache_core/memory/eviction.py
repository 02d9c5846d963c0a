"""What tier 0 holds, and what goes first when room is needed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence

from lmcache_core.memory.arena import Block
from lmcache_core.memory.owner import Owner
from lmcache_core.memory.window import FREE, Piece

_INDEX_ALONE = 1


class LRUIndex:
    """Blocks by chunk digest, least recently used first. Not safe by itself: its owner locks.

    The chunks of one request are ordered from the last to the first, so that the tail of a prompt
    is evicted before its head: a prefix without its head is worth nothing.

    There is one order over all chunks, and one of its own for each owner with a quota.
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

    def size_bytes(self, digest: bytes) -> int:
        """What a chunk that is here takes of the arena."""
        return self._blocks[digest].size_bytes

    def put(self, digest: bytes, block: Block) -> None:
        """Add as the most recently used; the digest must be new."""
        self._blocks[digest] = block
        owner = block.account
        if isinstance(owner, Owner):
            owner.chunks += 1
            if owner.order is not None:
                owner.order[digest] = block

    def pop(self, digest: bytes) -> Block | None:
        """Take a block out; None if it is not there."""
        block = self._blocks.pop(digest, None)
        if block is not None and isinstance(block.account, Owner):
            block.account.chunks -= 1
            if block.account.order is not None:
                del block.account.order[digest]
        return block

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
        """Mark present digests of one owner as just used, the first of them last of all to go; pass over others."""
        if not digests:
            return
        move = self._blocks.move_to_end
        for digest in reversed(digests):
            move(digest)
        owner = self._blocks[digests[0]].account
        if isinstance(owner, Owner) and owner.order is not None:
            order = owner.order
            for digest in reversed(digests):
                if digest in order:  # a client may ask for anything
                    order.move_to_end(digest)

    def victims(self, owner: Owner | None = None) -> Iterator[bytes]:
        """Give the digests that nobody leases, in the order they should go. Do not change the index meanwhile.

        Args:
            owner: Whose chunks alone, one with a quota; None for everybody's.
        """
        blocks = self._blocks if owner is None or owner.order is None else owner.order
        for digest, block in blocks.items():
            if block.references == _INDEX_ALONE:
                yield digest

    def pieces(
        self, extents: Sequence[tuple[int, int]], *, oldest_bytes: int, owner: Owner | None = None
    ) -> tuple[list[Piece], bool]:
        """Give free extents and blocks that nobody leases by address, the blocks with their place in the order.

        Args:
            extents: Offset and bytes of each.
            oldest_bytes: How much of blocks, those that should go first.
            owner: Whose blocks alone, one with a quota; None for everybody's.

        Returns:
            Also whether these are all blocks.
        """
        found = [Piece(offset, size_bytes, FREE, b"") for offset, size_bytes in extents]
        for rank, digest in enumerate(self.victims(owner)):
            block = self._blocks[digest]
            found.append(Piece(block.offset, block.size_bytes, rank, digest))
            oldest_bytes -= block.size_bytes
            if oldest_bytes <= 0:
                return sorted(found), False
        return sorted(found), True

    def drain(self) -> list[Block]:
        """Take everything out."""
        return [block for digest in list(self._blocks) if (block := self.pop(digest)) is not None]
