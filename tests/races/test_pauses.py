from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from tests.races.pauses import Pause, Pauser, Plan, Rhythm, weights

SOURCE = """
class Gate:
    done = False
    look = ""

    def settle(self):
        self.done = True
        self.look = "checked"

def pass_by():
    one = 1
    return one
"""


@pytest.fixture
def code(tmp_path: Path) -> ModuleType:
    """Code in a folder that is held up."""
    file = tmp_path / "held" / "gate.py"
    file.parent.mkdir()
    file.write_text(SOURCE)
    spec = importlib.util.spec_from_file_location("gate", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(plan: Plan, root: Path, work: Callable[[], object], *, folder: str = "held") -> tuple[Pause, ...]:
    """Do something on a thread that may be held up, and give its pauses."""
    pauser = Pauser(plan, root, (folder,))
    pauser.begin("test_it")
    pauser.install()
    try:
        thread = threading.Thread(target=work, name="worker-7")
        thread.start()
        thread.join()
    finally:
        pauser.remove()
    return pauser.made()


def test_the_same_seed_gives_the_same_pauses(tmp_path: Path, code: ModuleType) -> None:
    first, second = (run(Plan(seed=3, share=1.0), tmp_path, code.Gate().settle) for _ in range(2))

    assert first == second != ()


def test_another_seed_gives_others(tmp_path: Path, code: ModuleType) -> None:
    first, second = (run(Plan(seed=seed, share=1.0), tmp_path, code.Gate().settle) for seed in (3, 4))

    assert first != second


def test_a_pause_tells_thread_and_place(tmp_path: Path, code: ModuleType) -> None:
    made = [pause for seed in range(8) for pause in run(Plan(seed=seed, share=1.0), tmp_path, code.Gate().settle)]

    assert {(pause.thread, pause.place) for pause in made} == {
        ("worker-#1", f"held/gate.py:6:settle:{where}") for where in ("call", 7, 8, "return")
    }
    assert str(Pause("worker-#1", "held/gate.py:6:settle:8", 0.0123)) == (
        " 12.3 ms  worker-#1  held/gate.py:6:settle:8"
    )


def test_code_elsewhere_is_let_through(tmp_path: Path, code: ModuleType) -> None:
    assert run(Plan(seed=3, share=1.0), tmp_path, code.Gate().settle, folder="other") == ()


def test_a_share_of_0_holds_nobody_up(tmp_path: Path, code: ModuleType) -> None:
    assert run(Plan(seed=3, share=0.0), tmp_path, code.Gate().settle) == ()


def test_a_thread_pauses_no_longer_in_all_than_its_budget(tmp_path: Path, code: ModuleType) -> None:
    plan = Plan(seed=3, share=1.0, longest_s=0.01, budget_s=0.02)
    made = run(plan, tmp_path, lambda: [code.pass_by() for _ in range(100)])

    assert sum(pause.slept_s for pause in made) == pytest.approx(0.02)


def test_a_test_pauses_no_longer_in_all_than_its_budget(tmp_path: Path, code: ModuleType) -> None:
    plan = Plan(seed=3, share=1.0, longest_s=0.01, test_budget_s=0.02)
    made = run(plan, tmp_path, lambda: [code.pass_by() for _ in range(100)])

    assert 0 < sum(pause.slept_s for pause in made) <= 0.02


def test_what_is_published_in_two_steps_is_seen_half_done(tmp_path: Path, code: ModuleType) -> None:
    """The fault that all this is for: whoever waits for `done` reads a look from before."""
    seen = set()
    for seed in range(12):
        gate = code.Gate()

        def read(gate=gate) -> None:
            while not gate.done:
                pass
            seen.add(gate.look)

        reader = threading.Thread(target=read)
        reader.start()
        run(Plan(seed=seed, share=1.0), tmp_path, gate.settle)
        reader.join()

    assert "" in seen


def test_early_visits_pause_more_often_than_late_ones() -> None:
    visits = [rhythm.visit() > 0 for rhythm in [Rhythm("3 place", 0.1)] for _ in range(1000)]

    assert sum(visits[:10]) >= 2
    assert sum(visits[500:]) <= 3


def test_the_line_after_a_store_is_where_to_look(code: ModuleType) -> None:
    assert set(weights(code.Gate.settle.__code__)) == {8, "return"}
    assert set(weights(code.pass_by.__code__)) == set()
