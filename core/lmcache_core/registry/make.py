"""Has a plugin make what it declared: a store, checks, a policy. It may raise or hang, and harms nobody by it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from lmcache_core.errors import PluginError
from lmcache_core.registry.hooks import describe
from lmcache_core.registry.record import Declared
from lmcache_core.registry.watched import OverdueError, WatchedCall

log = logging.getLogger(__name__)

T = TypeVar("T")

_WAY_OUT = "mend what it waits for, or raise plugins.load_timeout_secs"


def make(
    declared: Declared[object],
    what: str,
    call: Callable[[], T],
    *,
    limit_s: float,
    close: Callable[[T], None] | None = None,
    passes: tuple[type[Exception], ...] = (),
) -> T:
    """Call what makes something of a plugin's.

    A third party's is called on a thread of its own, and left behind when it takes longer than so many seconds.

    Args:
        declared: What the plugin declared.
        what: As error texts call it, such as ``AcmeCheck.create``.
        call: Makes it.
        limit_s: Longest that anybody waits for it.
        close: Lets go of what is made too late; called on the thread of the call.
        passes: Errors that are the user's, raised as they are.

    Raises:
        PluginError: It raised anything else, or is still running; says where it stands. Always this plugin's.
        KeyboardInterrupt: The user's.
    """
    others: tuple[type[BaseException], ...] = (*passes, KeyboardInterrupt)
    try:
        if declared.builtin:
            return call()
        return _watch(declared, what, call, limit_s, close)
    except others:
        raise
    except OverdueError as error:
        raise _blame(declared, f"{what} is still running {error.since}; {_WAY_OUT}") from error
    except BaseException as error:  # SystemExit included: a plugin must not end its host
        if isinstance(error, PluginError) and error.plugin == declared.plugin:
            raise
        raise _blame(declared, f"{what} raised {describe(error)}") from error


def _watch(
    declared: Declared[object], what: str, call: Callable[[], T], limit_s: float, close: Callable[[T], None] | None
) -> T:
    target = f"{declared.plugin}: {what}"
    if WatchedCall.find_given_up(target) is not None:
        raise _blame(declared, f"{what} is still running since an earlier start in this process; {_WAY_OUT}")
    watched: WatchedCall[T] = WatchedCall(call, target=target, on_late=partial(_tell_late, declared, what, close))
    return watched.wait(limit_s)


def _tell_late(
    declared: Declared[object], what: str, close: Callable[[T], None] | None, outcome: Callable[[], T]
) -> None:
    try:
        made = outcome()
        if close is not None:
            close(made)
    except BaseException as error:  # a plugin's thread, to which nobody listens any more
        late = f"{what} has ended after all, too late, with {describe(error)}"
        log.warning("%s", _blame(declared, late), exc_info=error)
        return
    left = "what it made is closed again" if close is not None else "what it made is not used"
    log.warning("%s", _blame(declared, f"{what} has returned after all, too late, so {left}; {_WAY_OUT}"))


def _blame(declared: Declared[object], reason: str) -> PluginError:
    return PluginError(plugin=declared.plugin, origin=declared.origin, reason=reason)
