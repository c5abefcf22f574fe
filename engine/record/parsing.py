"""Parsing: plain values become dataclasses, by the types of their fields. Whatever does not fit gets a sentence.

Standard library only; knows no race.
"""

import json
import math
import re
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

LARGEST_INT, LONGEST_TEXT = 2**53, 20_000
SHOWN_NAMES = 3  # of fields that are missing or unknown
PLAIN = (str, int, float)
MAY_LACK = {"older": True}  # of a dataclass's field: what was written before it existed is read with its default
HALVES = re.compile("[\ud800-\udfff]")
NAMES = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}


def parse(text: str, most_bytes: int, what: str = "The file") -> Any:
    """The values of a JSON text. Raises `ValueError` when it is none, too large, or says what JSON cannot: NaN, infinity."""
    size = len(text)
    if size <= most_bytes:  # characters; a text with too many need not be encoded
        size = len(text.encode("utf-8", "surrogatepass"))
    if size > most_bytes:
        raise ValueError(f"{what} has {size / 1e6:.1f} MB; at most {most_bytes / 1e6:.0f} MB are read.")
    try:
        return json.loads(text, parse_constant=no_number)
    except RecursionError:
        raise ValueError(f"{what} is nested too deeply.") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{what} is no JSON: {error.msg} in line {error.lineno}, column {error.colno}.") from None
    except NoNumber:
        raise
    except ValueError:  # Python reads 4,300 digits
        raise ValueError(f"{what} holds too large a number: at most 2^53 is read.") from None


class NoNumber(ValueError):
    pass


def no_number(name: str) -> None:
    raise NoNumber(f"{name} is no number. Numbers must be finite.")


def build(kind: Any, value: Any, where: str) -> Any:
    """`value` as `kind`: a dataclass, `list[...]`, `dict[..., ...]`, `str`, `bool`, `int` or `float`. `where` names it in errors."""
    if isinstance(kind, type) and is_dataclass(kind):
        check_fields(kind, value, where)
        types = types_of(kind)
        return kind(**{name: build(types[name], each, f"{where}.{name}".lstrip(".")) for name, each in value.items()})
    if get_origin(kind) is list:
        [inner] = get_args(kind)
        if inner in PLAIN and isinstance(value, list) and plain(inner, value):
            return list(map(inner, value)) if inner is float else value
        return [build(inner, each, f"{where}[{at}]") for at, each in enumerate(expect(list, value, where))]
    if get_origin(kind) is dict:
        key, inner = get_args(kind)
        items = expect(dict, value, where).items()
        return {build_key(key, name, where): build(inner, each, f"{where}[{shown(name)}]") for name, each in items}
    if kind is bool:
        return expect(bool, value, where)
    return text(value, where) if kind is str else number(kind, value, where)


def plain(kind: type, values: list) -> bool:
    """Whether these are texts or numbers that `build` takes as they are. Long lists are read by this, in a tenth of the time."""
    found = set(map(type, values))
    if kind is str:
        return found <= {str} and len("".join(values)) <= LONGEST_TEXT and not holds_half(*values)
    if kind is int:
        return found <= {int} and -LARGEST_INT <= min(values, default=0) <= max(values, default=0) <= LARGEST_INT
    if not found <= {int, float} or (int in found and max(map(abs, values)) > LARGEST_INT):
        return False
    return all(map(math.isfinite, values))


@cache
def types_of(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def check_fields(kind: type, value: Any, where: str) -> None:
    expected = {each.name for each in fields(kind)}
    needed = {each.name for each in fields(kind) if each.metadata != MAY_LACK}
    found = set(expect(dict, value, where))
    if not needed <= found <= expected:
        missing, unknown = (named(sorted(each)) for each in (needed - found, found - expected))
        raise ValueError(
            f"{where or 'The file'} is no {kind.__name__}: missing {missing or 'nothing'}, unknown {unknown or 'nothing'}."
        )


def named(names: list[str]) -> str:
    """The first few of the names."""
    more = ["…"] if len(names) > SHOWN_NAMES else []
    return ", ".join([*map(shown, names[:SHOWN_NAMES]), *more])


def expect(kind: type, value: Any, where: str) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"{where or 'The file'} must be {NAMES[kind]}, got {shown(value)}.")
    return value


def text(value: Any, where: str) -> str:
    if len(expect(str, value, where)) > LONGEST_TEXT:
        raise ValueError(f"{where} has {len(value):,} characters; at most {LONGEST_TEXT:,} are read.")
    if holds_half(value):
        raise ValueError(f"{where} holds half a character (a lone surrogate), which no text can.")
    return value


def holds_half(*values: str) -> bool:
    """Whether any text holds half a character, a lone surrogate."""
    return any(not value.isascii() and HALVES.search(value) for value in values)


def number(kind: type, value: Any, where: str) -> int | float:
    what = "a whole number" if kind is int else "a number"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{where} must be {what}, got {shown(value)}.")
    if isinstance(value, int) and abs(value) > LARGEST_INT:
        raise ValueError(f"{where} is too large a number: at most 2^53 is read.")
    if not math.isfinite(value):
        raise ValueError(f"{where} must be finite.")
    if kind is int and value != int(value):
        raise ValueError(f"{where} must be {what}, got {value}.")
    return kind(value)


def build_key(kind: type, name: str, where: str) -> Any:
    """A key of JSON, which is always a text, as the text or whole number that it stands for."""
    if kind is str:
        return text(name, where)
    if not (name.isascii() and name.isdigit() and len(name) < 10):
        raise ValueError(f"The keys of {where} must be whole numbers, got {shown(name)}.")
    return int(name)


def shown(value: Any) -> str:
    """The value as it stands in a sentence: at most 40 characters on one line, and never half a character."""
    if isinstance(value, dict | list | bool | None):
        return NAMES[type(value)]
    words = repr(value) if isinstance(value, str | float) else "a number" if abs(value) > LARGEST_INT else f"{value:,}"
    words = words.encode("utf-8", "replace").decode()
    return words if len(words) <= 40 else f"{words[:39]}…"
