"""The protocol's framing, whatever pieces the bytes come in."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from lmcache_core.testing.resp import Conversation, ReplyReader, RequestReader

NAMES = st.sampled_from([b"GET", b"SET", b"ping", b"EXISTS"])
WORDS = st.binary(max_size=40)
REQUESTS = st.tuples(NAMES, st.lists(WORDS, max_size=4)).map(lambda pair: request(pair[0], *pair[1]))


def request(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def many(children: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    lists = st.lists(children, max_size=3)
    return st.one_of(
        st.tuples(st.sampled_from([b"*", b"~"]), lists).map(lambda p: p[0] + b"%d\r\n" % len(p[1]) + b"".join(p[1])),
        lists.map(lambda items: b"%%%d\r\n" % len(items) + b"".join(b"+key\r\n" + item for item in items)),
    )


REPLIES = st.recursive(
    st.one_of(
        st.sampled_from(
            [b"+OK\r\n", b"-ERR no\r\n", b":12\r\n", b"$-1\r\n", b"*-1\r\n", b"_\r\n", b"#t\r\n", b",1.5\r\n"]
        ),
        WORDS.map(lambda word: b"$%d\r\n%s\r\n" % (len(word), word)),
    ),
    many,
    max_leaves=8,
)


@st.composite
def in_pieces(draw: st.DrawFn, items: st.SearchStrategy[bytes]) -> tuple[list[bytes], list[bytes]]:
    """Some items, and the same bytes cut anywhere."""
    made = draw(st.lists(items, min_size=1, max_size=6))
    data = b"".join(made)
    cuts = sorted(draw(st.sets(st.integers(0, len(data)), max_size=12)) | {0, len(data)})
    return made, [data[a:b] for a, b in itertools.pairwise(cuts)]


@given(in_pieces(REQUESTS))
def test_requests_are_found(case) -> None:
    requests, pieces = case
    reader = RequestReader()
    found, names, current = [], [], b""
    for piece in pieces:
        for data, name, ends in reader.feed(piece):
            current += data
            names += [name] if name is not None else []
            if ends:
                found.append(current)
                current = b""

    assert found == requests
    assert names == [one.split(b"\r\n")[2].upper() for one in requests]


@given(in_pieces(REPLIES))
def test_replies_are_found(case) -> None:
    replies, pieces = case
    reader = ReplyReader()
    found, current = [], b""
    for piece in pieces:
        for data, ends in reader.feed(piece):
            current += data
            if ends:
                found.append(current)
                current = b""

    assert found == replies


@given(in_pieces(REQUESTS), st.data())
def test_ours_come_in_their_places(case, data) -> None:
    """Whoever reads sees one reply a request, in order, ours for refused commands."""
    requests, pieces = case
    conversation = Conversation(lambda name: b"-NO\r\n" if name == b"SET" else None)
    to_client = b""
    asked = b""
    for piece in pieces:
        onward, ours = conversation.requests(piece)
        asked += onward
        to_client += ours
    refused = [one.split(b"\r\n")[2] == b"SET" for one in requests]
    answers = b"".join(b":%d\r\n" % number for number, no in enumerate(refused) if not no)
    cut = data.draw(st.integers(0, len(answers)))
    to_client += conversation.replies(answers[:cut]) + conversation.replies(answers[cut:])

    assert asked == b"".join(one for one, no in zip(requests, refused, strict=True) if not no)
    assert to_client == b"".join(b"-NO\r\n" if no else b":%d\r\n" % number for number, no in enumerate(refused))


@given(st.lists(st.binary(max_size=50), max_size=8), st.lists(st.binary(max_size=50), max_size=8))
def test_bytes_of_any_protocol_pass(requests: list[bytes], replies: list[bytes]) -> None:
    """Of a whole stream at least: the first bytes of a request may wait until its command is known."""
    conversation = Conversation(lambda _: None)
    there = b"".join(conversation.requests(piece)[0] for piece in requests)
    back = b"".join(conversation.replies(piece) for piece in replies)

    assert b"".join(requests) == there + conversation._requests.take_held()
    assert back == b"".join(replies)


def test_pushed_messages_answer_nothing() -> None:
    conversation = Conversation(lambda name: b"-NO\r\n" if name == b"SET" else None)
    conversation.requests(request(b"GET", b"a") + request(b"SET", b"a", b"b"))

    assert conversation.replies(b">2\r\n+message\r\n$1\r\nx\r\n") == b">2\r\n+message\r\n$1\r\nx\r\n"
    assert conversation.replies(b"$1\r\nv\r\n") == b"$1\r\nv\r\n-NO\r\n"


def test_only_the_first_bytes_of_a_request_are_held_back() -> None:
    conversation = Conversation(lambda _: None)

    assert conversation.requests(b"*3\r\n$3\r\nSE") == (b"", b"")
    assert conversation.requests(b"T\r\n$5\r\nab") == (b"*3\r\n$3\r\nSET\r\n$5\r\nab", b"")


def test_a_long_pipeline_takes_no_long_time() -> None:
    conversation = Conversation(lambda _: None)
    data = request(b"EXISTS", *[b"k" * 20] * 100_000)

    assert conversation.requests(data) == (data, b"")
