"""Constraints as they are written: wrong and hostile ones get a sentence, from a field, over the API and from commands."""

import json
import time

import pytest

from engine.__main__ import build_command_parser
from engine.measure.options import constraint_of_options
from engine.models import constraint_trial
from engine.models.constraint import compile_pair_constraint
from engine.models.constraint_trial import explain_uncompilable_by_trial_process
from engine.race import Race, Settings
from engine.record.constraint import LONGEST, validate_constraint
from helpers.pairs import bound_pair

PROMPT = "Once: "


@pytest.fixture(scope="module")
def pair():
    return bound_pair()


@pytest.mark.parametrize(
    ("constraint", "sentence"),
    [
        (7, "must be a text such as"),
        ("yes", "begins with json: and a JSON schema, regex: and a regular expression, or lark: and"),
        ("xml:<a>", "begins with json:"),
        ("lark:", "The constraint is empty. Write a Lark grammar behind lark:"),
        (
            "lark:start: <|endoftext|>",
            r"holds '<\|endoftext\|>', which is not Lark's own. Write it with rules, terminals",
        ),
        ("lark:start: <[7]>", "which is not Lark's own"),
        ('lark:start: %json {"multipleOf": 99991}', "holds '%json'"),
        ("lark:start: @other", "holds '@other'"),
        ("lark:start: a\na[max_tokens=3]: /.*/", "which is not Lark's own"),
        ("lark:start: a::1", "which is not Lark's own"),
        ('lark:start: "a\\"" <x> "b"', "holds '<x>'"),
        ("regex:", "The constraint is empty. Write a regular expression behind regex:"),
        ("json:  ", "The constraint is empty"),
        ("json:{", "The JSON schema is no JSON"),
        ("json:[1]", "must be an object"),
        ("json:" + '{"a":' * 700 + "1" + "}" * 700, "nested too deeply|cannot be compiled"),
        ("regex:" + "a" * LONGEST, f"8,006 characters; at most {LONGEST:,}"),
        ("regex:\ud800", "half a character"),
        ("regex:a\0b", "zero byte"),
        ('json:{"multipleOf": 0.01}', "multipleOf must be a whole number"),
        ('json:{"multipleOf": 99991}', "multipleOf of the schema come to 99,991 together"),
        ('json:{"allOf": [{"multipleOf": 997}, {"multipleOf": 991}]}', "come to 988,027 together"),
    ],
)
def test_what_is_no_constraint_gets_a_sentence(pair, constraint, sentence):
    with pytest.raises(ValueError, match=sentence):
        compile_pair_constraint(pair, Settings(PROMPT, constraint=constraint).constraint)


@pytest.mark.parametrize(
    ("constraint", "sentence"),
    [
        ("regex:(", "The regular expression cannot be compiled: .*regex"),
        ("regex:(?=a)b", "The regular expression cannot be compiled"),
        ("lark:begin: /a/", "The Lark grammar cannot be compiled"),
        ("lark:start: other", "The Lark grammar cannot be compiled"),
        ("lark:start: (", "The Lark grammar cannot be compiled"),
        ('json:{"type": "sock"}', "The JSON schema cannot be compiled"),
        ('json:{"$ref": "http://example.com/x.json"}', "The JSON schema cannot be compiled"),
        ('json:{"type": "string", "minLength": 5, "maxLength": 2}', "The JSON schema cannot be compiled"),
    ],
)
def test_what_cannot_be_compiled_gets_a_sentence(pair, constraint, sentence):
    with pytest.raises(ValueError, match=sentence):
        compile_pair_constraint(pair, validate_constraint(constraint))


HOSTILE = [
    "lark:start: a\na: a a | /x/",
    "lark:start: /(a{1,1000}){1,1000}/",
    'lark:start: "(" start ")" start | start start |',
    "lark:start: r0\n" + "\n".join(f"r{i}: r{i + 1} r{i + 1}" for i in range(60)) + "\nr60: /a/",
    "lark:start: A\nA: /.*a.{40}/ & ~/(?s:.*)b.{40}/",
    "regex:(a{1,1000}){1,1000}",
    "regex:[a-z]{1,100000}",
    "regex:(.*a.{40})",
    "regex:(.|\\n)*a(.|\\n){200}b",
    "regex:(a*)*(a|aa)+b",
    "regex:" + "(" * 200 + "a" + "*)" * 200,
    'json:{"type": "string", "maxLength": 1000000}',
    'json:{"type": "array", "minItems": 100000, "maxItems": 1000000, "items": {"type": "integer"}}',
    'json:{"$ref": "#"}',
    "json:"
    + json.dumps({"allOf": [{"anyOf": [{"properties": {f"a{i}": {"const": j}}} for j in range(6)]} for i in range(8)]}),
]


@pytest.mark.parametrize("constraint", HOSTILE)
def test_hostile_constraints_end_soon_by_a_sentence_or_are_followed(pair, constraint):
    begun = time.process_time()
    try:
        race = Race(pair, Settings(PROMPT, ("tree",), constraint=constraint, max_new_tokens=40, temperature=1.0))
        assert list(race.run()) and race.lanes[0].trace.tokens
    except ValueError as error:
        assert "onstraint cannot be followed" in str(error) or "cannot be compiled" in str(error)
    assert time.process_time() - begun < 20


def test_a_trial_that_takes_too_long_is_ended(pair, monkeypatch):
    """The remainders of a large number are an automaton that the library's limits do not bound. Here a trial has a second."""
    short = "from engine.models import constraint_trial as trial; trial.CPU_SECONDS = 1; trial.compile_constraint_from_stdin()"
    monkeypatch.setattr(constraint_trial, "TRIAL", [*constraint_trial.TRIAL[:-1], short])
    begun = time.monotonic()
    schema = json.dumps({"type": "integer", "multipleOf": 99_999_989})
    assert "more time or memory" in explain_uncompilable_by_trial_process(
        pair.tokenizer.backend_tokenizer.to_str(), "json", schema
    )
    assert time.monotonic() - begun < 20


def test_commands_take_a_schema_a_pattern_or_a_grammar_and_one_of_them_alone(tmp_path, capsys):
    file, grammar = tmp_path / "a.lark", 'start: "a"+\n'
    file.write_text(grammar)
    for command in ("bench", "pays"):
        needed = ["--prompts", "my.jsonl"] if command == "pays" else []
        given = {"--grammar": (file, "lark:" + grammar), "--regex": ("a+", "regex:a+")}
        for option, (value, constraint) in given.items():
            assert (
                constraint_of_options(build_command_parser(command).parse_args([*needed, option, str(value)]))
                == constraint
            )
        with pytest.raises(SystemExit):
            build_command_parser(command).parse_args([*needed, "--grammar", str(file), "--regex", "a+"])
        assert "not allowed with argument --grammar" in capsys.readouterr().err
        with pytest.raises(ValueError, match=r"There is no file '.*b\.lark'"):
            constraint_of_options(
                build_command_parser(command).parse_args([*needed, "--grammar", str(tmp_path / "b.lark")])
            )
