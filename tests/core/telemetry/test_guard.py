from __future__ import annotations

import pytest

from lmcache_core.telemetry.guard import TelemetryLosses, swallow_telemetry_errors


@pytest.mark.parametrize("error", [RuntimeError("boom"), SystemExit(3), KeyError("x")])
def test_what_goes_wrong_inside_never_leaves_and_is_counted(losses: TelemetryLosses, error: BaseException) -> None:
    with swallow_telemetry_errors(losses, "here"):
        raise error

    assert (losses.errors, dict(losses.errors_by_place())) == (1, {"here": 1})


def test_an_interrupt_of_the_user_leaves(losses: TelemetryLosses) -> None:
    with pytest.raises(KeyboardInterrupt), swallow_telemetry_errors(losses, "here"):
        raise KeyboardInterrupt


def test_the_first_error_at_a_place_is_logged_with_its_traceback(
    losses: TelemetryLosses, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        with swallow_telemetry_errors(losses, "send"):
            raise RuntimeError("boom")

    assert caplog.messages == ["usage telemetry: send failed; the next errors there are only counted"]
    assert caplog.records[0].exc_info is not None
    assert losses.errors == 3


def test_samples_are_counted_by_reason(losses: TelemetryLosses) -> None:
    losses.add_samples("full", 3)
    losses.add_samples("not_finite")

    assert (losses.samples, dict(losses.samples_by_reason())) == (4, {"full": 3, "not_finite": 1})
