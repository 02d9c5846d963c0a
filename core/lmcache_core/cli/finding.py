"""One thing that ``lmcachectl doctor`` found."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Grade(str, enum.Enum):
    """How good it is."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor's.

    Attributes:
        grade: How good it is.
        subject: Of what.
        text: What was found and, unless all is well, what to do.
    """

    grade: Grade
    subject: str
    text: str


def ok(subject: str, text: str) -> Finding:
    """All is well."""
    return Finding(Grade.OK, subject, text)


def warn(subject: str, text: str) -> Finding:
    """The cache runs, with less than was asked for."""
    return Finding(Grade.WARN, subject, text)


def fail(subject: str, text: str) -> Finding:
    """The cache does not start, or a part that was asked for does not work."""
    return Finding(Grade.FAIL, subject, text)
