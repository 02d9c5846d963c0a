"""What ``bench/ttft.py`` has measured, as a table and as verdicts."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

MOST_OF_COLD = 0.10
MOST_OF_THE_PEER = 0.60
MOST_OVERHEAD = 1.03
MOST_IN_HOOKS = 0.03


@dataclass(frozen=True)
class Answer:
    """One request.

    Attributes:
        side: Which engine.
        number: Of the round.
        length: Tokens of the prompt.
        fraction: How much of the prompt the cache could know.
        first_token_s: Until the first token.
        hooks_s: That the engine's thread spent in its connector for the whole answer.
        cpu_s: That the engine's process took for the whole answer.
        cached_tokens: That the engine took from a cache.
        tokens: Of the answer.
    """

    side: str
    number: int
    length: int
    fraction: float
    first_token_s: float
    hooks_s: float
    cpu_s: float
    cached_tokens: int
    tokens: list[int]

    @property
    def is_as_meant(self) -> bool:
        """Whether what could be known was used, as far as chunks go, and nothing else."""
        return (self.cached_tokens > 0) == (self.fraction > 0)


@dataclass(frozen=True)
class Verdict:
    """One figure and its aim."""

    title: str
    figure: float
    most: float

    @property
    def holds(self) -> bool:
        """Whether the aim is met."""
        return self.figure <= self.most

    def line(self) -> str:
        """For the end of the run."""
        return f"{self.title:<66} {self.figure:6.3f}   at most {self.most:.2f}   {'holds' if self.holds else 'MISSED'}"


class Figures:
    """All answers of a run."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []

    def add(self, answer: Answer) -> None:
        """Take an answer in."""
        self.answers.append(answer)

    @property
    def sides(self) -> list[str]:
        """In the order of their first answer of the first round."""
        return list(dict.fromkeys(answer.side for answer in self.answers))

    def some(self, side: str, length: int, fraction: float) -> dict[int, Answer]:
        """By round; those in which the cache did not do what is measured only where there are no others."""
        found = [one for one in self.answers if (one.side, one.length, one.fraction) == (side, length, fraction)]
        meant = [one for one in found if one.is_as_meant]
        return {answer.number: answer for answer in meant or found}

    def median_s(self, side: str, length: int, fraction: float) -> float | None:
        """Seconds to the first token; None where nothing was measured."""
        found = [answer.first_token_s for answer in self.some(side, length, fraction).values()]
        return statistics.median(found) if found else None

    def ratios(
        self, over: tuple[str, float], under: tuple[str, float], length: int, what: str = "first_token_s"
    ) -> list[float]:
        """Of one side and fraction to another, of the same prompt."""
        upper, lower = self.some(over[0], length, over[1]), self.some(under[0], length, under[1])
        both = sorted(upper.keys() & lower.keys())
        return [getattr(upper[number], what) / getattr(lower[number], what) for number in both]

    def overhead(self, side: str, alone: str, what: str = "first_token_s") -> float:
        """Of a side where nothing is known, to vLLM alone, over all lengths."""
        return _median(self._overheads(side, alone, what))

    def knows_overhead_to(self, side: str, alone: str) -> float:
        """How far `overhead` may be off, at 95 %."""
        return _uncertainty(self._overheads(side, alone))

    def in_hooks(self, side: str) -> dict[int, float]:
        """By length: what the connector's hooks take of the time to the first token where nothing is known.

        All that they take for the answer is counted, what comes after the first token too.
        """
        lengths = sorted({answer.length for answer in self.answers if answer.side == side})
        return {
            length: _median([one.hooks_s / one.first_token_s for one in self.some(side, length, 0.0).values()])
            for length in lengths
        }

    def _overheads(self, side: str, alone: str, what: str = "first_token_s") -> list[float]:
        lengths = sorted({answer.length for answer in self.answers})
        return [one for length in lengths for one in self.ratios((side, 0.0), (alone, 0.0), length, what)]

    # -- for people ---------------------------------------------------------------

    def last_line(self, number: int, length: int) -> str:
        """A round's figures of one length."""
        texts = []
        for side in self.sides:
            found = [one for one in self.answers if (one.side, one.number, one.length) == (side, number, length)]
            texts.append(f"{side} " + "/".join(f"{one.first_token_s:.2f}" for one in found))
        return ", ".join(texts) + " s"

    def table(self, lengths: Sequence[int]) -> Iterator[str]:
        """Medians, with the cached tokens."""
        yield f"{'prompt':>6} {'known':>6} " + "".join(f"{side:>27}" for side in self.sides)
        for length in lengths:
            for fraction in (0.0, 0.5, 1.0):
                if not any((one.length, one.fraction) == (length, fraction) for one in self.answers):
                    continue
                cells = "".join(f"{self._cell(side, length, fraction):>27}" for side in self.sides)
                yield f"{length:>6} {fraction:>6.0%} {cells}"

    def verdicts(self, alone: str, ours: Sequence[str], peers: Sequence[str], *, longest: int) -> list[Verdict]:
        """The aims."""
        found = []
        for side in ours:
            warm = self.ratios((side, 1.0), (side, 0.0), longest)
            found.append(Verdict(f"{side}: {longest} tokens warm / cold", _median(warm), MOST_OF_COLD))
            for peer in peers:
                if peer in self.sides:
                    against = self.ratios((side, 1.0), (peer, 1.0), longest)
                    found.append(Verdict(f"{side}: {longest} tokens warm / {peer}", _median(against), MOST_OF_THE_PEER))
            found.append(Verdict(f"{side}: cold / {alone}", self.overhead(side, alone), MOST_OVERHEAD))
            most = max(self.in_hooks(side).values())
            found.append(Verdict(f"{side}: hooks / cold, where that is most", most, MOST_IN_HOOKS))
            found.append(Verdict(f"{side}: answers that differ from {alone}", self.differing(side, alone), 0.0))
        return found

    def notes(self, alone: str, peers: Sequence[str], ours: Sequence[str], *, longest: int) -> Iterator[str]:
        """What has no aim."""
        for side in self.sides:
            if side != alone:
                wall, cpu = (self._overheads(side, alone, what) for what in ("first_token_s", "cpu_s"))
                yield (
                    f"note: {side}: cold / {alone}: first token {_median(wall):.3f} +- {_uncertainty(wall):.3f}, "
                    f"CPU time of the engine {_median(cpu):.3f} +- {_uncertainty(cpu):.3f}, {len(wall)} pairs"
                )
                shares = ", ".join(f"{length} tokens {share:.2%}" for length, share in self.in_hooks(side).items())
                yield f"note: {side}: hooks / cold: {shares}"
        for side in self.sides:
            missed = sum(not one.is_as_meant for one in self.answers if one.side == side)
            if missed and side in (*ours, *peers):
                yield f"note: {side}: {missed} requests without a hit: less than a chunk was known, or it was not there"
        for peer in peers:
            if peer in self.sides:
                cold = self.ratios((peer, 1.0), (peer, 0.0), longest)
                ratios = ", ".join(
                    f"{side} takes {_median(self.ratios((side, 1.0), (peer, 1.0), longest)):.2f} of its warm time"
                    for side in ours
                )
                yield f"note: {peer}: {longest} tokens warm / cold {_median(cold):.3f}; {ratios}"

    def differing(self, side: str, alone: str) -> int:
        """Answers of a side that are not those of vLLM alone to the same prompt."""
        right = {(one.number, one.length, one.fraction): one.tokens for one in self.answers if one.side == alone}
        wrong = 0
        for one in self.answers:
            if one.side == side:
                fraction = 0.0 if one.fraction == 1.0 else one.fraction  # the same prompt again
                wrong += one.tokens != right[one.number, one.length, fraction]
        return wrong

    def _cell(self, side: str, length: int, fraction: float) -> str:
        seconds = self.median_s(side, length, fraction)
        if seconds is None:
            return "-"
        cached = [answer.cached_tokens for answer in self.some(side, length, fraction).values()]
        return f"{seconds:.3f} s ({statistics.median_low(cached)})"


def _median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else float("inf")


def _uncertainty(values: Sequence[float]) -> float:
    """Half the width of the median's 95 % interval, by the sign test: no value counts more for being far away.

    The interval ends at the values that ``0.98 * sqrt(n)`` others part from the middle; six values have one.
    """
    ordered = sorted(values)
    first = math.floor(len(ordered) / 2 - 0.98 * math.sqrt(len(ordered)))
    if first < 0 or len(ordered) < 6:
        return float("inf")
    return (ordered[-1 - first] - ordered[first]) / 2
