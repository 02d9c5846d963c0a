"""The page's bytes, without a browser: what may run, what may be asked, and that nothing is put in as HTML."""

import base64
import hashlib
import re
from collections.abc import Callable
from html.parser import HTMLParser
from importlib.resources import files
from typing import Any

import pytest
from tests.core.health.tower import SteeredCheck

MakeSite = Callable[..., Any]
PAGE = (files("lmcache_core.ops") / "status.html").read_text(encoding="utf-8")
SCRIPT = PAGE.split("<script>")[1].split("</script>")[0]
STYLE = PAGE.split("<style>")[1].split("</style>")[0]


class Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


@pytest.fixture(scope="module")
def elements() -> list[tuple[str, dict[str, str | None]]]:
    parser = Elements()
    parser.feed(PAGE)
    return parser.found


def policy_of(header: str) -> dict[str, str]:
    return dict(part.split(" ", 1) for part in header.split("; "))


def test_it_is_html_that_is_never_kept(site: MakeSite) -> None:
    answer = site().get("/")

    assert (answer.status, answer.text) == (200, PAGE)
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_nothing_but_its_own_style_and_script_may_run(site: MakeSite) -> None:
    policy = policy_of(site().get("/").headers["content-security-policy"])

    def hash_of(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    assert policy == {
        "default-src": "'none'",
        "style-src": hash_of(STYLE),
        "script-src": hash_of(SCRIPT),
        "connect-src": "'self'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }


def test_no_other_page_may_show_it_in_a_frame(site: MakeSite) -> None:
    assert site().get("/").headers["x-frame-options"] == "DENY"


def test_there_is_one_style_and_one_script(elements: list[tuple[str, dict[str, str | None]]]) -> None:
    assert [tag for tag, _ in elements if tag in {"style", "script"}] == ["style", "script"]


def test_it_needs_nothing_from_elsewhere(elements: list[tuple[str, dict[str, str | None]]]) -> None:
    addresses = [
        value for _, attributes in elements for name, value in attributes.items() if name in {"src", "href", "action"}
    ]

    assert [address for address in addresses if not str(address).startswith(("/", "data:"))] == []
    assert set(re.findall(r"https?://[^\s\"'`<]+", PAGE)) == {"http://www.w3.org/2000/svg"}
    assert "url(" not in STYLE
    assert "@import" not in STYLE


def test_no_style_or_handler_is_written_into_an_element(elements: list[tuple[str, dict[str, str | None]]]) -> None:
    """The policy would refuse it."""
    assert [name for _, attributes in elements for name in attributes if name == "style" or name.startswith("on")] == []


@pytest.mark.parametrize(
    "sink",
    ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(", "DOMParser", "srcdoc"],
)
def test_nothing_from_the_wire_is_put_in_as_html(sink: str) -> None:
    assert sink not in SCRIPT


def test_attributes_with_values_from_the_wire_can_run_nothing() -> None:
    """Each `make(tag, {...})` names its attributes; none of them takes an address or code from the wire."""
    names = set(re.findall(r"[{,] ?\"?([a-z-]+)\"?: ", "".join(re.findall(r"make\(\"\w+\", \{[^}]*\}", SCRIPT))))

    assert names <= {"class", "data-since", "data-until", "data-key", "title", "href", "id"}
    assert re.findall(r"href: ([^,}]*)", SCRIPT) == ['"#store-" + place']


def test_every_page_it_asks_for_is_there(site: MakeSite, elements: list[tuple[str, dict[str, str | None]]]) -> None:
    asked = re.findall(r"load\(\"([^\"]*)\"", SCRIPT)
    linked = [str(attributes["href"]) for tag, attributes in elements if tag == "a"]
    one = site(SteeredCheck())
    one.tower.start()

    assert asked == ["/health/why", "/health/history?limit="]
    for path in ["/health/why", "/health/history?limit=1", *linked]:
        assert path == "/health/overrides" or one.get(path).status == 200


def test_every_key_it_reads_is_in_the_answers(site: MakeSite) -> None:
    one = site(SteeredCheck())
    one.tower.start()
    why = one.get("/health/why").json
    backend = why["report"]["backends"][0]
    transition = one.get("/health/history").json["transitions"][0]

    assert {"state", "reason", "since_s", "healthy", "explanations", "report"} <= set(why)
    assert {"name", "url", "state", "traffic", "reason", "grounds"} <= set(why["explanations"][1])
    assert {"subject", "state", "since_s", "evidence", "rule", "next"} <= set(why["explanations"][1]["grounds"][0])
    assert {"last_ping", "breaker", "load_failures", "waiting_chunks", "holds"} <= set(backend)
    assert {"state", "next_trial_s"} <= set(backend["breaker"])
    assert {"number", "at", "at_unix_s", "kind", "name", "before", "after", "reason"} <= set(transition)


def test_every_state_has_a_word_and_a_colour_in_light_and_in_dark() -> None:
    light, dark = STYLE.split("@media (prefers-color-scheme: dark)")[0], STYLE.split("prefers-color-scheme: dark")[1]
    for state in ("up", "degraded", "down", "unknown", "maintenance"):
        assert f'{state}: "{state.title()}"' in SCRIPT
        assert f".{state} {{" in STYLE
        assert all(f"--{state}: #" in part and f"--{state}-bg: #" in part for part in (light, dark))


def test_a_cache_that_does_not_answer_never_looks_well() -> None:
    assert "STALE_MS = 6000" in SCRIPT
    assert 'verdict("unknown", "No answer"' in SCRIPT


def test_the_status_line_is_read_aloud() -> None:
    assert 'id="verdict" aria-live="polite"' in PAGE
