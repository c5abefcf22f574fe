"""Step and Trace: what happened in a decode, as plain values. Standard library only; knows no tensor, no model, no page.

Everything that shows or measures a race reads these. A trace survives JSON exactly: `Trace.from_json(trace.to_json()) == trace`.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from engine.record.parsing import MAY_LACK, build

WAIT = "wait"  # for a remote server's next piece of text
PHASES = ("prefill", "draft", "verify", "accept", "commit", WAIT)
VERDICTS = ACCEPTED, REJECTED, UNREACHED, ROOT = "accepted", "rejected", "unreached", "root"
ENDS = ("", "stop", "length", "context")  # why decoding ended in a step; "" when it went on
FAILED = "failed"  # how a remote server's text ends when the server fails


@dataclass(frozen=True)
class Step:
    """One target forward: the tree it verified and the burst that came out of it.

    `p[i]` and `q[i]` are the target's and the drafter's probability of node i's token given its parent's text (1 for the root).
    `path` holds the accepted nodes from the root down, root excluded. `bonus` is the token that the target itself emitted after it.
    `burst` is path + bonus, cut at a stop token or at the length limit. `pieces[j]` is the text that token j adds, "" while a
    character is incomplete. `end` says why decoding ended here ("stop", "length", "context") or is "". `seconds` is by phase.
    `draft_forwards` counts the forwards of a draft network in this round.

    A piece of a remote server's text is a step without a tree: no node, one piece, the tokens that it counts as in `burst`, and in
    `bonus_text` a sentence about the server, or "".
    """

    index: int
    position: int  # position id of the root, that is context length - 1
    tokens: list[int]
    parents: list[int]
    texts: list[str]
    score: list[float]
    q: list[float]
    p: list[float]
    verdicts: list[str]
    path: list[int]
    bonus: int
    bonus_text: str
    bonus_p: float
    burst: list[int]
    pieces: list[str]
    end: str
    seconds: dict[str, float]
    draft_forwards: int

    @property
    def total_seconds(self) -> float:
        return sum(self.seconds.values())


@dataclass
class Trace:
    """One lane: how it was set up, and its steps in order.

    `chat` says that the prompt was sent as a user's message in the target's chat template. Files of before lack it, and were raw.
    """

    system: str
    pair: str
    hardware: str
    dtype: str
    prompt: str
    prompt_tokens: list[int]
    temperature: float
    seed: int
    depth: int
    width: int
    nodes: int
    max_new_tokens: int
    steps: list[Step] = field(default_factory=list)
    chat: bool = field(default=False, metadata=MAY_LACK)

    @property
    def tokens(self) -> list[int]:
        return [token for step in self.steps for token in step.burst]

    @property
    def text(self) -> str:
        return "".join(piece for step in self.steps for piece in step.pieces)

    @property
    def ended(self) -> bool:
        """Whether the text came to its end. False while the lane runs, and for a lane that was stopped."""
        return bool(self.steps and self.steps[-1].end)

    @property
    def seconds(self) -> float:
        """The lane's own clock: the sum of its phases."""
        return sum(step.total_seconds for step in self.steps)

    @property
    def forwards(self) -> int:
        """Target forwards after prefill."""
        return len(self.steps)

    @property
    def draft_forwards(self) -> int:
        return sum(step.draft_forwards for step in self.steps)

    @property
    def tau(self) -> float:
        """Mean burst length: tokens per target forward."""
        return len(self.tokens) / len(self.steps) if self.steps else 0.0

    def share(self, phase: str) -> float:
        """The phase's share of the lane's clock."""
        return sum(step.seconds.get(phase, 0.0) for step in self.steps) / self.seconds if self.steps else 0.0

    def label(self, index: int) -> str:
        """The written token of that index as a label, "(end)" behind the last one."""
        for step in self.steps:
            if index < len(step.burst):
                return [*(step.texts[node] for node in step.path), step.bonus_text][index]
            index -= len(step.burst)
        return "(end)"

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> "Trace":
        """Raises `ValueError` naming what is missing, unknown or of another type."""
        return build(cls, json.loads(text), "")


def first_divergence(left: Sequence[object], right: Sequence[object]) -> int | None:
    """The first index at which two lists or texts differ (what is missing differs), or None when they are equal."""
    for index, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return index
    return None if len(left) == len(right) else min(len(left), len(right))
