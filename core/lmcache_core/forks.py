"""Being told in a forked child that what was copied along is another process's."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def tell_after_fork(owner: T, disown: Callable[[T], None]) -> None:
    """Call `disown` with an object in every child forked from now on, for as long as the object lives.

    It runs in the child's only thread. Locks that other threads held at the fork are held there for ever, so that it
    may take none of the object's.
    """
    reference = weakref.ref(owner)

    def forked() -> None:
        found = reference()
        if found is not None:
            disown(found)

    os.register_at_fork(after_in_child=forked)
