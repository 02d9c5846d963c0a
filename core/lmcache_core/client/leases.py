"""Blocks lent by the server, given back exactly once whatever happens to whoever had them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType

from lmcache_core.client.failures import ServerCallError, ServerConfusedError
from lmcache_core.client.session import Session
from lmcache_core.wire.messages import Abandon, Message, Return


class _Lease:
    """One lease of a session."""

    def __init__(self, session: Session, lease: int) -> None:
        self.session = session
        self.lease = lease
        self._is_out = True
        session.leases.enter()

    def settle(self, message: Message | None) -> bool:
        """Tell the server that the lease is over, if nobody has yet; False if somebody has."""
        was_out, self._is_out = self._is_out, False
        if was_out:
            try:
                if message is not None and self.lease:
                    self.session.pool.tell(message)
            except ServerCallError:  # a message of a few bytes is never refused; the lifeline tells the rest
                pass
            finally:
                self.session.leases.leave()
        return was_out


class FillLease(_Lease):
    """Blocks to fill: the handle of a `Reservation`. One thread at a time."""

    def __del__(self) -> None:
        self.abandon()

    def abandon(self) -> None:
        """Give the blocks back unfilled; nobody sees them."""
        self.settle(Abandon(self.session.number, self.lease))

    def filled(self) -> None:
        """Settle it without a message: the commit said it."""
        self.settle(None)


class ReadLease(_Lease):
    """Blocks to read, as `FetchedChunks`. One thread at a time.

    Args:
        session: That lent them.
        lease: Its number; 0 where there is no block.
        offsets: Of the blocks.

    Attributes:
        delivered_chunks: Used so far, set by the caller.
    """

    def __init__(self, session: Session, lease: int, offsets: tuple[int, ...]) -> None:
        super().__init__(session, lease)
        self.delivered_chunks = 0
        self._payloads: Sequence[memoryview] = ()
        try:
            self._payloads = session.views(offsets)
        except ServerConfusedError:
            self.close()
            raise

    def __iter__(self) -> Iterator[memoryview]:
        """Iterate over payload views; they are valid until the context ends."""
        return iter(self._payloads)

    def __enter__(self) -> ReadLease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Give the blocks back."""
        self._payloads = ()
        self.settle(Return(self.session.number, self.lease, self.delivered_chunks))
