"""Lane and Race: two or more systems on one prompt, each on its own clock. Knows whose turn it is; knows no page.

The fair clock: a lane's clock counts only its own synchronised prefill, draft, verify, accept and commit time. The lane whose clock is
behind steps next. All lanes share the model object, dtype, prompt, seed and warm-up; each has its own cache.

A remote lane is written by another server, on that server's own clock. It takes no turns.
"""

import math
import time
from collections import Counter
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import torch

from engine.contracts import RoundRunner
from engine.decode import Round, decode
from engine.models.chat import tokenise_prompt
from engine.models.constraint import compile_pair_constraint
from engine.models.pairs import LoadedPair
from engine.models.text import TokenTextStream, token_text_or_vocabulary_entry
from engine.record.chat_turns import ChatTurns, validate_chat_turns
from engine.record.constraint import validate_constraint
from engine.record.disturbance import BUSY
from engine.record.parsing import format_value_for_error, has_lone_surrogate
from engine.record.quiet import WorkSignal
from engine.record.race_file import LaneRecord, Record, compute_figures_and_compare_lanes
from engine.record.trace import Step, Trace
from engine.remote.lane import RemoteLane
from engine.remote.server import OpenAICompatibleServer
from engine.sampling import Sampling, refuse_too_low_temperature
from engine.systems import SHAPE, System, resolve_system_name
from engine.tree import LARGEST_TREE

LIMITS = {
    "depth": (1, 12),
    "width": (1, 16),
    "nodes": (2, 64),
    "max_new_tokens": (1, 900),
    "temperature": (0.0, 5.0),
    "seed": (0, 2**53 - 1),
}
ASKED = ("prompt", "temperature", "seed", "max_new_tokens", "constraint")  # of the settings, what a trace repeats
BASELINE = "vanilla"  # the lane of a grand prix that all others are compared with
FIELD = (2, 8)  # the fewest and the most lanes of a grand prix
LONGEST_PROMPT = 20_000  # characters; checked before a tokenizer sees them
WARM_UP_TEXT, WARM_UP_TOKENS = "Story: Once upon a time", 12  # of what is written before a clock runs
REMOTE = OpenAICompatibleServer.name  # the lane that the pair's remote server writes
LOOK = 0.005  # seconds between two looks for a remote lane's next piece, where nobody else has work


@dataclass(frozen=True)
class Settings:
    """What a visitor may choose. Raises `ValueError` for a senseless value.

    A shape of None is `System.best_shape_for` of each system. A system keeps a shape that its name says.
    """

    prompt: str
    systems: tuple[str, ...] = ("vanilla", "tree")
    depth: int | None = None
    width: int | None = None
    nodes: int | None = None
    temperature: float = 0.0
    max_new_tokens: int = 200
    seed: int = 0
    constraint: str = ""  # what the text may be, as `engine.record.constraint` reads it
    guesses: str = "masked"  # how it guides drafts, one of `GUESSES` of constraints; measurements alone change it
    turns: tuple[tuple[str, str], ...] = ()  # of the chat before the prompt: request and answer

    @property
    def explicit_shape(self) -> dict[str, int]:
        """What it says of depth, width and nodes."""
        return {name: value for name in SHAPE if (value := getattr(self, name)) is not None}

    def __post_init__(self):
        validate_constraint(self.constraint)
        if not isinstance(self.prompt, str) or not self.prompt.strip():
            raise ValueError("The prompt is empty. Write a few words for the model to go on from.")
        if len(self.prompt) > LONGEST_PROMPT:
            raise ValueError(
                f"The prompt has {len(self.prompt):,} characters; at most {LONGEST_PROMPT:,} are read. Shorten it."
            )
        if has_lone_surrogate(self.prompt):
            raise ValueError("The prompt holds half a character (a lone surrogate), which no text can. Write it anew.")
        object.__setattr__(self, "turns", validate_chat_turns(self.turns, self.prompt))
        for system in map(resolve_system_name, (name for name in self.systems if name != REMOTE)):
            for name in SHAPE:
                validate_setting(name, getattr(system, name))
            system.refuse_constraint_break_without_constraint(self.constraint)
        for name in LIMITS:
            if getattr(self, name) is not None or name not in SHAPE:
                object.__setattr__(self, name, validate_setting(name, getattr(self, name)))


def validate_setting(name: str, value: object) -> int | float:
    """The setting's value. Raises `ValueError` when it is out of `LIMITS` or no number."""
    (least, most), what = LIMITS[name], name.replace("_", " ").capitalize()
    finite = isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))
    if isinstance(value, bool) or not isinstance(value, int | float) or not finite:
        raise ValueError(
            f"{what} must be a number between {least:,} and {most:,}, got {format_value_for_error(value)}."
        )
    if not least <= value <= most:
        raise ValueError(f"{what} must be between {least:,} and {most:,}, got {format_value_for_error(value)}.")
    if name == "temperature":
        refuse_too_low_temperature(value)
        return value
    if value != int(value):
        raise ValueError(f"{what} must be a whole number, got {format_value_for_error(value)}.")
    return int(value)


def parse_grand_prix_systems(systems: object) -> tuple[str, ...]:
    """The systems of a grand prix, the baseline first. Raises `ValueError` for too few, too many, and for one that is there twice."""
    if not isinstance(systems, list | tuple) or not all(isinstance(each, str) for each in systems):
        raise ValueError(
            f'The systems must be a list of names such as ["tree", "eagle"], got {format_value_for_error(systems)}.'
        )
    if twice := [name for name, count in Counter(systems).items() if count > 1]:
        raise ValueError(f"{format_value_for_error(twice[0])} is in the field twice. Name every system once.")
    names, (least, most) = (BASELINE, *(each for each in systems if each != BASELINE)), FIELD
    if not least <= len(names) <= most:
        raise ValueError(
            f"A grand prix has {least} to {most} systems, {BASELINE} among them, got {len(names)}. "
            f"Choose {'one more' if len(names) < least else 'fewer'}."
        )
    return names


def encode_prompt(pair: LoadedPair, prompt: str, earlier_turns: ChatTurns = ()) -> list[int]:
    """The tokens, with the chat template where the pair chats. Raises `ValueError` where that is impossible or exceeds the context."""
    tokens = tokenise_prompt(pair, prompt, earlier_turns)
    if len(tokens) >= pair.context:
        what, instead = ("The chat", "Begin a new one") if earlier_turns else ("The prompt", "Shorten it")
        raise ValueError(
            f"{what} is {len(tokens):,} tokens long; the model's context window holds {pair.context:,} and must leave room "
            f"for the answer. {instead}."
        )
    return tokens


def build_trace_without_steps(
    pair: LoadedPair, settings: Settings, prompt_tokens: list[int], **lane_fields: Any
) -> Trace:
    """A lane's trace without steps, of the prompt's tokens. `lane_fields` are those in which lanes of a race may differ."""
    asked = {name: getattr(settings, name) for name in ASKED}
    turns = [[*turn] for turn in settings.turns]
    return Trace(prompt_tokens=prompt_tokens, pair=pair.title, chat=pair.chat, turns=turns, **asked, **lane_fields)


class Lane:
    """One system at work on the prompt: its decode loop, its trace and its clock."""

    def __init__(
        self,
        pair: LoadedPair,
        system: System,
        settings: Settings,
        sampling: Sampling,
        prompt_tokens: list[int],
        capacity: int | None = None,
    ):
        """`capacity` is that of its caches in rows; None is as many as the text needs."""
        self.pair, self.system, self.finished = pair, system, False
        asked = {} if system.has_shape_in_name else settings.explicit_shape
        shape = asked if len(asked) == len(SHAPE) else system.best_shape_for(pair) | asked
        self.capacity = capacity or min(pair.context, len(prompt_tokens) + settings.max_new_tokens) + LARGEST_TREE
        self.sampling, self.stream = sampling, TokenTextStream(pair.tokenizer, prompt_tokens)
        where = {"hardware": pair.hardware, "dtype": pair.dtype}
        self.trace = build_trace_without_steps(pair, settings, prompt_tokens, system=system.name, **where, **shape)
        self.clock = self.waited = 0.0
        self.open_rounds_at_text_start()

    def open_rounds_at_text_start(self) -> None:
        """Borrow or make the caches, and stand at the text's beginning."""
        pair, system, trace = self.pair, self.system, self.trace
        shape = {name: getattr(trace, name) for name in SHAPE}
        self.rounds: RoundRunner | None = system.open_rounds(pair, self.capacity, shape, self.sampling)
        self.decoding = decode(self.rounds, trace.prompt_tokens, trace.max_new_tokens, pair.stop_ids, pair.context)

    def step(self) -> Step:
        """One target forward, on this lane's clock. Its record is made off the clock. `waited` adds up `seconds_without_processor`."""
        with self.pair.target.without_torch_threads():
            before = self.pair.target.seconds_without_processor()
            done = next(self.decoding)
            self.waited += self.pair.target.seconds_without_processor() - before
            step = self.build_step_from_round(done)
        self.trace.steps.append(step)
        self.clock += step.total_seconds
        self.finished = bool(step.end)
        return step

    def build_step_from_round(self, round: Round) -> Step:
        """Raises `ValueError` when the target's logits are no distribution. Texts drawn from such logits prove nothing."""
        tree, pair = round.tree, self.pair
        if not round.logits.amax(-1).isfinite().all():  # NaN, or plus infinity, or a row of minus infinity alone
            raise ValueError(
                f"The target of the {pair.title} answered NaN or infinity behind token {round.position + 1:,}, so there is no text to "
                f"compare. It runs in {pair.dtype}. Load it in a wider type such as fp32, or choose another pair."
            )
        logits = round.logits.float() if self.sampling.greedy else self.sampling.scale_and_filter_logits(round.logits)
        logp = logits.log_softmax(-1)
        parents, last = torch.tensor(tree.parents[1:], dtype=torch.long), round.verdict.path[-1:] or [0]
        tokens = torch.tensor(tree.tokens[1:], dtype=torch.long)
        pieces = [self.stream.add_token_and_take_text(token) for token in round.burst]
        pieces[-1] += self.stream.flush_held_text() if round.end else ""
        of_round = {name: getattr(round, name) for name in ("position", "burst", "end", "seconds", "replayed")}
        of_tree = {name: getattr(tree, name) for name in ("tokens", "parents", "score", "q")}
        return Step(
            index=len(self.trace.steps),
            texts=[token_text_or_vocabulary_entry(pair.tokenizer, token) for token in tree.tokens],
            silence=round.no_guess_reason,
            unused=round.unused_nodes_reason,
            p=[1.0, *logp.cpu()[parents, tokens].exp().tolist()],
            verdicts=round.verdict.label_nodes(tree),
            bonus_text=token_text_or_vocabulary_entry(pair.tokenizer, round.verdict.bonus),
            bonus_p=float(logp[last[0], round.verdict.bonus].exp()),
            pieces=pieces,
            draft_forwards=self.rounds.draft_forward_count - self.trace.draft_forwards,  # type: ignore[union-attr]  # None when closed
            **vars(round.verdict),
            **of_round,
            **of_tree,
        )

    def to_record(self) -> LaneRecord:
        """The lane as a record that grows with it."""
        system = self.system
        return LaneRecord(
            system.title, system.idea, system.guarantee, system.get_or_measure_costs(self.pair), self.trace
        )

    def close(self) -> None:
        """Frees the caches. The trace stays."""
        self.decoding.close()  # type: ignore[attr-defined]  # a generator, which `Iterator` does not say
        self.rounds, self.decoding = None, iter(())  # from Python 3.12 on a closed generator keeps what it held


def open_remote_lane(pair: LoadedPair, settings: Settings, prompt_tokens: list[int]) -> RemoteLane:
    """The lane that the pair's remote server writes. Raises `ValueError` when there is none, and for a constraint."""
    if settings.constraint:
        raise ValueError(f"The system {REMOTE} is another server, which is told of no constraint. Race it without one.")
    if pair.remote is None:
        raise ValueError(f"The system {REMOTE} needs another server: start this one with --remote http://HOST:PORT/v1.")
    where = {"hardware": pair.remote.clock_description, "dtype": "as the server runs it"}
    trace = build_trace_without_steps(pair, settings, prompt_tokens, system=REMOTE, **where, **dict.fromkeys(SHAPE, 1))
    return RemoteLane(pair.remote, trace, lambda text: pair.tokenizer(text, add_special_tokens=False)["input_ids"])


class Race:
    """Several lanes on one prompt. Raises `ValueError` when the prompt exceeds the context or the pair lacks a system's parts."""

    def __init__(
        self, pair: LoadedPair, settings: Settings, prompt_tokens: list[int] | None = None, is_warmed_up: bool = False
    ):
        """`prompt_tokens` are written on from instead of the prompt's own; `settings.prompt` then only names them.

        An `is_warmed_up` race has systems that ran here before, so that no first call is left to pay for.
        """
        prompt = encode_prompt(pair, settings.prompt, settings.turns) if prompt_tokens is None else prompt_tokens
        self.pair, self.settings, self.is_warm = pair, settings, is_warmed_up
        constraint = compile_pair_constraint(pair, settings.constraint, settings.guesses)
        sampling = Sampling(
            settings.temperature, seed=settings.seed, device=pair.target.noise_place, constraint=constraint
        )
        self.lanes: list[Lane | RemoteLane] = [
            open_remote_lane(pair, settings, prompt)
            if name == REMOTE
            # each makes the same noise for itself; the lane that is ahead would pay for shared noise
            else Lane(pair, resolve_system_name(name), settings, replace(sampling), prompt)
            for name in settings.systems
        ]
        self.local = {at: lane for at, lane in enumerate(self.lanes) if isinstance(lane, Lane)}
        self.remote = {at: lane for at, lane in enumerate(self.lanes) if isinstance(lane, RemoteLane)}

    def warm_up(self) -> None:
        """Run every lane's system for a few tokens on another text, so that no clock pays for first calls.

        Where forwards are CUDA graphs, a lane lends its caches for that. Its own graphs are launched then, and no others are captured.
        """
        text = replace(self.settings, prompt=WARM_UP_TEXT, turns=(), max_new_tokens=WARM_UP_TOKENS)
        prompt = self.pair.tokenizer(text.prompt)["input_ids"]
        graphed = self.pair.target.captures_graphs
        for lane in self.local.values():
            if graphed:
                lane.close()
            warm = Lane(self.pair, lane.system, text, lane.sampling, prompt, lane.capacity if graphed else None)
            while not warm.finished:
                warm.step()
            warm.close()
            if graphed:
                lane.open_rounds_at_text_start()

    def run(self) -> Generator[tuple[int, Step], None, None]:
        """Steps as (lane index, step). The lane whose clock is behind goes next. Closing the iterator frees every lane."""
        with closing(self.poll_steps()) as steps:
            for each in steps:
                if isinstance(each, WorkSignal):
                    time.sleep(LOOK)
                else:
                    yield each

    def poll_steps(self) -> Generator[tuple[int, Step] | WorkSignal, None, None]:
        """`run` for those who have other work: it yields `WorkSignal.IDLE` where `run` sleeps."""
        try:
            if not self.is_warm:
                self.warm_up()
            for remote in self.remote.values():
                remote.start_request_in_reader_thread()
            while not all(lane.finished for lane in self.lanes):
                for index, remote in self.remote.items():
                    while not remote.finished and (step := remote.take_next_arrived_piece_as_step()):
                        yield index, step
                running = [index for index, lane in self.local.items() if not lane.finished]
                if running:
                    index = min(running, key=lambda i: (self.lanes[i].clock, i))
                    yield index, self.local[index].step()
                elif not all(lane.finished for lane in self.lanes):
                    yield WorkSignal.IDLE
        finally:
            for lane in self.lanes:
                lane.close()

    def run_to_traces(self) -> list[Trace]:
        """Runs to the end. Returns what the lanes did."""
        for _ in self.run():
            pass
        return [lane.trace for lane in self.lanes]

    @property
    def did_threads_wait_too_long(self) -> bool:
        """Whether threads waited for the processor in too large a part of the lanes' clocks."""
        lanes = self.local.values()
        return sum(lane.waited for lane in lanes) > BUSY * sum(lane.clock for lane in lanes)

    def to_record(self) -> Record:
        """The race as a record that grows with it. Costs of forwards that are not known yet are measured (`engine.rounds.timing`)."""
        return Record([lane.to_record() for lane in self.lanes], "")

    def result(self) -> dict[str, Any]:
        """Figures by lane, and every lane compared with the first (`engine.record.race_file.compute_figures_and_compare_lanes`)."""
        return compute_figures_and_compare_lanes(
            [(lane.trace, lane.system.guarantee) for lane in self.lanes],
            is_processor_busy=self.did_threads_wait_too_long,
        )
