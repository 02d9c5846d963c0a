"""Tells systemd how a service fares: sd_notify(3) is one datagram to the socket that it names."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping

log = logging.getLogger(__name__)

_VARIABLE = "NOTIFY_SOCKET"


def notify(*states: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Tell the service manager, where there is one that listens.

    Args:
        states: Such as ``READY=1`` or ``STATUS=...``; a line each.
        environ: Where ``NOTIFY_SOCKET`` is looked for.

    Returns:
        Whether it was told. A failure is one warning: nothing depends on it here.
    """
    address = environ.get(_VARIABLE, "")
    if not address.startswith(("/", "@")):
        return False
    if address.startswith("@"):
        address = "\0" + address[1:]
    message = "\n".join(state.replace("\n", " ") for state in states).encode()
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.connect(address)
            sender.send(message)
    except OSError as error:
        log.warning("%s: the service manager could not be told %s: %s", _VARIABLE, states[0], error.strerror or error)
        return False
    return True
