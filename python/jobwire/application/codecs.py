"""Codecs: values that JSON does not have, by the annotation of a parameter. [PUSH-5]

msgspec does the work: it knows dates, `UUID`, `Decimal`, enums, tuples, sets, bytes, dataclasses,
attrs classes, `TypedDict` and its own structs. Models of pydantic encode and decode themselves.
"""

from __future__ import annotations

import typing
from types import NoneType, SimpleNamespace, UnionType
from typing import Annotated, Any, ForwardRef, Literal, NewType, TypeVar, Union

import msgspec

from jobwire.errors import InvalidJob
from jobwire.protocol.arguments import check_offsets, check_value, show, to_json
from jobwire.protocol.payload import encode

__all__ = ["Codec", "Unresolved", "Untravelling", "make_codec", "resolve"]

_PLAIN = {Any, object, str, int, float, bool, None, NoneType, list, dict}
_JSON = (str, int, float, bool, NoneType, list, dict)
_COMPOUND = (Union, UnionType, list, dict, typing.Required, typing.NotRequired)
_ALIAS: Any = getattr(typing, "TypeAliasType", ())  # of `type X = ...`, from Python 3.12


class Untravelling(TypeError):
    """Values of an annotated type have no form in a payload."""


class Codec:
    """Converts the values of one parameter to JSON values, and back.

    Args:
        annotation: The type of the parameter.
    """

    def __init__(self, annotation: Any) -> None:
        # msgspec keeps what it has found out about a type only with a struct.
        self._shape = msgspec.defstruct("Argument", [("value", annotation)], array_like=True)

    def encode(self, value: object) -> Any:
        """Return a value as JSON values. A value that already has this form is also accepted.

        Raises:
            ValueError: The worker could not decode it.
        """
        try:
            wire = to_json(value, enc_hook=_encode_other)
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(str(error)) from error
        self.decode(wire)
        return wire

    def decode(self, wire: object) -> Any:
        """Return the value for the job.

        Raises:
            ValueError: The JSON value does not fit the type.
        """
        try:
            shaped: Any = msgspec.convert(
                [wire], self._shape, str_keys=True, dec_hook=_decode_other
            )
        except (msgspec.ValidationError, RecursionError) as error:
            raise ValueError(str(error).replace(" - at `$[0]`", "").replace("$[0]", "$")) from error
        return shaped.value


class Unresolved(Codec):
    """Takes the place of a codec if an annotation names a type that does not exist at run time.

    Args:
        problem: The error of the annotation.
    """

    def __init__(self, problem: str) -> None:
        self._problem = problem

    def encode(self, value: object) -> Any:
        """Return the value unchanged, like that of a parameter without annotation.

        Raises:
            ValueError: It is not a JSON value, or a value inside it is none. The text says why
                its annotation has no effect.
        """
        try:
            check_value(value, "args", depth=2)
            return value
        except InvalidJob as error:
            if error.rule != "PUSH-5":
                return value  # the client refuses it, and no annotation would help
        raise ValueError(
            f"the annotation has no effect ({self._problem}); import the type outside of "
            "TYPE_CHECKING, and define it at the top of a module"
        )

    def decode(self, wire: object) -> Any:
        """Return the value unchanged."""
        return wire


def resolve(annotation: Any, names: dict[str, Any]) -> Any:
    """Return the type that an annotation stands for; it may be a string.

    Args:
        annotation: As `inspect.signature` returns it.
        names: The global names of the function.

    Raises:
        NameError: The annotation names a type that does not exist (yet).
    """
    try:
        holder: Any = SimpleNamespace(__annotations__={"it": annotation})
        return typing.get_type_hints(holder, names, include_extras=True)["it"]
    except Exception as error:  # an annotation is code, which may raise any error
        raise NameError(f"{type(error).__name__}: {error}") from error


def make_codec(annotation: Any) -> Codec | None:
    """Return the codec for a type; None if JSON has the type, so that nothing is to be done.

    Raises:
        Untravelling: Its values have no form in a payload.
        NameError: A type inside it names a type that does not exist.
    """
    try:
        if _is_plain(annotation, set()):
            return None
        from msgspec import inspect  # only here, because most jobs do not need it

        info = inspect.type_info(annotation)
    except NameError:
        raise
    except Exception as error:  # the annotations inside a class are code
        raise Untravelling(str(error)) from error
    if isinstance(info, inspect.CustomType) and _accepts_json(info.cls):
        return None
    unread: list[Any] = [info]
    seen: set[int] = set()
    while unread:
        info = unread.pop()
        if isinstance(info, tuple):
            unread += info
        elif isinstance(info, inspect.Type | inspect.Field) and id(info) not in seen:
            seen.add(id(info))
            unread += (getattr(info, name) for name in info.__struct_fields__)
            if isinstance(info, inspect.CustomType) and not _travels(info.cls):
                raise Untravelling(f"there is no JSON form of {info.cls.__qualname__}")
    return Codec(annotation)


def _is_plain(kind: Any, seen: set[int]) -> bool:
    """True if JSON has the values of a type, and reading JSON would return them."""
    if isinstance(kind, NewType):
        return _is_plain(kind.__supertype__, seen)
    if isinstance(kind, _ALIAS):
        return _is_plain(kind.__value__, seen)
    if isinstance(kind, TypeVar):
        return kind.__bound__ is None or _is_plain(kind.__bound__, seen)
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if typing.is_typeddict(kind):
        if id(kind) in seen:
            return True
        seen.add(id(kind))
        parts = tuple(typing.get_type_hints(kind, include_extras=True).values())
    elif origin is None:
        return isinstance(kind, ForwardRef) or _is_member(kind, _PLAIN)
    elif origin is Annotated:
        constrained = any(isinstance(part, msgspec.Meta) for part in parts[1:])
        return not constrained and _is_plain(parts[0], seen)
    elif origin is Literal:
        return all(type(part) in _JSON for part in parts)
    elif origin not in _COMPOUND or (origin is dict and parts[:1] not in ((), (str,), (Any,))):
        return False
    return all(_is_plain(part, seen) for part in parts)


def _is_member(kind: Any, kinds: set[Any]) -> bool:
    try:
        return kind in kinds
    except TypeError:  # not hashable
        return False


def _is_model(kind: type) -> bool:
    """True for a model of pydantic 2, which need not be installed."""
    return hasattr(kind, "model_dump") and hasattr(kind, "model_validate_json")


def _accepts_json(kind: type) -> bool:
    """True if JSON values may be instances of a class, like those of `Iterable`."""
    try:
        return any(issubclass(json_type, kind) for json_type in _JSON)
    except TypeError:  # a protocol that does not exist at run time
        return False


def _travels(kind: type) -> bool:
    return _is_model(kind) or _accepts_json(kind)


def _encode_other(value: Any) -> Any:
    if _is_model(type(value)):
        check_offsets(value.model_dump())  # pydantic also leaves the seconds out
        return value.model_dump(mode="json", by_alias=True, round_trip=True)
    raise TypeError(f"{show(value)} is {type(value).__name__}, which has no JSON form")


def _decode_other(kind: Any, wire: Any) -> Any:
    if not _is_model(kind):
        return wire
    try:
        return kind.model_validate_json(encode(wire))
    except ValueError as error:
        raise ValueError(_one_line(error)) from error


def _one_line(error: Any) -> str:
    """Return the text of a `pydantic.ValidationError` without line breaks and addresses."""
    problems = error.errors() if hasattr(error, "errors") else ()
    return "; ".join(
        f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in problems
    ) or str(error)
