"""Which chunks are on the disk, least recently used first."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """One chunk's file. Compared by identity: a chunk that was stored anew is another entry.

    Attributes:
        namespace: `KeyNamespace.name`.
        digest: 32 bytes.
        length_bytes: Of the file.
    """

    namespace: str
    digest: bytes
    length_bytes: int


class ChunkIndex:
    """Least-recently-used order and the exact sum of bytes. Not thread-safe; its owner locks."""

    def __init__(self) -> None:
        self._entries: OrderedDict[bytes, Entry] = OrderedDict()
        self.used_bytes = 0
        """Sum of all entries."""

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, digest: object) -> bool:
        return digest in self._entries

    def get(self, digest: bytes) -> Entry | None:
        """Give an entry and leave the order as it is."""
        return self._entries.get(digest)

    def touch(self, digest: bytes) -> Entry | None:
        """Give an entry and make it the last to go."""
        entry = self._entries.get(digest)
        if entry is not None:
            self._entries.move_to_end(digest)
        return entry

    def add(self, entry: Entry) -> None:
        """Put in an entry as the last to go; replaces one with its digest."""
        self.remove(entry.digest)
        self._entries[entry.digest] = entry
        self.used_bytes += entry.length_bytes

    def restore(self, entry: Entry) -> None:
        """Put in an entry as the first to go; one with its digest stays as it is."""
        if entry.digest not in self._entries:
            self.add(entry)
            self._entries.move_to_end(entry.digest, last=False)

    def remove(self, digest: bytes) -> Entry | None:
        """Take out an entry."""
        entry = self._entries.pop(digest, None)
        if entry is not None:
            self.used_bytes -= entry.length_bytes
        return entry

    def oldest(self) -> Entry | None:
        """Give the entry that was not used for longest."""
        return next(iter(self._entries.values()), None)

    def clear(self) -> None:
        """Forget all."""
        self._entries.clear()
        self.used_bytes = 0
