"""Constraint: which tokens may follow a text that a schema, a pattern or a grammar binds. Knows a tokenizer and llguidance.

A `ConstraintGuide` stands at the end of one text and answers for every path below it. The library was chosen by measurement
(assets/results/README.md): it needs no other package, and its matchers are copied and rolled back in microseconds.
"""

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from engine.models.constraint_trial import build_llguidance_matcher, explain_uncompilable_by_trial_process
from engine.record.constraint import KINDS, validate_constraint
from engine.record.trace import first_divergence

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from engine.models.pairs import LoadedPair

GUESSES = "masked", "forced", "free"  # how drafts are guided: by the whole mask, by its forced tokens alone, not at all
KEPT = 16  # constraints that stay compiled


@dataclass(frozen=True, eq=False)
class CompiledConstraint:
    """A compiled constraint for one tokenizer. `draft_masking` is one of `GUESSES`; whatever it is, the target's law is the same."""

    matcher: Any
    vocab: int
    stop_ids: frozenset[int]
    draft_masking: str = "masked"

    def create_guide_at_text_start(self) -> "ConstraintGuide":
        """At the beginning of a text."""
        return ConstraintGuide(self)


class ConstraintGuide:
    """The constraint along one text. A path is the tuple of tokens behind the text's end, its root."""

    def __init__(self, constraint: CompiledConstraint):
        self.constraint, self.draft_masking, self.matcher = (
            constraint,
            constraint.draft_masking,
            constraint.matcher.deep_copy(),
        )
        self.over = False  # whether the text has ended, or left the constraint
        self.at: tuple[int, ...] = ()  # the path that the matcher stands at
        self.rows: dict[tuple[int, ...], torch.Tensor | None] = {}

    def allowed_mask(self, path_tokens: tuple[int, ...] = ()) -> torch.Tensor | None:
        """bool `[V]` of what may follow the path; None behind a stop or forbidden token. Raises `ValueError` for a too complex one."""
        if path_tokens not in self.rows:
            self.rows[path_tokens] = self.compute_allowed_mask(path_tokens)
        return self.rows[path_tokens]

    def compute_allowed_mask(self, path_tokens: tuple[int, ...]) -> torch.Tensor | None:
        if self.over:
            return None
        if path_tokens:
            before = self.allowed_mask(path_tokens[:-1])
            if before is None or path_tokens[-1] in self.constraint.stop_ids or not before[path_tokens[-1]]:
                return None
        self.move_matcher_to_path(path_tokens)
        bits = np.frombuffer(self.matcher.compute_bitmask(), np.uint8)
        row = np.unpackbits(bits, count=self.constraint.vocab, bitorder="little")
        if self.matcher.is_error() or not row.any():
            raise ValueError(
                f"The constraint cannot be followed further: {self.matcher.get_error() or 'it allows no token'}. Write a simpler one."
            )
        return torch.from_numpy(row.astype(bool))

    def move_matcher_to_path(self, path_tokens: tuple[int, ...]) -> None:
        """Bring the matcher to a path whose tokens are all allowed."""
        parting = first_divergence(path_tokens, self.at)
        same = len(path_tokens) if parting is None else parting
        if same < len(self.at):
            self.matcher.rollback(len(self.at) - same)
        if same < len(path_tokens):
            self.matcher.consume_tokens(list(path_tokens[same:]))
        self.at = path_tokens

    def forced_tokens_after(self, path_tokens: tuple[int, ...] = (), max_tokens: int = 1) -> list[int]:
        """Up to `max_tokens` tokens that must follow the path one after another, because nothing else is allowed."""
        run: list[int] = []
        while (
            len(run) < max_tokens
            and (row := self.allowed_mask((*path_tokens, *run))) is not None
            and int(row.sum()) == 1
        ):
            run.append(int(row.int().argmax()))
        return run

    def advance(self, tokens: list[int]) -> None:
        """Go on to the end of these tokens. Behind a stop token, and behind one that is forbidden, everything is allowed."""
        taken = 0
        while taken < len(tokens) and not self.over:
            row, token = self.allowed_mask(tuple(tokens[:taken])), tokens[taken]
            self.over = row is None or token in self.constraint.stop_ids or not bool(row[token])
            taken += not self.over
        self.move_matcher_to_path(tuple(tokens[:taken]))
        self.at, self.rows = (), {}


def compile_pair_constraint(
    pair: "LoadedPair", constraint_text: str, draft_masking: str = "masked"
) -> CompiledConstraint | None:
    """The constraint for the pair's tokens, None where `constraint_text` is "". Raises `ValueError` like `compile_constraint`."""
    return (
        compile_constraint(pair.tokenizer, pair.target.vocab, pair.stop_ids, constraint_text, draft_masking)
        if constraint_text
        else None
    )


@lru_cache(KEPT)
def compile_constraint(
    tokenizer: "PreTrainedTokenizerBase",
    logit_count: int,
    stop_ids: frozenset[int],
    constraint_text: str,
    draft_masking: str = "masked",
) -> CompiledConstraint:
    """The constraint, compiled once. `logit_count` is the number of the target's logits, and `stop_ids` are the tokens that end a text.

    Raises `ValueError` with a sentence for a text that `engine.record.constraint.validate_constraint` refuses, without stop tokens, and
    for what llguidance cannot compile within the limits.
    """
    kind, _, pattern = validate_constraint(constraint_text).partition(":")
    if not stop_ids:
        raise ValueError("A constraint needs a stop token, or a text could not end where it is fulfilled.")
    if draft_masking not in GUESSES:
        raise ValueError(f"Guesses are one of {', '.join(GUESSES)}, got {draft_masking!r}.")
    pattern = json.dumps(json.loads(pattern), ensure_ascii=False) if kind == "json" else pattern  # on one line
    tokens, source = llguidance_tokenizer_and_json_of(tokenizer, logit_count, stop_ids)
    if why := explain_uncompilable_by_trial_process(source, kind, pattern):
        raise ValueError(f"The {KINDS[kind]} cannot be compiled: {why.splitlines()[0].rstrip('.')}.")
    return CompiledConstraint(build_llguidance_matcher(tokens, kind, pattern), logit_count, stop_ids, draft_masking)


@lru_cache(4)
def llguidance_tokenizer_and_json_of(
    tokenizer: "PreTrainedTokenizerBase", logit_count: int, stop_ids: frozenset[int]
) -> tuple[Any, str]:
    """llguidance's view of a tokenizer, and its JSON. Raises `ValueError` for one that is written in Python alone."""
    from llguidance.hf import from_tokenizer

    try:
        return from_tokenizer(tokenizer, logit_count, sorted(stop_ids)), tokenizer.backend_tokenizer.to_str()
    except (AttributeError, ValueError) as error:
        raise ValueError(f"A constraint needs a fast tokenizer of the library tokenizers: {error}.") from None
