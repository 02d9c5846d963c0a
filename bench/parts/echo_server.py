"""The yardstick: a bare ZeroMQ ROUTER that sends back what it got. Run with the address to listen at.

It ends when its standard input does.
"""

from __future__ import annotations

import os
import sys
import threading

import zmq


def main() -> None:
    """Echo."""
    router = zmq.Context().socket(zmq.ROUTER)
    router.bind(sys.argv[1])
    threading.Thread(target=end_with_input, daemon=True).start()
    print("ready", flush=True)
    while True:
        router.send_multipart(router.recv_multipart())


def end_with_input() -> None:
    """Wait for the end of the input, then end the process."""
    while os.read(0, 4096):
        pass
    os._exit(0)


if __name__ == "__main__":
    main()
