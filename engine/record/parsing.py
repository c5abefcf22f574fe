"""Parsing: values from outside become dataclasses, by the types of their fields. Whatever does not fit gets a sentence.

pydantic checks them. It is imported with the first value that needs it, because the opening page comes before it. Knows no race.
"""

import json
import re
from dataclasses import dataclass, is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args, get_type_hints

if TYPE_CHECKING:
    from pydantic import TypeAdapter

LARGEST_INT, LONGEST_TEXT = 2**53, 20_000
SHOWN_NAMES = 3  # of fields that are missing or unknown
HALVES = re.compile("[\ud800-\udfff]")
NAMES = {dict: "an object", list: "a list", tuple: "a list", str: "a text", bool: "true or false", type(None): "null"}
EXPECTED = {  # pydantic's errors about a value's type
    "dataclass_type": NAMES[dict],
    "dict_type": NAMES[dict],
    "list_type": NAMES[list],
    "string_type": NAMES[str],
    "bool_type": NAMES[bool],
    "int_type": "a whole number",
    "float_type": "a number",
    "plain_type": "a short text, a number, true or false",
}
# As `__pydantic_config__` of every dataclass that is read from outside
CLOSED: dict[str, Any] = {"extra": "forbid", "str_max_length": LONGEST_TEXT, "allow_inf_nan": False}


@dataclass(frozen=True, eq=False)
class PydanticFieldRule:
    """What a type does not say, as annotation of a field: `checks` of pydantic's core schema; `told` in the JSON Schema only."""

    checks: dict[str, Any]
    told: dict[str, Any]

    def __get_pydantic_core_schema__(self, kind: Any, handler: Any) -> dict[str, Any]:
        return handler(kind) | self.checks

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        return handler(schema) | self.told


def build_check_rule(**checks: Any) -> PydanticFieldRule:
    return PydanticFieldRule(checks, {})


def build_schema_rule(**words: Any) -> PydanticFieldRule:
    return PydanticFieldRule({}, words)


def build_length_rule(least: int, most: int) -> PydanticFieldRule:
    """How many entries a list has. The reader of the whole says so in its own words."""
    return build_schema_rule(minItems=least, maxItems=most)


def build_choice_rule(*known: str) -> PydanticFieldRule:
    return build_check_rule(type="literal", expected=list(known))


Each = TypeVar("Each")
Listed = Annotated[list[Each], build_check_rule(fail_fast=True)]  # or a list of wrong values would be a list of errors
Whole = Annotated[int, build_check_rule(strict=True, ge=-LARGEST_INT, le=LARGEST_INT)]
Count = Annotated[int, build_check_rule(strict=True, ge=0, le=LARGEST_INT)]
Several = Annotated[int, build_check_rule(strict=True, ge=1, le=LARGEST_INT)]
Number = Annotated[float, build_check_rule(strict=True)]
Share = Annotated[float, build_check_rule(strict=True, ge=0)]
Truth = Annotated[bool, build_check_rule(strict=True)]
DIGITS = {"type": "str", "pattern": "^[0-9]{1,9}$", "strict": True}
Key = Annotated[int, build_check_rule(type="chain", steps=[DIGITS, {"type": "int"}])]  # JSON writes every key as a text


def parse_json(text: str, most_bytes: int, name: str = "The file") -> Any:
    """The values of a JSON text. Raises `ValueError` when it is none, too large, or says what JSON cannot: NaN, infinity."""
    size = len(text)
    if size <= most_bytes:  # characters; a text with too many need not be encoded
        size = len(text.encode("utf-8", "surrogatepass"))
    if size > most_bytes:
        raise ValueError(f"{name} has {size / 1e6:.1f} MB; at most {most_bytes / 1e6:.0f} MB are read.")
    try:
        return json.loads(text, parse_constant=refuse_non_finite)
    except RecursionError:
        raise ValueError(f"{name} is nested too deeply.") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{name} is no JSON: {error.msg} in line {error.lineno}, column {error.colno}.") from None
    except NonFiniteNumber:
        raise
    except ValueError:  # Python reads 4,300 digits
        raise ValueError(f"{name} holds too large a number: at most 2^53 is read.") from None


class NonFiniteNumber(ValueError):
    pass


def refuse_non_finite(name: str) -> None:
    raise NonFiniteNumber(f"{name} is no number. Numbers must be finite.")


def build_validated(kind: Any, value: Any, where: str) -> Any:
    """The values of a JSON text as `kind`: a dataclass with the config `CLOSED`, or a type of its fields. `where` names it in errors.

    Raises `ValueError` with a sentence about the first value that does not fit.
    """
    from pydantic import ValidationError

    try:
        return build_pydantic_adapter(kind).validate_python(value)
    except ValidationError as error:
        raise ValueError(describe_first_pydantic_error(kind, error.errors(include_url=False), where)) from None


def build_unvalidated(kind: Any, value: Any) -> Any:
    """The values of a JSON text as `kind` without any check, for the project's own files: the opening page waits for no library."""
    if is_dataclass(kind):
        types = field_types_of(kind)  # type: ignore[arg-type]
        return kind(**{name: build_unvalidated(types[name], each) for name, each in value.items()})  # type: ignore[operator]
    match get_args(kind):
        case [inner] if is_dataclass(inner):
            return [build_unvalidated(inner, each) for each in value]
        case [key, inner]:
            return {key(name): build_unvalidated(inner, each) for name, each in value.items()}
    return value


@cache
def build_pydantic_adapter(kind: Any) -> "TypeAdapter":
    from pydantic import TypeAdapter

    return TypeAdapter(kind, config=None if is_dataclass(kind) else CLOSED)  # type: ignore[arg-type]


@cache
def field_types_of(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def describe_first_pydantic_error(kind: Any, errors: list[Any], where: str) -> str:
    """The first of pydantic's errors about a value of this kind, for the person who sent it."""
    what, place, value, about = (errors[0].get(name) for name in ("type", "loc", "input", "ctx"))
    if what in ("missing", "unexpected_keyword_argument"):
        of, where = type_and_name_at_path(kind, place[:-1], where)
        beside = [each for each in errors if each["loc"][:-1] == place[:-1]]
        missing, unknown = (
            join_first_names(sorted(each["loc"][-1] for each in beside if each["type"] == wrong))
            for wrong in ("missing", "unexpected_keyword_argument")
        )
        return f"{where or 'The file'} is no {of.__name__}: missing {missing or 'nothing'}, unknown {unknown or 'nothing'}."
    if place[-1:] == ("[key]",):
        place = place[:-2]
    where = type_and_name_at_path(kind, place, where)[1] or "The file"
    if what == "string_pattern_mismatch":
        return f"The keys of {where} must be whole numbers, got {quote(value)}."
    if what in EXPECTED:
        return f"{where} must be {EXPECTED[what]}, got {quote(value)}."
    if what == "literal_error":
        return f"{where} must be one of {about['expected'].replace(' or ', ', ')}, got {quote(value)}."
    if what == "string_too_long":
        return f"{where} has {len(value):,} characters; at most {LONGEST_TEXT:,} are read."
    if what == "string_unicode":
        return f"{where} holds half a character (a lone surrogate), which no text can."
    if what == "greater_than_equal" and (isinstance(value, float) or value >= -LARGEST_INT):
        least = "holds a negative number," if about["ge"] == 0 else f"must be {about['ge']} or more, got"
        return f"{where} {least} {quote(value)}."
    if what == "finite_number":
        return f"{where} must be finite."
    return f"{where} is too large a number: at most 2^53 is read."


def type_and_name_at_path(kind: Any, error_path: tuple[int | str, ...], where: str) -> tuple[Any, str]:
    """The kind of the value at that place in one of this kind, and its name in a sentence."""
    for each in error_path:
        if is_dataclass(kind):
            kind, where = field_types_of(kind)[str(each)], f"{where}.{each}".lstrip(".")  # type: ignore[arg-type]
        else:
            kind, where = get_args(kind)[-1], f"{where}[{each if isinstance(each, int) else quote(each)}]"
    return kind, where


def join_first_names(names: list[str]) -> str:
    """The first few of the names."""
    more = ["…"] if len(names) > SHOWN_NAMES else []
    return ", ".join([*map(quote, names[:SHOWN_NAMES]), *more])


def validate_type(kind: type, value: Any, where: str) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"{where or 'The file'} must be {NAMES[kind]}, got {quote(value)}.")
    return value


def has_lone_surrogate(*values: str) -> bool:
    """Whether any text holds half a character, a lone surrogate."""
    return any(not value.isascii() and HALVES.search(value) for value in values)


def quote(value: Any) -> str:
    """The value as it stands in a sentence: at most 40 characters on one line, and never half a character."""
    if isinstance(value, dict | list | tuple | bool | None):
        return NAMES[type(value)]
    words = repr(value) if isinstance(value, str | float) else "a number" if abs(value) > LARGEST_INT else f"{value:,}"
    words = words.encode("utf-8", "replace").decode()
    return words if len(words) <= 40 else f"{words[:39]}…"
