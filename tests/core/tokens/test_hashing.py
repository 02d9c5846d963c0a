"""Golden values were computed with hashlib and struct alone, outside the project; they must never change."""

import hashlib
import os
import subprocess
import sys

import numpy as np
import pytest

from lmcache_core.contracts.key import ChunkKey, KeyNamespace, hash_salt
from lmcache_core.tokens.hashing import chunk_digests, token_array

NAMESPACE = KeyNamespace(
    model_name="org/model", world_size=1, rank=0, dtype="bfloat16", layout="0" * 16, chunk_tokens=4
)

GOLDEN_SEED = "b7479d18baa1bd8e21ecb08224e11dfb17269e0358f9447a5557838d36364479"
GOLDEN_DIGESTS = [
    "4ad03005cf64b6330bdc92e365fecde2555f9cef699a46896415dcde45fea680",
    "5a26419e2bbf92097726bfa60d6079c0552be6d1e0e6bb25fca1c616f8611cae",
]


def test_namespace_seed_is_the_golden_one() -> None:
    assert NAMESPACE.seed.hex() == GOLDEN_SEED


def test_digests_are_the_golden_ones() -> None:
    digests = chunk_digests(token_array(list(range(9))), 4, NAMESPACE.seed)

    assert [digest.hex() for digest in digests] == GOLDEN_DIGESTS


def test_digest_is_the_chained_sha256_of_the_tokens_bytes() -> None:
    first = hashlib.sha256(b"s" + np.arange(4, dtype="<u4").tobytes()).digest()
    second = hashlib.sha256(first + np.arange(4, 8, dtype="<u4").tobytes()).digest()

    assert chunk_digests(token_array(range(8)), 4, b"s") == [first, second]


@pytest.mark.parametrize("hash_seed", ["0", "1", "random"])
def test_digests_do_not_depend_on_the_process(hash_seed: str) -> None:
    code = (
        "from lmcache_core.contracts.key import KeyNamespace\n"
        "from lmcache_core.tokens.hashing import chunk_digests, token_array\n"
        "n = KeyNamespace(model_name='org/model', world_size=1, rank=0, dtype='bfloat16', layout='0' * 16,"
        " chunk_tokens=4)\n"
        "print(*[d.hex() for d in chunk_digests(token_array(list(range(9))), 4, n.seed)])\n"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )

    assert printed.stdout.split() == GOLDEN_DIGESTS


def test_rest_shorter_than_a_chunk_has_no_digest() -> None:
    assert len(chunk_digests(token_array(range(7)), 4, b"")) == 1


def test_equal_last_chunks_with_other_prefixes_differ() -> None:
    one = chunk_digests(token_array([1, 2, 9, 9]), 2, b"")
    two = chunk_digests(token_array([1, 3, 9, 9]), 2, b"")

    assert one[1] != two[1]


@pytest.mark.parametrize("kind", ["<i4", "<i8", ">i8", "<u4", "<u8", "<i2"])
def test_array_type_does_not_matter(kind: str) -> None:
    expected = chunk_digests(token_array([1, 2, 3, 4]), 4, b"")

    assert chunk_digests(token_array(np.array([1, 2, 3, 4], dtype=kind)), 4, b"") == expected


@pytest.mark.parametrize(
    ("tokens", "sentence"),
    [
        ([[1, 2]], "tokens must have one dimension, got shape (1, 2)"),
        ([1.5], "tokens must be whole numbers, got an array of float64"),
        ([True], "tokens must be whole numbers, got an array of bool"),
        ([-1], "tokens must be 0 to 4294967295, got -1"),
        ([2**32], "tokens must be 0 to 4294967295, got 4294967296"),
        (["a"], "tokens must be whole numbers, got an array of <U1"),
    ],
)
def test_wrong_tokens_are_refused_in_a_sentence(tokens: object, sentence: str) -> None:
    with pytest.raises(ValueError) as caught:
        token_array(tokens)

    assert str(caught.value) == sentence


def test_every_part_of_the_namespace_changes_the_seed() -> None:
    parts = {
        "model_name": "org/model2",
        "world_size": 2,
        "rank": 1,
        "dtype": "float16",
        "layout": "1" * 16,
        "chunk_tokens": 8,
        "salt_hash": hash_salt("a"),
    }
    plain = {
        "model_name": "org/model",
        "world_size": 1,
        "rank": 0,
        "dtype": "bfloat16",
        "layout": "0" * 16,
        "chunk_tokens": 4,
        "salt_hash": "",
    }
    seeds = {KeyNamespace(**{**plain, part: value}).seed for part, value in parts.items()}  # type: ignore[arg-type]

    assert len(seeds | {NAMESPACE.seed}) == len(parts) + 1


def test_raw_salt_is_nowhere_in_a_key() -> None:
    namespace = KeyNamespace(
        model_name="m",
        world_size=1,
        rank=0,
        dtype="float32",
        layout="",
        chunk_tokens=1,
        salt_hash=hash_salt("tenant-secret"),
    )

    assert "tenant-secret" not in repr(ChunkKey(namespace, b"")) + str(ChunkKey(namespace, b""))


def test_namespace_name_is_one_path_component() -> None:
    namespace = KeyNamespace(
        model_name="../../ü/x" * 50, world_size=1, rank=0, dtype="float32", layout="", chunk_tokens=1
    )

    assert "/" not in namespace.name
    assert namespace.name.isascii()
    assert len(namespace.name) < 200


def test_many_identities_never_collide() -> None:
    seeds = {
        KeyNamespace(
            model_name=f"m{number}", world_size=number % 7 + 1, rank=0, dtype="float32", layout="", chunk_tokens=1
        ).seed
        for number in range(20_000)
    }
    digests = {chunk_digests(token_array([number, number >> 3]), 1, b"")[1] for number in range(100_000)}

    assert len(seeds) == 20_000
    assert len(digests) == 100_000


def test_a_rest_has_a_digest_where_that_is_wanted() -> None:
    digests = chunk_digests(token_array(range(6)), 4, b"s", unfull=True)

    assert digests[0] == chunk_digests(token_array(range(6)), 4, b"s")[0]
    assert digests[1:] == [hashlib.sha256(digests[0] + np.arange(4, 6, dtype="<u4").tobytes()).digest()]


@pytest.mark.parametrize("tokens", [0, 4, 8])
def test_full_chunks_have_no_rest(tokens: int) -> None:
    array = token_array(range(tokens))

    assert chunk_digests(array, 4, b"s", unfull=True) == chunk_digests(array, 4, b"s")
