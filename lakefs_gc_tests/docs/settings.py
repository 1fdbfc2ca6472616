"""Generate the reference of the configuration from the fields of its pydantic models."""

from __future__ import annotations

from collections.abc import Iterator
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from lakefs_gc.config import Settings
from lakefs_gc.units import human_bytes
from lakefs_gc_tests.docs.markdown import sentence

_TYPES = {bool: "true or false", int: "whole number", float: "number", str: "text"}
_LIMITS = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than", "min_length": "length at least"}


def settings() -> str:
    """Return a section for each table of the configuration, and a heading for each setting in it."""
    top = [(name, field) for name, field in Settings.model_fields.items() if _model(field) is None]
    sections = ["## Top level\n\n" + "\n\n".join(_setting(name, field) for name, field in top)]
    return "\n\n".join([*sections, *_tables("", Settings)])


def names() -> Iterator[str]:
    """Yield every setting by its full name, and every table."""
    yield from _names("", Settings)


def _names(prefix: str, model: type[BaseModel]) -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield prefix + name
        if (inner := _model(field)) is not None:
            yield from _names(f"{prefix}{name}.", inner)


def _tables(prefix: str, model: type[BaseModel]) -> Iterator[str]:
    for name, field in model.model_fields.items():
        inner = _model(field)
        if inner is None:
            continue
        path = prefix + name
        own = [(key, value) for key, value in inner.model_fields.items() if _model(value) is None]
        about = sentence(field.description or inner.__doc__ or "")
        listed = "\n\n".join(_setting(f"{path}.{key}", value) for key, value in own)
        yield f"## `[{path}]`\n\n{about}\n\n{listed}"
        yield from _tables(f"{path}.", inner)


def _setting(name: str, field: FieldInfo) -> str:
    limits = [f"{_LIMITS[key]} {_number(name, limit)}" for key, limit in _limits(field)]
    facts = ", ".join([_type(field.annotation), *limits])
    default = "required" if field.is_required() else f"default {_default(name, field)}"
    return f"### `{name}`\n\n*{facts[0].upper()}{facts[1:]}; {default}.*\n\n{sentence(field.description or '')}"


def _model(field: FieldInfo) -> type[BaseModel] | None:
    kinds = [field.annotation, *get_args(field.annotation)]
    return next((k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)), None)


def _limits(field: FieldInfo) -> Iterator[tuple[str, Any]]:
    for rule in field.metadata:
        for key in _LIMITS:
            if (limit := getattr(rule, key, None)) is not None:
                yield key, limit


def _type(annotation: Any) -> str:
    if annotation in _TYPES:
        return _TYPES[annotation]
    if get_origin(annotation) is Literal:
        *most, last = (f"`{value}`" for value in get_args(annotation))
        return f"{', '.join(most)} or {last}"
    if get_origin(annotation) in (Union, UnionType):
        return " or ".join(_type(kind) for kind in get_args(annotation) if kind is not type(None))
    if get_origin(annotation) is tuple:
        return "list of texts"
    if get_origin(annotation) is dict:
        return "table of names and values"
    raise TypeError(f"the reference has no words for a setting of type {annotation!r}")


def _default(name: str, field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True)
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, int | float):
        return _number(name, value)
    return "empty" if not value else f"`{value}`"


def _number(name: str, value: float) -> str:
    """Return a number as TOML takes it; a large number of bytes with its unit beside it."""
    written = f"`{value:g}`" if isinstance(value, float) else f"`{value}`"
    return f"{written} ({human_bytes(int(value))})" if name.endswith("_bytes") and value >= 1024 else written
