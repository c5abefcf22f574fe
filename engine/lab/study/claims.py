"""Claims: what the papers behind the named systems say, and what is counted to see whether it holds here. Data only.

A row whose source names a year comes from a paper, and has a claim. Clocks of other machines are not repeated: a claim about a speed is
counted in tokens a forward where that is what the speed comes from, and is out of reach where it is not.
"""

from dataclasses import dataclass

from engine.breaks import CARD

FORWARD, DRAFT_FORWARD = "target forward", "draft forward"
SAMPLED = (0.6, 0.8, 1.0)
GREEDY_AND_SAMPLED = (0.0, 0.8)


@dataclass(frozen=True)
class SystemComparison:
    """One comparison that a claim rests on: two systems, or two acceptance rules on the trees of the system `tree_system`.

    `published_ratio` is the paper's least ratio for that, 1 where any gain is the claim. `forward_kind` is what tokens are divided by.
    """

    claimed_better: str
    compared_with: str
    tree_system: str = ""
    published_ratio: float = 1.0
    forward_kind: str = FORWARD

    @property
    def name(self) -> str:
        behind = (
            f" on {self.tree_system}"
            if self.tree_system
            else " a draft forward"
            if self.forward_kind == DRAFT_FORWARD
            else ""
        )
        return f"{self.claimed_better} over {self.compared_with}{behind}"


@dataclass(frozen=True)
class Claim:
    """One claim of the paper behind the system `system`. All of `comparisons` must hold.

    The counts of all `temperatures` are added up. `on_repeating_texts`: the texts are those of `write_self_repeating_prompts`.
    `with_answer_memory`: drafters may copy from what they wrote for earlier prompts. `constraint`: what the texts must be
    (`engine.record.constraint`). `untestable_reason` says why the claim cannot be tested here, "" when it can; what is counted then
    is only the nearest to it.
    """

    system: str
    statement: str
    comparisons: tuple[SystemComparison, ...]
    temperatures: tuple[float, ...] = (0.0,)
    on_repeating_texts: bool = False
    with_answer_memory: bool = False
    constraint: str = ""
    untestable_reason: str = ""

    @property
    def systems_of_all_comparisons(self) -> list[str]:
        """Every system that must run."""
        return [
            name
            for each in self.comparisons
            for name in ([each.tree_system] if each.tree_system else [each.claimed_better, each.compared_with])
        ]


CLAIMS = (
    Claim(
        "block",
        "A chain judged as a whole keeps more of the same guesses than one judged token by token. It writes 5 to 8 % faster for it.",
        (
            SystemComparison("block", "speculative", "model/chain/speculative:4x1x5", 1.05),
            SystemComparison("block", "speculative", "model/chain/speculative:8x1x9", 1.05),
        ),
        SAMPLED,
    ),
    Claim(
        "traversal",
        "A tree judged from its leaves gives 2.2 to 5.7 % more tokens a round than the same tree judged from its root.",
        (
            SystemComparison("traversal", "without_replacement", "model/dyspec/without_replacement:5x4x8", 1.022),
            SystemComparison("traversal", "without_replacement", "model/dyspec/without_replacement:8x4x24", 1.022),
        ),
        SAMPLED,
    ),
    Claim(
        "gbv",
        "Several chains of which the best is judged as a block give more tokens a round than other rules make of the same chains.",
        (
            SystemComparison("gbv", "k_seq", "model/chains/k_seq:4x3x13"),
            SystemComparison("gbv", "with_replacement", "model/chains/k_seq:4x3x13"),
        ),
        SAMPLED,
    ),
    Claim(
        "suffix",
        "Where text repeats itself, counts over the request and earlier outputs give more tokens a forward than prompt lookup.",
        (SystemComparison("suffix:8x4x12", "lookup:8x4x12"),),
        on_repeating_texts=True,
        with_answer_memory=True,
    ),
    Claim(
        "suffix",
        "In agents' work it writes up to 5.3 times as fast as plain decoding and 1.9 times as fast as token recycling.",
        (SystemComparison("suffix:8x4x24", "vanilla"), SystemComparison("suffix:8x4x24", "recycling:8x4x24")),
        on_repeating_texts=True,
        with_answer_memory=True,
        untestable_reason="It takes traces of agents, which no model of this size can serve, and clocks. "
        "A prompt asked twice is the nearest.",
    ),
    Claim(
        "recycling",
        "Without any training it gives about two tokens a forward, and more than prompt lookup does.",
        (
            SystemComparison("recycling:6x8x64", "vanilla", published_ratio=2.0),
            SystemComparison("recycling:6x8x64", "lookup:6x8x64"),
        ),
    ),
    Claim(
        "lookahead",
        "The target's own guesses far ahead give a true gain, and a smaller one than a drafted tree within the same budget.",
        (SystemComparison("lookahead:6x5x32", "vanilla"), SystemComparison("tree:6x5x32", "lookahead:6x5x32")),
    ),
    Claim(
        "lookahead",
        "On Spec-Bench (Xia et al. 2024) it writes 1.08 times as fast as plain decoding.",
        (SystemComparison("lookahead:6x5x32", "vanilla"),),
        untestable_reason="It is a clock's figure of a model with billions of weights on a GPU. "
        "Tokens a forward leave out what the window costs.",
    ),
    Claim(
        "talon",
        "A budget spent level by level gives more tokens a forward than EAGLE's tree of a fixed depth with as many nodes.",
        (SystemComparison("talon:8x3x12", "eagle:8x3x12"), SystemComparison("talon:8x10x60", "eagle:8x10x60")),
        GREEDY_AND_SAMPLED,
    ),
    Claim(
        "mtp",
        "A chain of one guess by the layer that the target was trained with gives 1.8 tokens a forward.",
        (SystemComparison("mtp/chain/token_match:1x1x2", "vanilla", published_ratio=1.8),),
        GREEDY_AND_SAMPLED,
    ),
    Claim(
        "dflash",
        "A block from one draft forward gives more tokens than EAGLE's forward for every level: a target forward and a draft forward.",
        (
            SystemComparison("dflash:7x4x12", "eagle:7x4x12"),
            SystemComparison("dflash:7x4x12", "eagle:7x4x12", forward_kind=DRAFT_FORWARD),
        ),
        GREEDY_AND_SAMPLED,
    ),
    Claim(
        "dflash",
        "It writes up to 2.5 times as fast as EAGLE-3.",
        (SystemComparison("dflash:7x4x12", "eagle:7x4x12"),),
        untestable_reason="It is a clock's figure of a target with eight billion weights. Tokens a forward are no clock.",
    ),
    Claim(
        "dspark",
        "A bias by the token before each guess gives a block more tokens a forward than slots that do not know the path.",
        (SystemComparison("dspark:7x4x12", "dflash/best_first/token_match:7x4x12"),),
        GREEDY_AND_SAMPLED,
    ),
    Claim(
        "forced",
        "Where a schema leaves no choice, tokens need no draft and no forward of their own: several come with one forward.",
        (SystemComparison("forced:8x1x9", "vanilla"),),
        GREEDY_AND_SAMPLED,
        constraint=CARD,
    ),
    # ---- the rows that the others are compared with
    Claim(
        "chain",
        "A small model's chain of guesses gives more than one token a target forward, of the target's own distribution.",
        (SystemComparison("chain:4x1x5", "vanilla"),),
        SAMPLED,
    ),
    Claim(
        "tree",
        "A tree shaped anew by the draft's own probabilities gives more tokens a forward than a fixed tree of as many nodes.",
        (SystemComparison("tree:5x4x12", "model/sparse/token_match:5x4x12"),),
        GREEDY_AND_SAMPLED,
    ),
    Claim(
        "eagle",
        "A layer that goes on from the target's hidden states guesses better than Medusa's independent heads.",
        (SystemComparison("eagle:4x8x12", "medusa:4x8x12"),),
        GREEDY_AND_SAMPLED,
    ),
    Claim(
        "medusa",
        "Heads on the target's last hidden state give more than one token a forward without a draft model.",
        (SystemComparison("medusa:4x8x12", "vanilla"),),
        GREEDY_AND_SAMPLED,
    ),
    Claim(
        "medusa-typical",
        "Above temperature 0 typical acceptance keeps more of the heads' guesses than a rule that keeps the law.",
        (SystemComparison("medusa-typical:4x8x12", "medusa:4x8x12"),),
        (0.8,),
    ),
    Claim(
        "lookup",
        "Where the answer repeats the prompt, copies of what followed the same words give more than one token a forward.",
        (SystemComparison("lookup:8x4x12", "vanilla"),),
        on_repeating_texts=True,
    ),
    Claim(
        "specinfer",
        "A drawn tree gives more tokens a forward than one chain of its depth.",
        (SystemComparison("specinfer:4x3x16", "chain:4x3x16"),),
        SAMPLED,
    ),
    Claim(
        "spectr",
        "Several chains, drawn at once and judged together, give more tokens a forward than one of them.",
        (SystemComparison("spectr:4x3x16", "chain:4x3x16"),),
        SAMPLED,
    ),
    Claim(
        "sequoia",
        "A shape computed from measured acceptance, with guesses drawn once each, beats SpecInfer's tree within the same budget.",
        (SystemComparison("sequoia:6x4x32", "specinfer:6x4x32"),),
        SAMPLED,
    ),
)
