"""Where a thread is held up for a moment, and for how long: drawn from a seed, so that it can be repeated."""

from __future__ import annotations

import dis
import random
import sys
import threading
import time
import zlib
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

_DRAWN = 1 << 32  # how many values a CRC has
_KEPT = 200  # pauses told of a test that failed
_STORES = frozenset({"STORE_ATTR", "DELETE_ATTR", "STORE_SUBSCR", "DELETE_SUBSCR"})
_AFTER_A_STORE = 6.0  # as many times as often as elsewhere: there, what belongs together may be half done
_BEGIN = 20.0  # the same for the first step of a thread: it is late
_sleep = time.sleep  # a test may replace it

Trace = Callable[[FrameType, str, Any], Any]


@dataclass(frozen=True)
class Plan:
    """What is drawn from.

    Attributes:
        seed: The same one gives the same pauses at the same places of threads with the same names.
        share: Of all places of a thread, how many hold it up; 0 to 1.
        longest_s: Of one pause.
        budget_s: Longest that one thread pauses in one test, so that deadlines of a second still hold.
        test_budget_s: The same of all threads together: a test that makes thousands must end.
        main_share: As `share`, of the main thread; 0 leaves it alone.
    """

    seed: int
    share: float = 0.02
    longest_s: float = 0.06
    budget_s: float = 0.6
    test_budget_s: float = 20.0
    main_share: float = 0.0


@dataclass(frozen=True)
class Pause:
    """One that was made: which thread, before which line or at which call or return, and how long."""

    thread: str
    place: str
    slept_s: float

    def __str__(self) -> str:
        return f"{self.slept_s * 1000:5.1f} ms  {self.thread}  {self.place}"


class Rhythm:
    """At which visits of one place its thread pauses: early ones often, later ones ever more rarely.

    Args:
        text: What it is drawn from, such as the seed, the thread and the place.
        longest_s: Of one pause.
    """

    def __init__(self, text: str, longest_s: float) -> None:
        self._rng = random.Random(text)  # seeded with text, it is the same in every process
        self._longest_s = longest_s
        self._reach = 1
        self._left = self._rng.randint(0, self._reach)

    def visit(self) -> float:
        """Give the seconds to pause at this visit; 0 for none."""
        if self._left:
            self._left -= 1
            return 0.0
        self._reach *= 2
        self._left = self._rng.randint(0, self._reach)
        return self._rng.uniform(0.0, self._longest_s)


class Pauser:
    """Holds threads up in files below some folders. Threads that begin after `install` are seen, the main one if told.

    Args:
        plan: What is drawn from.
        root: What places are named by, so that another checkout draws the same.
        folders: Relative to the root; a frame of a file elsewhere, or of this package, is let through.
    """

    def __init__(self, plan: Plan, root: Path, folders: tuple[str, ...]) -> None:
        self.plan = plan
        self._root = f"{root}/"
        self._folders = tuple(f"{root / folder}/" for folder in folders)
        self._own = f"{Path(__file__).parent}/"
        self._test = ""
        self._left_s = plan.test_budget_s
        self._names: Counter[str] = Counter()
        self._before = threading.gettrace()
        self._made: deque[Pause] = deque(maxlen=_KEPT)
        self._lock = threading.Lock()

    def install(self) -> None:
        """Begin with the threads that start from now on."""
        threading.settrace(self._enter)

    def remove(self) -> None:
        """Leave threads that start from now on to whoever traced them before."""
        threading.settrace(self._before)

    def begin(self, test: str) -> None:
        """Draw for this test; the threads that it starts are numbered anew."""
        with self._lock:
            self._test = test
            self._left_s = self.plan.test_budget_s
            self._names.clear()
            self._made.clear()

    def main_trace(self) -> Trace | None:
        """What `sys.settrace` of the main thread takes while a test runs."""
        if not self.plan.main_share:
            return None
        return _Course(self, self._test, "MainThread", self.plan.main_share).enter

    def made(self) -> tuple[Pause, ...]:
        """The last pauses since `begin`, oldest first."""
        with self._lock:
            return tuple(self._made)

    def place(self, code: CodeType) -> str:
        """Name a function by its file and line, or "" where it is not to be held up."""
        file = code.co_filename
        if not file.startswith(self._folders) or file.startswith(self._own):
            return ""
        return f"{file.removeprefix(self._root)}:{code.co_firstlineno}:{code.co_name}"

    def allow(self, pause: Pause) -> bool:
        """Keep one that begins, for whoever asks why a test failed; False where the test has had enough."""
        with self._lock:
            self._left_s -= pause.slept_s
            if self._left_s >= 0:
                self._made.append(pause)
            return self._left_s >= 0

    def _enter(self, frame: FrameType, event: str, arg: Any) -> Any:
        """Meet a new thread: from its first call on it has a course of its own."""
        name = "".join(letter for letter in threading.current_thread().name if not letter.isdigit())
        with self._lock:
            self._names[name] += 1
            course = _Course(self, self._test, f"{name}#{self._names[name]}", self.plan.share)
        sys.settrace(course.enter)
        return course.enter(frame, event, arg)


class _Course:
    """The pauses of one thread; used by that thread alone."""

    def __init__(self, pauser: Pauser, test: str, name: str, share: float) -> None:
        self._pauser = pauser
        self._drawn_from = f"{pauser.plan.seed} {test} {name}"
        self._name = name
        self._share = share
        self._left_s = pauser.plan.budget_s
        self._routes: dict[int, tuple[CodeType, _Route | None]] = {}  # the code is kept, so that its id stays its own
        self._begun = False

    def enter(self, frame: FrameType, event: str, arg: Any) -> Any:
        """Take a call: follow the frame, or let it through."""
        code = frame.f_code
        known = self._routes.get(id(code))
        if known is None:
            place = self._pauser.place(code)
            known = self._routes[id(code)] = (code, _Route(self, code, place) if place else None)
        route = known[1]
        return None if route is None else route.step(frame, event, arg)

    def draw(self, place: str, times: float) -> Rhythm | None:
        """Say how a place holds this thread up; None for not at all."""
        if not self._begun:
            self._begun, times = True, max(times, _BEGIN)
        text = f"{self._drawn_from} {place}"
        if zlib.crc32(text.encode()) >= self._share * times * _DRAWN:
            return None
        return Rhythm(text, self._pauser.plan.longest_s)

    def pause(self, place: str, pause_s: float) -> None:
        """Sleep, within what is left to this thread."""
        pause_s = min(pause_s, self._left_s)
        if pause_s > 0 and self._pauser.allow(Pause(self._name, place, pause_s)):
            self._left_s -= pause_s
            _sleep(pause_s)


class _Route:
    """One thread's way through one function."""

    def __init__(self, course: _Course, code: CodeType, place: str) -> None:
        self._course = course
        self._place = place
        self._weights = weights(code)
        self._rhythms: dict[int | str, Rhythm | None] = {}

    def step(self, frame: FrameType, event: str, arg: Any) -> Any:
        """Pass a line, the call, or a return."""
        if event == "exception":
            return self.step
        where: int | str = frame.f_lineno if event == "line" else event
        try:
            rhythm = self._rhythms[where]
        except KeyError:
            place, times = f"{self._place}:{where}", self._weights.get(where, 1.0)
            rhythm = self._rhythms[where] = self._course.draw(place, times)
        if rhythm is not None and (pause_s := rhythm.visit()):
            self._course.pause(f"{self._place}:{where}", pause_s)
        return self.step


def weights(code: CodeType) -> Mapping[int | str, float]:
    """Say which lines of a function follow one that stores an attribute or an item, and the return if one does."""
    found: dict[int | str, float] = {}
    stored, line = False, code.co_firstlineno
    lines = {offset: number for offset, _, number in code.co_lines() if number is not None}
    for instruction in dis.get_instructions(code):
        now = lines.get(instruction.offset, line)
        if now != line:
            if stored:
                found[now] = _AFTER_A_STORE
            stored, line = False, now
        stored = stored or instruction.opname in _STORES
        if stored and instruction.opname.startswith("RETURN"):
            found["return"] = _AFTER_A_STORE
    return found
