from dataclasses import dataclass

import pytest

from lmcache_plugins.upstream.keys import KeyMapper


@dataclass(slots=True)
class Key:
    """As LMCache writes a key."""

    chunk: str = "abc"
    model_name: str = "acme/model"
    world_size: int = 2
    worker_id: int = 1
    dtype: str = "torch.bfloat16"
    tags: str = ""

    def to_string(self) -> str:
        return f"{self.model_name}@{self.world_size}@{self.worker_id}@{self.chunk}@bfloat16{self.tags}"


def mapper(shape: tuple[int, ...] = (2, 3, 256, 32), chunk_tokens: int = 256) -> KeyMapper:
    return KeyMapper([shape], ["torch.bfloat16"], chunk_tokens, 98304)


def test_a_key_is_the_same_in_every_process() -> None:
    assert str(mapper().map(Key())) == (
        "acme%2Fmodel@2@1@bfloat16@256@ddf076faacd4bae4/"
        "ff2b7b03b43efa5605d7ceff408caf264c6c35d6ea55bc8c1dd8217304124e53"
    )


def test_its_frame_is_a_header_and_a_full_chunk() -> None:
    assert mapper().map(Key()).namespace.frame_bytes == 128 + 98304


@pytest.mark.parametrize(
    "other",
    [
        Key(chunk="abd"),
        Key(model_name="acme/other"),
        Key(world_size=4),
        Key(worker_id=0),
        Key(dtype="torch.float16"),
        Key(tags="@user%1"),
    ],
)
def test_another_key_never_meets_it(other: Key) -> None:
    assert mapper().map(other).digest != mapper().map(Key()).digest


def test_an_engine_with_chunks_of_another_shape_never_meets_it() -> None:
    assert mapper((2, 4, 256, 32)).map(Key()).digest != mapper().map(Key()).digest
    assert mapper(chunk_tokens=128).map(Key()).digest != mapper().map(Key()).digest
