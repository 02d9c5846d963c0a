"""The log of a server: lines for people, objects for programs."""

from __future__ import annotations

import io
import json
import logging

import pytest

from lmcache_core.cli.server_log import ServerLog

LOG = logging.getLogger("lmcache_core.test_of_the_log")


@pytest.fixture
def out() -> io.StringIO:
    return io.StringIO()


def records(out: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_a_line_has_time_level_name_and_message(out: io.StringIO) -> None:
    with ServerLog(out) as log:
        log.begin("text", "INFO")
        LOG.info("store %s is back", "a")

    stamp, rest = out.getvalue().split(" ", 1)
    assert (len(stamp), stamp[10], stamp[-1]) == (24, "T", "Z")
    assert rest == "INFO lmcache_core.test_of_the_log: store a is back\n"


def test_a_message_is_one_line_and_steers_no_terminal(out: io.StringIO) -> None:
    with ServerLog(out) as log:
        log.begin("text", "INFO")
        LOG.info("client %s", "x\n2026-01-31T00:00:00.000Z ERROR forged\x1b[2J")

    assert out.getvalue().count("\n") == 1
    assert r"client x\n2026-01-31T00:00:00.000Z ERROR forged\x1b[2J" in out.getvalue()


def test_a_traceback_is_indented_under_its_line(out: io.StringIO) -> None:
    with ServerLog(out) as log:
        log.begin("text", "INFO")
        try:
            int("no")
        except ValueError:
            LOG.exception("it failed")

    head, *rest = out.getvalue().splitlines()
    assert head.endswith("ERROR lmcache_core.test_of_the_log: it failed")
    assert rest[0] == "  Traceback (most recent call last):"
    assert rest[-1] == "  ValueError: invalid literal for int() with base 10: 'no'"


def test_an_object_has_the_same_and_fields_of_its_own(out: io.StringIO) -> None:
    with ServerLog(out) as log:
        log.begin("json", "INFO")
        LOG.warning("client %s", "a\nb", extra={"session": 5, "at": {1}, "level": "forged"})

    (record,) = records(out)
    assert record.pop("time")
    assert record == {
        "level": "warning",
        "logger": "lmcache_core.test_of_the_log",
        "thread": "MainThread",
        "message": "client a\nb",
        "session": 5,
        "at": "{1}",
    }


def test_an_object_has_its_traceback(out: io.StringIO) -> None:
    with ServerLog(out) as log:
        log.begin("json", "INFO")
        try:
            int("no")
        except ValueError:
            LOG.exception("it failed")

    assert str(records(out)[0]["traceback"]).endswith("base 10: 'no'")


def test_what_was_logged_before_the_format_was_known_is_written_in_it(out: io.StringIO) -> None:
    with ServerLog(out) as log:
        LOG.warning("early")
        assert out.getvalue() == ""
        log.begin("json", "INFO")
        LOG.warning("late")

    assert [record["message"] for record in records(out)] == ["early", "late"]


def test_what_was_logged_before_a_start_that_failed_is_not_lost(out: io.StringIO) -> None:
    with ServerLog(out):
        LOG.warning("early")

    assert out.getvalue().endswith("WARNING lmcache_core.test_of_the_log: early\n")


@pytest.mark.parametrize(("debug", "lines"), [(False, 1), (True, 5)])
def test_a_start_that_failed_shows_tracebacks_on_demand(out: io.StringIO, debug: bool, lines: int) -> None:
    with ServerLog(out, debug=debug):
        try:
            int("no")
        except ValueError:
            LOG.exception("plugin x does not load")

    assert len(out.getvalue().splitlines()) == lines


def test_less_severe_records_of_the_project_are_left_out(out: io.StringIO) -> None:
    with ServerLog(out) as log:
        log.begin("text", "WARNING")
        LOG.info("quiet")

    assert out.getvalue() == ""


def test_levels_and_handlers_are_as_they_were(out: io.StringIO) -> None:
    root, project = logging.getLogger(), logging.getLogger("lmcache_core")
    before = (list(root.handlers), project.level)
    with ServerLog(out) as log:
        log.begin("text", "DEBUG")

    assert (list(root.handlers), project.level) == before
