"""On which line of a TOML text each key is written. tomli does not tell."""

from __future__ import annotations

import re
from bisect import bisect_right

import tomli

from lmcache_core.config.origin import KeyPath

_BARE_KEY = re.compile(r"[A-Za-z0-9_\-]+")
_BLANK = re.compile(r"[ \t]*")
_BLANK_LINES = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BARE_VALUE = re.compile(r"[^,\]}\n#]*")
_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}(?!")'
    r"|'''(?:.)*?'{3,5}(?!')"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'",
    re.DOTALL,
)


class _LostError(Exception):
    """The text is not what the scanner expects; what was found so far stays."""


def key_lines(text: str) -> dict[KeyPath, int]:
    """Find the line of every key, table and list item.

    Args:
        text: TOML that tomli has accepted.

    Returns:
        Line numbers from 1. Keys the scanner cannot follow are left out.
    """
    scanner = _Scanner(text.replace("\r\n", "\n"))
    try:
        scanner.scan()
    except _LostError:
        return scanner.lines
    return scanner.lines


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.lines: dict[KeyPath, int] = {}
        self._newlines = [found.start() for found in re.finditer("\n", text)]
        self._array_lengths: dict[KeyPath, int] = {}

    def scan(self) -> None:
        """Walk through the whole text."""
        prefix: KeyPath = ()
        self._skip(_BLANK_LINES)
        while self.at < len(self.text):
            if self._take("["):
                prefix = self._header(is_array=self._take("["))
            else:
                self._pair(prefix)
            self._skip(_BLANK_LINES)

    def _header(self, *, is_array: bool) -> KeyPath:
        parts = self._key()
        self._expect("]]" if is_array else "]")
        path: KeyPath = ()
        for index, part in enumerate(parts):
            path = (*path, part)
            last = index == len(parts) - 1
            if last and is_array:
                self._note(path)
                self._array_lengths[path] = self._array_lengths.get(path, 0) + 1
            elif last:
                self.lines[path] = self._line()
            else:
                self._note(path)
            if path in self._array_lengths:
                path = (*path, self._array_lengths[path] - 1)
                self._note(path)
        return path

    def _pair(self, prefix: KeyPath) -> None:
        path = prefix
        for part in self._key():
            path = (*path, part)
            self._note(path)
        self._expect("=")
        self._skip(_BLANK)
        self._value(path)

    def _value(self, path: KeyPath) -> None:
        if self._take("["):
            self._array(path)
        elif self._take("{"):
            self._inline_table(path)
        elif self.text[self.at : self.at + 1] in {'"', "'"}:
            self._string()
        else:
            self._skip(_BARE_VALUE)

    def _array(self, path: KeyPath) -> None:
        index = 0
        self._skip(_BLANK_LINES)
        while not self._take("]"):
            self._note((*path, index))
            start = self.at
            self._value((*path, index))
            self._next_item(start)
            index += 1

    def _inline_table(self, path: KeyPath) -> None:
        self._skip(_BLANK_LINES)
        while not self._take("}"):
            start = self.at
            self._pair(path)
            self._next_item(start)

    def _next_item(self, start: int) -> None:
        if self.at == start:
            raise _LostError
        self._skip(_BLANK_LINES)
        self._take(",")
        self._skip(_BLANK_LINES)

    def _key(self) -> list[str]:
        parts = []
        while True:
            self._skip(_BLANK)
            bare = _BARE_KEY.match(self.text, self.at)
            if bare is not None:
                self.at = bare.end()
                parts.append(bare.group())
            else:
                parts.append(self._unquote(self._string()))
            self._skip(_BLANK)
            if not self._take("."):
                return parts

    def _string(self) -> str:
        found = _STRING.match(self.text, self.at)
        if found is None:
            raise _LostError
        self.at = found.end()
        return found.group()

    @staticmethod
    def _unquote(literal: str) -> str:
        try:
            return str(tomli.loads(f"key = {literal}")["key"])
        except tomli.TOMLDecodeError:
            raise _LostError from None

    def _skip(self, pattern: re.Pattern[str]) -> None:
        found = pattern.match(self.text, self.at)
        if found is not None:
            self.at = found.end()

    def _take(self, token: str) -> bool:
        if not self.text.startswith(token, self.at):
            return False
        self.at += len(token)
        return True

    def _expect(self, token: str) -> None:
        if not self._take(token):
            raise _LostError

    def _note(self, path: KeyPath) -> None:
        self.lines.setdefault(path, self._line())

    def _line(self) -> int:
        return bisect_right(self._newlines, self.at - 1) + 1 if self.at else 1
