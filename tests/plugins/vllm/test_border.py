from __future__ import annotations

import logging

import pytest

from lmcache_plugins.vllm.border import Border
from lmcache_plugins.vllm.tally import Tally


def broken() -> int:
    raise OSError("the disk is gone")


def test_an_answer_passes(tally: Tally) -> None:
    assert Border("worker", tally).call("wait_for_save", lambda: 3, 0) == 3


def test_an_error_becomes_the_neutral_answer_and_is_counted(tally: Tally) -> None:
    border = Border("worker", tally)
    assert border.call("wait_for_save", broken, 7) == 7
    assert tally.take() == {"hook_errors:wait_for_save": 1}


def test_an_error_is_told_once_a_kind_with_its_trace(tally: Tally, caplog: pytest.LogCaptureFixture) -> None:
    border = Border("scheduler", tally)
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            border.call("build_connector_meta", broken, 0)
        border.call("reset_cache", broken, 0)
    assert caplog.messages == [
        f"lmcache-core, scheduler side: {hook} failed and is answered with a no-op, so vLLM computes instead; further "
        "errors of this kind are only counted in lmcache:connector_hook_errors"
        for hook in ("build_connector_meta", "reset_cache")
    ]
    assert "the disk is gone" in caplog.text


def test_an_order_to_end_passes(tally: Tally) -> None:
    def ended() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Border("worker", tally).call("wait_for_save", ended, None)
