import copy
import pickle

import pytest
from pydantic import BaseModel, ValidationError

from lmcache_core.config.address import StoreAddress

TEXT = "redis://user:hunter2@cache-1:6379/0?password=hunter2"


def test_str_leaves_credentials_and_query_out() -> None:
    assert str(StoreAddress(TEXT)) == "redis://cache-1:6379/0"


def test_repr_leaves_credentials_and_query_out() -> None:
    assert repr(StoreAddress(TEXT)) == "StoreAddress('redis://cache-1:6379/0')"


def test_parsed_has_the_password() -> None:
    assert StoreAddress(TEXT).parsed.password == "hunter2"


def test_equal_where_all_parts_are() -> None:
    assert StoreAddress(TEXT) == StoreAddress(TEXT)
    assert StoreAddress(TEXT) != StoreAddress("redis://cache-1:6379/0")
    assert len({StoreAddress(TEXT), StoreAddress(TEXT)}) == 1


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_survives_copying(clone) -> None:
    assert clone(StoreAddress(TEXT)) == StoreAddress(TEXT)


class Holder(BaseModel):
    url: StoreAddress


def test_a_model_dumps_it_without_credentials() -> None:
    assert Holder(url=TEXT).model_dump_json() == '{"url":"redis://cache-1:6379/0"}'


def test_a_model_takes_text_only() -> None:
    with pytest.raises(ValidationError):
        Holder(url=5)


def test_schema_says_that_it_is_not_to_be_shown() -> None:
    assert Holder.model_json_schema()["properties"]["url"] == {
        "format": "uri",
        "title": "Url",
        "type": "string",
        "writeOnly": True,
    }
