"""RemoteLane: a race's lane whose text another server writes.

Its clock is the server's own: seconds since the request, network included. No local lane's clock sees it.
"""

from collections.abc import Callable
from queue import Empty
from typing import Any

from engine.record.costs import UNMEASURED
from engine.record.race_file import OF_TREES, LaneRecord
from engine.record.trace import WAIT, Step, Trace
from engine.remote.server import AnswerStream, OpenAICompatibleServer


class RemoteLane(AnswerStream):
    """A server at work on the prompt. Each piece of text that arrives is a step without a tree. Closing it leaves the trace."""

    def __init__(self, server: OpenAICompatibleServer, trace: Trace, tokenise_text: Callable[[str], list[int]]):
        """`trace` has no steps yet. `tokenise_text` says which tokens of this pair a text is; they are counted, never compared."""
        self.system, self.trace, self.tokens_of = server, trace, tokenise_text
        self.finished, self.clock, self.counted = False, 0.0, 0
        asked = {"max_tokens": trace.max_new_tokens, "temperature": trace.temperature, "seed": trace.seed}
        super().__init__(server, trace.prompt, asked, trace.chat, turns=trace.turns)

    def take_next_arrived_piece_as_step(self) -> Step | None:
        """The step of the next piece, or None when nothing has arrived. Never waits."""
        try:
            piece = self.pieces.get_nowait()
        except Empty:
            return None
        tokens = self.tokens_of(self.trace.text + piece.text)
        fresh, self.counted = tokens[self.counted :], max(self.counted, len(tokens))
        empty: dict[str, Any] = {name: [] for name in OF_TREES}
        step = Step(
            index=len(self.trace.steps),
            position=len(self.trace.prompt_tokens) - 1 + self.counted,
            bonus=0,
            bonus_text=piece.server_note,
            bonus_p=0.0,
            burst=fresh,
            pieces=[piece.text],
            end=piece.end_reason,
            seconds={WAIT: piece.seconds_since_request - self.clock},
            draft_forwards=0,
            **empty,
        )
        self.trace.steps.append(step)
        self.clock, self.finished = piece.seconds_since_request, bool(piece.end_reason)
        return step

    def to_record(self) -> LaneRecord:
        """The lane as a record that grows with it. What forwards cost there is not known here."""
        return LaneRecord(self.system.title, self.system.idea, self.system.guarantee, UNMEASURED, self.trace)
