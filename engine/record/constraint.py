"""Constraint: what a text may be, as a visitor writes it: `json:` and a schema, `regex:` and a pattern, `lark:` and a grammar, or "".

Knows words and limits; knows no tokenizer. `engine.models.constraint` compiles what passes here.
"""

import re
from typing import Any

from engine.record.parsing import format_value_for_error, has_lone_surrogate, parse_json

KINDS = {"json": "JSON schema", "regex": "regular expression", "lark": "Lark grammar"}
LONGEST = 8_000  # characters
MOST_MULTIPLE = 1_000  # of all "multipleOf" of a schema together: its automaton has a state for every remainder
MULTIPLE = "multipleOf"
# Of a grammar: what is no syntax, and what llguidance adds to Lark: control tokens, other grammars, options of rules, parameters
LITERAL = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|#[^\n]*|/(?:\\.|[^/\\\n])+/')
ADDED = re.compile(r"%(?!ignore\b|import\b)\w*|<[^>\n]*>?|@[\w-]*|::|^\s*[\w-]+\s*\[[^]]*\]\s*:", re.MULTILINE)


def validate_constraint(constraint: object) -> str:
    """The constraint, "" for none. Raises `ValueError` for a kind that is unknown, for too long a text, and for no JSON schema."""
    if constraint == "":
        return ""
    if not isinstance(constraint, str):
        raise ValueError(
            f"The constraint must be a text such as regex:[a-z]+, got {format_value_for_error(constraint)}."
        )
    kind, colon, text = constraint.partition(":")
    if not colon or kind not in KINDS:
        raise ValueError(
            "The constraint begins with json: and a JSON schema, regex: and a regular expression, or lark: and a Lark grammar, "
            f"got {format_value_for_error(constraint)}."
        )
    if not text.strip():
        raise ValueError(f"The constraint is empty. Write a {KINDS[kind]} behind {kind}:, or leave the constraint out.")
    if len(constraint) > LONGEST:
        raise ValueError(
            f"The constraint has {len(constraint):,} characters; at most {LONGEST:,} are read. Shorten it."
        )
    if has_lone_surrogate(constraint) or "\0" in constraint:
        raise ValueError("The constraint holds half a character or a zero byte, which no pattern can. Write it anew.")
    if kind == "json":
        schema = parse_json(text, 4 * LONGEST, "The JSON schema")
        if not isinstance(schema, dict):
            raise ValueError(
                f'The JSON schema must be an object such as {{"type": "object"}}, got {format_value_for_error(schema)}.'
            )
        refuse_fractional_or_large_multiples(schema)
    if kind == "lark" and (added := ADDED.search(LITERAL.sub('""', text))):
        raise ValueError(
            f"The Lark grammar holds {format_value_for_error(added[0].strip())}, which is not Lark's own. "
            "Write it with rules, terminals, %ignore and %import."
        )
    return constraint


def refuse_fractional_or_large_multiples(schema: Any) -> None:
    """Raises `ValueError` where the remainders that a schema tells apart are too many to compile within a second."""
    product, left = 1, [schema]
    while left:
        value = left.pop()
        if isinstance(value, dict):
            multiple = value.get(MULTIPLE, 1)
            left += value.values()
            if isinstance(multiple, dict | list | str | bool | None):  # a property of that name, or no schema
                continue
            if multiple != int(multiple) or multiple < 1:
                raise ValueError(
                    f"{MULTIPLE} must be a whole number of at least 1 here, got {format_value_for_error(multiple)}."
                )
            product *= int(multiple)
        elif isinstance(value, list):
            left += value
    if product > MOST_MULTIPLE:
        raise ValueError(
            f"The {MULTIPLE} of the schema come to {format_value_for_error(product)} together; at most {MOST_MULTIPLE:,} is compiled. "
            "Leave one out."
        )
