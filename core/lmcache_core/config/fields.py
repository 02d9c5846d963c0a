"""Walking through the models: which field is at a path, and which model a table has."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticSerializationError, to_json

from lmcache_core.config.origin import KeyPath, Tree


def fields_of(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Give a model's fields by the key that users write."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def table_model(annotation: Any) -> type[BaseModel] | None:
    """Give the model of a field that is a table, optional or not; else None."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in {tuple, list, dict, set, frozenset}:
        return None
    models = [model for part in get_args(annotation) if (model := table_model(part)) is not None]
    return models[0] if len(models) == 1 else None


def item_model(annotation: Any) -> type[BaseModel] | None:
    """Give the model of the items of a list of tables; else None."""
    if get_origin(annotation) in {tuple, list}:
        return table_model(get_args(annotation)[0])
    models = [model for part in get_args(annotation) if (model := item_model(part)) is not None]
    return models[0] if len(models) == 1 else None


def field_at(model: type[BaseModel], path: KeyPath) -> FieldInfo | None:
    """Give the field at a path; a key inside a field that is no table has that field."""
    found: FieldInfo | None = None
    here: type[BaseModel] | None = model
    for key in path:
        if here is None:
            return found
        if isinstance(key, int):
            continue
        found = fields_of(here).get(key)
        if found is None:
            return None
        here = table_model(found.annotation) or item_model(found.annotation)
    return found


def leaf_paths(model: type[BaseModel], prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Give the path of every key that is no table, in the model's order."""
    for name, field in fields_of(model).items():
        table = table_model(field.annotation)
        if table is None:
            yield (*prefix, name)
        else:
            yield from leaf_paths(table, (*prefix, name))


def strict_errors(field: FieldInfo, value: object) -> list[ErrorDetails]:
    """Judge one value by its field alone, without any conversion between text, numbers and booleans.

    Paths, enumerations, dates and secrets are written as text, as in JSON.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return [{"type": "finite_number", "loc": (), "msg": "", "input": value}]
    try:
        text = to_json(value, inf_nan_mode="constants")
    except PydanticSerializationError:  # half a surrogate pair: os.environ has it for bytes that are no UTF-8
        return [{"type": "string_unicode", "loc": (), "msg": "", "input": value}]
    annotation: Any = field.annotation
    if field.metadata:
        parts: Any = (annotation, *field.metadata)
        annotation = Annotated[parts]
    adapter: TypeAdapter[Any] = TypeAdapter(annotation)
    try:
        adapter.validate_json(text, strict=True)
    except ValidationError as error:
        return error.errors(include_url=False)
    return []


def is_type_error(error: ErrorDetails) -> bool:
    """Tell whether a value is of the wrong type as a whole, rather than out of its bounds."""
    return not error["loc"] and error["type"].endswith(("_type", "_parsing"))


def leaves(model: type[BaseModel], tree: Tree, prefix: KeyPath = ()) -> Iterator[tuple[KeyPath, FieldInfo, object]]:
    """Give every key that is no table, with its field and value; unknown keys are passed over."""
    fields = fields_of(model)
    for key, value in tree.items():
        if key not in fields:
            continue
        path = (*prefix, key)
        field = fields[key]
        table, item = table_model(field.annotation), item_model(field.annotation)
        if table is not None and isinstance(value, dict):
            yield from leaves(table, value, path)
        elif item is not None and isinstance(value, list):
            for index, entry in enumerate(value):
                if isinstance(entry, dict):
                    yield from leaves(item, entry, (*path, index))
        else:
            yield path, field, value
