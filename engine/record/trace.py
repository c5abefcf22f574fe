"""Step and Trace: what happened in a decode, as plain values. Knows no tensor, no model, no page.

Everything that shows or measures a race reads these. A trace survives JSON exactly.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Annotated, Any

from engine.record.parsing import (
    CLOSED,
    BoundedInt,
    FailFastList,
    FiniteFloat,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    StrictBool,
    build_choice_rule,
    build_json_schema_length_rule,
)

WAIT = "wait"  # for a remote server's next piece of text
PHASES = ("prefill", "draft", "verify", "accept", "commit", WAIT)
VERDICTS = ACCEPTED, REJECTED, UNREACHED, ROOT = "accepted", "rejected", "unreached", "root"
ENDS = ("", "stop", "length", "context")  # why decoding ended in a step; "" when it went on
FAILED = "failed"  # how a remote server's text ends when the server fails
STEPS, NODES = (1, 1000), (1, 400)  # least and most: steps a lane, nodes a tree
NodeVerdict = Annotated[str, build_choice_rule(*VERDICTS)]
EndReason = Annotated[str, build_choice_rule(*ENDS, FAILED)]
Phase = Annotated[str, build_choice_rule(*PHASES)]


@dataclass(frozen=True)
class Step:
    """One target forward: the tree it verified and the burst that came out of it.

    `p[i]` and `q[i]` are the target's and the drafter's probability of node i's token given its parent's text (1 for the root).
    `path` holds the accepted nodes from the root down, root excluded. `bonus` is the token that the target itself emitted after it.
    `burst` is path + bonus, cut at a stop token or at the length limit. `pieces[j]` is the text that token j adds, "" while a
    character is incomplete. `end` says why decoding ended here ("stop", "length", "context") or is "". `seconds` is by phase.
    `draft_forwards` counts the forwards of a draft network in this round. `replayed` counts the tokens that a target with states
    computed again to commit them. Files of before lack it: nothing was replayed in them.
    `favourites` is the path of the drafter's favourites, root excluded: the first-ranked child of each node, from the root down to a
    leaf. Files of before lack it, and then it is found from the scores. `silence` is a sentence on why a system that guesses had no
    guess here, "" otherwise. `unused` is one on why its tree has fewer nodes than it may, "" otherwise.

    A piece of a remote server's text is a step without a tree: no node, one piece, the tokens that it counts as in `burst`, and in
    `bonus_text` a sentence about the server, or "".
    """

    __pydantic_config__ = CLOSED

    index: NonNegativeInt
    position: NonNegativeInt  # position id of the root, that is context length - 1
    tokens: Annotated[FailFastList[NonNegativeInt], build_json_schema_length_rule(0, NODES[1])]
    parents: FailFastList[BoundedInt]
    texts: FailFastList[str]
    score: FailFastList[FiniteFloat]
    q: FailFastList[NonNegativeFloat]
    p: FailFastList[NonNegativeFloat]
    verdicts: FailFastList[NodeVerdict]
    path: FailFastList[NonNegativeInt]
    bonus: NonNegativeInt
    bonus_text: str
    bonus_p: NonNegativeFloat
    burst: FailFastList[NonNegativeInt]
    pieces: FailFastList[str]
    end: EndReason
    seconds: dict[Phase, NonNegativeFloat]
    draft_forwards: NonNegativeInt
    replayed: NonNegativeInt = 0
    favourites: FailFastList[NonNegativeInt] = field(default_factory=list)
    silence: str = ""
    unused: str = ""

    def __post_init__(self):
        if not self.favourites:
            object.__setattr__(self, "favourites", favourite_path_of(self.parents, self.score))

    @property
    def leading_favourites_accepted(self) -> int:
        """How many guesses the favourites alone would have kept: those with which the accepted path begins."""
        pairs = enumerate(zip(self.favourites, self.path, strict=False))
        return next((depth for depth, (one, other) in pairs if one != other), min(len(self.favourites), len(self.path)))

    @property
    def tokens_with_favourites_alone(self) -> int:
        """Tokens that the favourites alone would have emitted here: those kept and the bonus after them. Without a tree it is all."""
        return min(len(self.burst), self.leading_favourites_accepted + 1) if self.tokens else len(self.burst)

    @property
    def branch_tokens(self) -> int:
        """Tokens that this step emitted because its tree has branches."""
        return len(self.burst) - self.tokens_with_favourites_alone

    @property
    def could_chain_reach_deeper(self) -> bool:
        """Whether all favourites were accepted, the text went on, and a chain with as many guesses would have had more of them."""
        all_kept = 0 < len(self.favourites) == self.leading_favourites_accepted
        return all_kept and not self.end and len(self.favourites) < len(self.tokens) - 1

    @property
    def total_seconds(self) -> float:
        return sum(self.seconds.values())

    @property
    def has_bonus(self) -> bool:
        """Whether the burst holds the bonus, which a stop token or the length limit before it cuts off."""
        return len(self.burst) > len(self.path)


def dict_without_empty_chat_turns(field_items: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Fields by name as files and messages hold them: without a chat's earlier turns where there are none."""
    return {name: value for name, value in field_items if name != "turns" or value}


@dataclass
class Trace:
    """One lane: how it was set up, and its steps in order.

    `chat` says that the prompt was sent as a user's message in the target's chat template. `constraint` is what the text had to be
    (`engine.record.constraint`), "" for anything. Files of before lack both: they were raw, and free. `turns` are the chat's earlier
    turns, pairs of request and answer. Files lack them where there were none.
    """

    __pydantic_config__ = CLOSED

    system: str
    pair: str
    hardware: str
    dtype: str
    prompt: str
    prompt_tokens: FailFastList[NonNegativeInt]
    temperature: NonNegativeFloat
    seed: NonNegativeInt
    depth: PositiveInt
    width: PositiveInt
    nodes: PositiveInt
    max_new_tokens: PositiveInt
    steps: Annotated[FailFastList[Step], build_json_schema_length_rule(*STEPS)] = field(default_factory=list)
    chat: StrictBool = False
    constraint: str = ""
    turns: FailFastList[Annotated[FailFastList[str], build_json_schema_length_rule(2, 2)]] = field(default_factory=list)

    @property
    def tokens(self) -> list[int]:
        return [token for step in self.steps for token in step.burst]

    @property
    def text(self) -> str:
        return "".join(piece for step in self.steps for piece in step.pieces)

    @property
    def shape(self) -> str:
        """Depth, width and nodes, as in 4x4x8."""
        return f"{self.depth}x{self.width}x{self.nodes}"

    @property
    def is_finished(self) -> bool:
        """Whether the text came to its end. False while the lane runs, and for a lane that was stopped."""
        return bool(self.steps and self.steps[-1].end)

    @property
    def clock_after_steps(self) -> list[float]:
        """The time on the lane's own clock behind every step."""
        return list(accumulate(step.total_seconds for step in self.steps))

    @property
    def seconds(self) -> float:
        """The lane's own clock: the sum of its phases."""
        return sum(step.total_seconds for step in self.steps)

    @property
    def prefill_seconds(self) -> float:
        return self.steps[0].seconds.get("prefill", 0.0) if self.steps else 0.0

    @property
    def decode_seconds(self) -> float:
        """Without prefill."""
        return self.seconds - self.prefill_seconds

    @property
    def seconds_per_token(self) -> float:
        """With prefill."""
        return self.seconds / len(self.tokens)

    @property
    def decode_seconds_per_token(self) -> float:
        """Without prefill."""
        return self.decode_seconds / len(self.tokens)

    @property
    def target_forwards(self) -> int:
        """Target forwards after prefill."""
        return len(self.steps)

    @property
    def draft_forwards(self) -> int:
        return sum(step.draft_forwards for step in self.steps)

    @property
    def tau(self) -> float:
        """Mean burst length: tokens per target forward."""
        return len(self.tokens) / len(self.steps) if self.steps else 0.0

    @property
    def branch_tokens(self) -> int:
        """Tokens that the favourites alone would not have emitted in the same steps."""
        return sum(step.branch_tokens for step in self.steps)

    @property
    def favourites_tau(self) -> float:
        """Tokens a target forward that the favourites alone would have emitted, from where each of these steps began."""
        return sum(step.tokens_with_favourites_alone for step in self.steps) / len(self.steps) if self.steps else 0.0

    @property
    def deeper_steps(self) -> int:
        """Steps in which a chain with as many guesses could have gone on below the tree's favourites."""
        return sum(step.could_chain_reach_deeper for step in self.steps)

    def phase_share(self, phase: str) -> float:
        """The phase's share of the lane's clock."""
        return sum(step.seconds.get(phase, 0.0) for step in self.steps) / self.seconds if self.steps else 0.0

    def find_step_and_node_of_token(self, token_index: int) -> tuple[Step, int | None] | None:
        """The step that wrote the token of that index, and its node there, None for the bonus. None behind the last token."""
        for step in self.steps:
            if token_index < len(step.burst):
                return step, step.path[token_index] if token_index < len(step.path) else None
            token_index -= len(step.burst)
        return None

    def label_token(self, token_index: int) -> str:
        """The written token of that index as a label, "(end)" behind the last one."""
        if (found := self.find_step_and_node_of_token(token_index)) is None:
            return "(end)"
        step, node = found
        return step.bonus_text if node is None else step.texts[node]


def favourite_path_of(parents: Sequence[int], scores: Sequence[float]) -> list[int]:
    """The first-ranked child of each node, from the root down to a leaf. Ties go to the earlier node, as in
    `DraftTree.select_highest_scored_nodes`.
    """
    first: dict[int, int] = {}
    for node in range(1, min(len(parents), len(scores))):
        best = first.setdefault(parents[node], node)
        if scores[node] > scores[best]:
            first[parents[node]] = node
    path, node = [], 0
    while node in first and len(path) < len(parents):
        node = first[node]
        path.append(node)
    return path


def first_divergence(left: Sequence[object], right: Sequence[object]) -> int | None:
    """The first index at which two lists or texts differ (what is missing differs), or None when they are equal."""
    for index, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return index
    return None if len(left) == len(right) else min(len(left), len(right))


def find_divergence(
    left_trace: Trace, right_trace: Trace, read_output: Callable[[Trace], Sequence[object]]
) -> int | None:
    """The first index at which what `read_output` gives of two lanes differs, if any. That one was stopped earlier is no difference."""
    at = first_divergence(read_output(left_trace), read_output(right_trace))
    shorter = min(left_trace, right_trace, key=lambda trace: len(read_output(trace)))
    return None if at == len(read_output(shorter)) and not shorter.is_finished else at


def target_probability_of(trace: Trace, token_index: int) -> float:
    """The target's probability of a lane's token, as the lane found it; 0 behind its end."""
    if (found := trace.find_step_and_node_of_token(token_index)) is None:
        return 0.0
    step, node = found
    return step.bonus_p if node is None else step.p[node]
