"""Joins LMCache where it is installed; light, as vLLM runs `register` in every one of its processes."""

from __future__ import annotations

import logging

from lmcache_core import __version__
from lmcache_plugins.upstream.join import is_joined, join, part
from lmcache_plugins.upstream.release import find_release, objection

log = logging.getLogger(__name__)


def register() -> None:
    """Join LMCache where it is installed, and do nothing where it is not; never raises.

    Entry point of group ``vllm.general_plugins``. LMCache is not imported: what is joined takes effect
    when LMCache itself is.
    """
    try:
        if find_release() is not None:
            install()
    except Exception:  # the border of vLLM's start-up: a bridge that is broken must not stop an engine
        log.exception("lmcache-core could not join lmcache; both go on without each other")


def install() -> bool:
    """Let LMCache find this project's health checks and stores; say in one log line what was done.

    Replaces nothing of LMCache: the search paths of two of its packages get one more folder, so that its
    own scans find one more module in each. May be called before or after LMCache is imported, any number
    of times, in any process. Health monitors and remote backends that exist already stay as they are.

    Returns:
        Whether LMCache is joined now.
    """
    release = find_release()
    if release is None:
        log.warning("lmcache is not installed, so there is nothing to join; run: pip install lmcache")
        return False
    reason = objection(release)
    if reason:
        log.warning("lmcache-core %s leaves lmcache %s as it is: %s", __version__, release.version, reason)
        return False
    if is_joined():
        return True
    join()
    log.info(
        "lmcache-core %s joined lmcache %s: its health monitor runs the plugins' checks, "
        "and its remote_url takes lmcore+<address of a store>",
        __version__,
        release.version,
    )
    return True


def uninstall() -> bool:
    """Undo `install`; health monitors and remote backends that exist already stay as they are.

    Returns:
        Whether there was anything to undo.
    """
    if not is_joined():
        return False
    part()
    log.info("lmcache-core %s left lmcache", __version__)
    return True
