"""The pages and their fenced blocks."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```(?P<language>[\w-]*)(?P<note>[^\n]*)\n(?P<text>.*?)^```\s*$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One fenced block of a page; `config` is the page's TOML block before it, "" for none.

    `note` is what follows the language: ``wrong`` marks a configuration that is to be refused.
    """

    page: str
    line: int
    language: str
    text: str
    note: str = ""
    config: str = ""

    @property
    def is_project(self) -> bool:
        """A piece of a plugin's pyproject.toml, not a configuration of the cache."""
        return self.language == "toml" and "[project" in self.text


def pages() -> list[Path]:
    return [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(language: str) -> list[Block]:
    found = []
    for page in pages():
        text = page.read_text()
        config = ""
        for match in FENCE.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            block = Block(
                str(page.relative_to(ROOT)), line, match["language"], match["text"], match["note"].strip(), config
            )
            if block.language == "toml" and not block.is_project:
                config = block.text
            if block.language == language:
                found.append(block)
    return found


def pytest_generate_tests(metafunc: object) -> None:
    """Give each test of a `<language>_block` argument one case a block."""
    for language in ("python", "toml", "console"):
        name = f"{language}_block"
        if name in metafunc.fixturenames:  # type: ignore[attr-defined]
            cases = blocks(language)
            metafunc.parametrize(name, cases, ids=[f"{case.page}:{case.line}" for case in cases])  # type: ignore[attr-defined]
    if "page" in metafunc.fixturenames:  # type: ignore[attr-defined]
        metafunc.parametrize("page", pages(), ids=[str(page.relative_to(ROOT)) for page in pages()])  # type: ignore[attr-defined]
