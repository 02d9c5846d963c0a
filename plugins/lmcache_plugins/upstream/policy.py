"""Fallback policies in LMCache's words: it has two."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

RECOMPUTE: Final = "recompute"
LOCAL_CPU: Final = "local_cpu"


def translate(ladder: Sequence[str], backend: str | None, backends: Collection[str]) -> tuple[str, str]:
    """Choose the policy that LMCache shall use for a check.

    The first rung that LMCache knows and that can work; else ``recompute``, which is always safe.

    Args:
        ladder: The check's policies, the first to use first.
        backend: The backend that the check speaks for, or None.
        backends: Names of LMCache's backends.

    Returns:
        ``recompute`` or ``local_cpu``; and why it is not the first rung, ``""`` where it is.
    """
    objections: list[str] = []
    for rung in ladder:
        if rung == RECOMPUTE:
            return RECOMPUTE, "; ".join(objections)
        if rung != LOCAL_CPU:
            objections.append(f"lmcache has no policy {rung!r}")
        elif backend in backends:
            return LOCAL_CPU, "; ".join(objections)
        else:
            objections.append(f"{LOCAL_CPU!r} needs a backend to leave out, and lmcache has none called {backend!r}")
    return RECOMPUTE, "; ".join(objections)
