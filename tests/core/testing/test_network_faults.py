import pytest

from lmcache_core.testing import Corrupt, Cut, Drip, ErrorReply, Hang, Latency


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Latency(-1.0), "delay_s must be at least 0, got -1.0"),
        (lambda: Latency(0.0, -1.0), "jitter_s must be at least 0, got -1.0"),
        (lambda: Hang(-1), "after_bytes must be at least 0, got -1"),
        (lambda: Drip(0.0), "bytes_per_s must be above 0, got 0.0"),
        (lambda: Cut(-1), "after_bytes must be at least 0, got -1"),
        (Corrupt, "give either offset_bytes or every_bytes"),
        (lambda: Corrupt(1, 1), "give either offset_bytes or every_bytes"),
        (lambda: Corrupt(-2), "offset_bytes must be at least -1, got -2"),
        (lambda: ErrorReply(""), "text must be one line that does not start with '-', got ''"),
        (lambda: ErrorReply("-OOM"), "text must be one line that does not start with '-', got '-OOM'"),
        (lambda: ErrorReply("A\r\n+OK"), "text must be one line that does not start with '-', got 'A\\r\\n+OK'"),
    ],
)
def test_a_bad_value_is_refused_where_it_is_written(make, sentence: str) -> None:
    with pytest.raises(ValueError) as caught:
        make()

    assert str(caught.value) == sentence


def test_commands_are_found_in_any_case() -> None:
    assert ErrorReply("ERR no", commands=("get",)).answers(b"GET")


def test_an_error_of_no_command_is_of_all() -> None:
    assert ErrorReply.loading().answers(b"PING")


def test_a_full_server_can_be_read() -> None:
    assert [ErrorReply.oom().answers(name) for name in (b"SET", b"GET", b"UNLINK")] == [True, False, False]


def test_a_replica_refuses_deletes_too() -> None:
    assert [ErrorReply.readonly().answers(name) for name in (b"SET", b"GET", b"UNLINK")] == [True, False, True]
