"""Trial: compiles a constraint in a process of its own, which ends it where it takes too much. Knows llguidance; knows no pair.

Limits of the library bound most patterns, and not all: some schemas grow their automaton in one call that nothing interrupts.
"""

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TRIAL = [
    sys.executable,
    "-c",
    "from engine.models.constraint_trial import compile_constraint_from_stdin; compile_constraint_from_stdin()",
]
SECONDS, CPU_SECONDS, BYTES = 15.0, 5, 2 << 30  # of the trial, at most; a large vocabulary takes a second of it
WAITING = 10.0  # seconds that a constraint waits for those before it
# Of llguidance: lexer fuel to compile and for a mask, Earley items for a mask, lexer states, grammar symbols, items in a row
LIMITS: dict[str, Any] = {
    "initial_lexer_fuel": 200_000,
    "step_lexer_fuel": 50_000,
    "step_max_items": 10_000,
    "max_lexer_states": 5_000,
    "max_grammar_size": 20_000,
    "max_items_in_row": 500,
    "precompute_large_lexemes": False,
    "verbose_errors": False,
}
# One space behind a colon and a comma, as models write JSON; free spaces would leave nearly nothing forced
SPACES: Any = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
_one = threading.Lock()


def build_llguidance_matcher(llguidance_tokenizer: Any, constraint_kind: str, constraint_text: str) -> Any:
    """llguidance's matcher of a constraint, for its view of a tokenizer. Raises `ValueError` for a schema that it does not read."""
    from llguidance import LLMatcher, LLParserLimits

    if constraint_kind == "regex":
        grammar = LLMatcher.grammar_from_regex(constraint_text)
    elif constraint_kind == "lark":
        grammar = LLMatcher.grammar_from_lark(constraint_text)
    else:
        grammar = LLMatcher.grammar_from_json_schema(constraint_text, overrides=SPACES)
    return LLMatcher(llguidance_tokenizer, grammar, limits=LLParserLimits(**LIMITS), log_level=0)


def explain_uncompilable_by_trial_process(tokenizer_json: str, constraint_kind: str, constraint_text: str) -> str:
    """Why the constraint cannot be used with the tokenizer, given as its JSON; "" when it can."""
    if not _one.acquire(timeout=WAITING):
        return "Other constraints are being compiled. Try again in a few seconds."
    try:
        sent = json.dumps([tokenizer_json, constraint_kind, constraint_text]).encode()
        done = subprocess.run(TRIAL, input=sent, cwd=ROOT, timeout=SECONDS, check=True, capture_output=True)
        return json.loads(done.stdout)
    except (subprocess.TimeoutExpired, subprocess.CalledProcessError, ValueError):
        return "It takes more time or memory to compile than there is for it. Write a simpler one."
    finally:
        _one.release()


def compile_constraint_from_stdin() -> None:
    """Reads a tokenizer and a constraint as JSON, and writes why they cannot be compiled, "" when they can."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
        resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    except (ImportError, ValueError):  # no such limits on this system; the caller's clock still ends it
        pass
    from llguidance import LLTokenizer

    tokenizer, kind, text = json.load(sys.stdin)
    try:
        matcher = build_llguidance_matcher(LLTokenizer(tokenizer), kind, text)
        if not matcher.is_error():
            matcher.compute_bitmask()
        why = matcher.get_error()
    except ValueError as error:
        why = str(error)
    print(json.dumps(why))
