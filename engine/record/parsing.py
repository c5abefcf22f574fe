"""Parsing: values from outside become dataclasses, by the types of their fields. Whatever does not fit gets a sentence.

pydantic checks them. It is imported with the first value that needs it, because the opening page comes before it. Knows no race.
"""

import json
import re
from dataclasses import dataclass, is_dataclass
from datetime import date
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
    """What a type does not say, as annotation of a field: `core_schema_checks` of pydantic's core schema, and
    `json_schema_fields`, in the JSON Schema only.
    """

    core_schema_checks: dict[str, Any]
    json_schema_fields: dict[str, Any]

    def __get_pydantic_core_schema__(self, kind: Any, handler: Any) -> dict[str, Any]:
        return handler(kind) | self.core_schema_checks

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        return handler(schema) | self.json_schema_fields


def build_validation_only_rule(**checks: Any) -> PydanticFieldRule:
    return PydanticFieldRule(checks, {})


def build_json_schema_only_rule(**json_schema_fields: Any) -> PydanticFieldRule:
    return PydanticFieldRule({}, json_schema_fields)


def build_json_schema_length_rule(least: int, most: int) -> PydanticFieldRule:
    """How many entries a list has. The reader of the whole says so in its own words."""
    return build_json_schema_only_rule(minItems=least, maxItems=most)


def build_choice_rule(*allowed: str) -> PydanticFieldRule:
    return build_validation_only_rule(type="literal", expected=list(allowed))


Each = TypeVar("Each")
# Or a list of wrong values would be a list of errors
FailFastList = Annotated[list[Each], build_validation_only_rule(fail_fast=True)]
BoundedInt = Annotated[int, build_validation_only_rule(strict=True, ge=-LARGEST_INT, le=LARGEST_INT)]
NonNegativeInt = Annotated[int, build_validation_only_rule(strict=True, ge=0, le=LARGEST_INT)]
PositiveInt = Annotated[int, build_validation_only_rule(strict=True, ge=1, le=LARGEST_INT)]
FiniteFloat = Annotated[float, build_validation_only_rule(strict=True)]
NonNegativeFloat = Annotated[float, build_validation_only_rule(strict=True, ge=0)]
StrictBool = Annotated[bool, build_validation_only_rule(strict=True)]
DIGITS = {"type": "str", "pattern": "^[0-9]{1,9}$", "strict": True}
# JSON writes every key as a text
IntWrittenAsJsonKey = Annotated[int, build_validation_only_rule(type="chain", steps=[DIGITS, {"type": "int"}])]


def parse_json(text: str, max_bytes: int, name_in_error: str = "The file") -> Any:
    """The values of a JSON text. Raises `ValueError` when it is none, too large, or says what JSON cannot: NaN, infinity."""
    size = len(text)
    if size <= max_bytes:  # characters; a text with too many need not be encoded
        size = len(text.encode("utf-8", "surrogatepass"))
    if size > max_bytes:
        raise ValueError(f"{name_in_error} has {size / 1e6:.1f} MB; at most {max_bytes / 1e6:.0f} MB are read.")
    try:
        return json.loads(text, parse_constant=refuse_non_finite)
    except RecursionError:
        raise ValueError(f"{name_in_error} is nested too deeply.") from None
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{name_in_error} is no JSON: {error.msg} in line {error.lineno}, column {error.colno}."
        ) from None
    except NonFiniteNumber:
        raise
    except ValueError:  # Python reads 4,300 digits
        raise ValueError(f"{name_in_error} holds too large a number: at most 2^53 is read.") from None


class NonFiniteNumber(ValueError):
    pass


def refuse_non_finite(constant: str) -> None:
    raise NonFiniteNumber(f"{constant} is no number. Numbers must be finite.")


def convert_json_value_validated(target_type: Any, value: Any, name_in_error: str) -> Any:
    """The values of a JSON text as `target_type`: a dataclass with the config `CLOSED`, or a type of its fields. `name_in_error`
    names it in errors.

    Raises `ValueError` with a sentence about the first value that does not fit.
    """
    from pydantic import ValidationError

    try:
        return build_pydantic_adapter(target_type).validate_python(value)
    except ValidationError as error:
        raise ValueError(
            describe_first_pydantic_error(target_type, error.errors(include_url=False), name_in_error)
        ) from None


def convert_json_value_unvalidated(target_type: Any, value: Any) -> Any:
    """The values of a JSON text as `target_type` without any check, for the project's own files: the opening page waits for no
    library.
    """
    if is_dataclass(target_type):
        types = field_types_of(target_type)  # type: ignore[arg-type]
        values = {name: convert_json_value_unvalidated(types[name], each) for name, each in value.items()}
        return target_type(**values)  # type: ignore[operator]
    match get_args(target_type):
        case [inner] if is_dataclass(inner):
            return [convert_json_value_unvalidated(inner, each) for each in value]
        case [key, inner]:
            return {key(name): convert_json_value_unvalidated(inner, each) for name, each in value.items()}
    return value


@cache
def build_pydantic_adapter(target_type: Any) -> "TypeAdapter":
    from pydantic import TypeAdapter

    return TypeAdapter(target_type, config=None if is_dataclass(target_type) else CLOSED)  # type: ignore[arg-type]


@cache
def field_types_of(dataclass_type: Any) -> dict[str, Any]:
    return get_type_hints(dataclass_type)


def describe_first_pydantic_error(target_type: Any, errors: list[Any], name_in_error: str) -> str:
    """The first of pydantic's errors about a value of this kind, for the person who sent it."""
    what, place, value, about = (errors[0].get(name) for name in ("type", "loc", "input", "ctx"))
    if what in ("missing", "unexpected_keyword_argument"):
        of, name_in_error = type_and_name_at_path(target_type, place[:-1], name_in_error)
        beside = [each for each in errors if each["loc"][:-1] == place[:-1]]
        missing, unknown = (
            quote_and_join_first_names(sorted(each["loc"][-1] for each in beside if each["type"] == wrong))
            for wrong in ("missing", "unexpected_keyword_argument")
        )
        return f"{name_in_error or 'The file'} is no {of.__name__}: missing {missing or 'nothing'}, unknown {unknown or 'nothing'}."
    if place[-1:] == ("[key]",):
        place = place[:-2]
    name_in_error = type_and_name_at_path(target_type, place, name_in_error)[1] or "The file"
    if what == "string_pattern_mismatch":
        return f"The keys of {name_in_error} must be whole numbers, got {format_value_for_error(value)}."
    if what in EXPECTED:
        return f"{name_in_error} must be {EXPECTED[what]}, got {format_value_for_error(value)}."
    if what == "literal_error":
        return f"{name_in_error} must be one of {about['expected'].replace(' or ', ', ')}, got {format_value_for_error(value)}."
    if what == "string_too_long":
        return f"{name_in_error} has {len(value):,} characters; at most {LONGEST_TEXT:,} are read."
    if what == "string_unicode":
        return f"{name_in_error} holds half a character (a lone surrogate), which no text can."
    if what == "greater_than_equal" and (isinstance(value, float) or value >= -LARGEST_INT):
        least = "holds a negative number," if about["ge"] == 0 else f"must be {about['ge']} or more, got"
        return f"{name_in_error} {least} {format_value_for_error(value)}."
    if what == "finite_number":
        return f"{name_in_error} must be finite."
    return f"{name_in_error} is too large a number: at most 2^53 is read."


def type_and_name_at_path(outer_type: Any, error_path: tuple[int | str, ...], outer_name: str) -> tuple[Any, str]:
    """The kind of the value at that place in one of this kind, and its name in a sentence."""
    for each in error_path:
        if is_dataclass(outer_type):
            outer_type, outer_name = field_types_of(outer_type)[str(each)], f"{outer_name}.{each}".lstrip(".")  # type: ignore[arg-type]
        else:
            outer_type, outer_name = (
                get_args(outer_type)[-1],
                f"{outer_name}[{each if isinstance(each, int) else format_value_for_error(each)}]",
            )
    return outer_type, outer_name


def quote_and_join_first_names(names: list[str]) -> str:
    """The first few of the names."""
    more = ["…"] if len(names) > SHOWN_NAMES else []
    return ", ".join([*map(format_value_for_error, names[:SHOWN_NAMES]), *more])


def validate_type(expected_type: type, value: Any, name_in_error: str) -> Any:
    if not isinstance(value, expected_type):
        raise ValueError(
            f"{name_in_error or 'The file'} must be {NAMES[expected_type]}, got {format_value_for_error(value)}."
        )
    return value


def has_lone_surrogate(*texts: str) -> bool:
    """Whether any text holds half a character, a lone surrogate."""
    return any(not value.isascii() and HALVES.search(value) for value in texts)


def format_value_for_error(value: Any) -> str:
    """The value as it stands in a sentence: at most 40 characters on one line, and never half a character."""
    if isinstance(value, dict | list | tuple | bool | None):
        return NAMES[type(value)]
    words = repr(value) if isinstance(value, str | float) else "a number" if abs(value) > LARGEST_INT else f"{value:,}"
    words = words.encode("utf-8", "replace").decode()
    return words if len(words) <= 40 else f"{words[:39]}…"


def require(condition: bool, sentence: str) -> None:
    if not condition:
        raise ValueError(sentence)


def validate_length(values: list, limits: tuple[int, int], name_in_error: str, entries_in_error: str) -> None:
    least, most = limits
    require(
        least <= len(values) <= most,
        f"{name_in_error} must hold {least} to {most:,} {entries_in_error}, got {len(values):,}.",
    )


def validate_equal_length(values: list, others: list, name_in_error: str, others_in_error: str) -> None:
    require(
        len(values) == len(others),
        f"{name_in_error} must be as long as {others_in_error}: {len(others)}, got {len(values)}.",
    )


def is_iso_day(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False
