"""Rendering: a row of the table of engines, and what it makes of a setting. Knows no engine.

A condition is facts of the setting with a space between; `-` denies one, and ` or ` begins another choice. "" always holds. A text
names words in braces. `facts` and `words` say which there are.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from engine.contracts import Part
from engine.systems import System

Rows = tuple[tuple[str, str], ...]  # conditions and texts
# Facts, by the kind of counterpart (`engine.contracts.SERVED`) of the drafter, with which an engine drafts, and of policy and rule
DRAFTERS = {
    "lookup": "n-gram lookup",
    "suffix": "suffix tree",
    "model": "draft model",
    "EAGLE": "EAGLE",
    "Medusa": "Medusa",
    "block": "block",
    "MTP": "MTP",
}
POLICIES = {"adapts": "tree that adapts", "full": "full tree", "fixed": "fixed tree"}
RULES = {"ratio": "min(1, p/q)", "whole": "whole block", "threshold": "threshold"}
UNLIKE = {
    "several draws": "several draws at one place",
    "whole block": "a chain as a whole",
}  # rules that most engines lack
PUBLISHED = {"EAGLE": "EAGLE-3 heads", "Medusa": "Medusa heads"}  # drafters whose weights engines load


@dataclass(frozen=True)
class Setting:
    """A system with its temperature."""

    system: System
    temperature: float

    @property
    def chain(self) -> int:
        """The longest chain of guesses in a round. A tree's root is one of its nodes; what never branches reads its depth alone."""
        return min(self.system.depth, self.system.nodes - 1) if self.system.branches else self.system.depth

    @property
    def width(self) -> int:
        return self.system.width if self.system.parts[1].branches else 1


@dataclass(frozen=True)
class Mode:
    """A way of drafting that an engine has: its option's word, how people call it, and what DRAFT must be."""

    option: str
    called: str
    draft: str = ""


@dataclass(frozen=True)
class Engine:
    """An engine that serves models.

    - `version` is the one that the rows were written for, `source` what they were checked against
    - `own`: its ways of drafting, by the kinds of counterpart that drafters declare (`engine.contracts.SERVED`); `nearest`: for kinds
      that it lacks
    - `counts`: numbers that only its rows need. "kept" is the nodes of its tree, "begun" the depth with which it begins
    - `ideas`: what it does, the first row that holds; `flags`: the rows that hold, with `between` between them; `code`: those that hold
    - `lost` in drafter and policy, `lost_in_rule` and `lost_at_last`: what it cannot express; `rules`: what its own rule does instead
    """

    name: str
    version: str
    source: str
    own: Mapping[str, Mode]
    ideas: Rows
    flags: Rows
    between: str
    code: Rows
    lost: Rows
    lost_in_rule: Rows
    rules: Rows
    lost_at_last: Rows = ()
    nearest: Mapping[str, str] = field(default_factory=dict)
    counts: Callable[[Setting], dict[str, int]] = lambda setting: {}
    language: str = "bash"


def rendered(engine: Engine, setting: Setting) -> dict[str, object]:
    """The engine's nearest setting as plain values. `idea` says what it does, `cannot` what the engine cannot express."""
    kind = setting.system.parts[0].counterpart.kind
    kind = engine.nearest.get(kind, kind)
    mode = engine.own.get(kind)
    counted = {"kept": setting.chain + 1, "begun": setting.chain} | engine.counts(setting)
    true, said = facts(setting, kind, mode, counted), words(setting, mode, counted)

    def those(rows: Rows) -> list[str]:
        return [text.format_map(said) for condition, text in rows if holds(condition, true)]

    cannot = of_drafter(setting, engine, mode)
    if mode:
        cannot += those(engine.lost) + of_part(setting.system.parts[1], "policy") + those(engine.lost_in_rule)
        cannot += [sentence for instead in those(engine.rules) for sentence in of_rule(setting, instead)]
        cannot += those(engine.lost_at_last)
    said["flags"] = engine.between.join(those(engine.flags))
    return {
        "engine": engine.name,
        "version": engine.version,
        "idea": those(engine.ideas)[0],
        "language": engine.language,
        "code": "".join(those(engine.code)),
        "cannot": cannot + of_seed(setting, drafts=mode is not None),
        "source": engine.source,
    }


def holds(condition: str, true: Mapping[str, bool]) -> bool:
    """Whether one of the condition's choices fits the facts."""
    return any(
        all(true[fact.removeprefix("-")] != fact.startswith("-") for fact in choice.split())
        for choice in condition.split(" or ")
    )


def facts(setting: Setting, kind: str, mode: Mode | None, counted: Mapping[str, int]) -> dict[str, bool]:
    """What is true of the setting in an engine that drafts in this mode, which is its own for drafters of this kind.

    `drafts`, and one of `lookup`, `suffix`, `model`, `EAGLE`, `Medusa`, `block`, `MTP`; `draft` where it needs weights. `adapts`,
    `full`, `fixed`, `draws` and `branches` are about the policy, `ratio`, `whole` and `threshold` about the rule. `unfilled`: the
    engine's tree keeps fewer nodes; `shallow`: the nodes do not reach the depth; `cold`: temperature 0; `keeps`: plain decoding's
    tokens.
    """
    _, policy, rule = setting.system.parts
    return {
        "drafts": mode is not None,
        "draft": mode is not None and bool(mode.draft),
        **{fact: mode is not None and kind == each for fact, each in DRAFTERS.items()},
        **{fact: policy.counterpart.kind == each for fact, each in POLICIES.items()},
        **{fact: rule.counterpart.kind == each for fact, each in RULES.items()},
        "draws": not policy.proposals & {"ranked", "top"},
        "branches": setting.width > 1,
        "unfilled": counted["kept"] < setting.system.nodes,
        "shallow": setting.chain < setting.system.depth,
        "cold": setting.temperature == 0,
        "keeps": setting.system.guarantee == "tokens",
    }


def words(setting: Setting, mode: Mode | None, counted: Mapping[str, int]) -> dict[str, str]:
    """The words of texts: the mode's, the shape's, and counts of guesses, tokens and nodes."""
    system, chain = setting.system, setting.chain
    numbers = {
        "chain": chain,
        "width": setting.width,
        "depth": system.depth,
        "nodes": system.nodes,
        "nodes_in_chain": chain + 1,
        "kept": counted["kept"],
        "guessed": counted["kept"] - 1,
        "begun": counted["begun"],
        "nodes_begun": counted["begun"] + 1,
    }
    return {
        **{name: str(number) for name, number in numbers.items()},
        "guesses": several(chain, "guess", "guesses"),
        "guesses_kept": several(counted["kept"] - 1, "guess", "guesses"),
        "guesses_begun": several(counted["begun"], "guess", "guesses"),
        "tokens": several(chain, "token", "tokens"),
        "shape": f"depth {system.depth}, width {system.width} and {system.nodes} nodes",
        "temperature": f"{setting.temperature:g}",
        **(vars(mode) if mode else {}),
    }


def several(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


# ---- sentences of all engines


def of_drafter(setting: Setting, engine: Engine, mode: Mode | None) -> list[str]:
    """What the drafter becomes in an engine with this way of drafting."""
    part, said = setting.system.parts[0], []
    kind, lacks = part.counterpart.kind, part.counterpart.lacks
    if mode and kind and (lacks or kind in engine.nearest):
        said.append(f"It has no {lacks or kind} drafter; {mode.called} is the nearest.")
    elif kind in PUBLISHED:
        said.append(
            f"It loads {PUBLISHED[kind]} in their published format, trained for your target; this page’s have a format of their own."
        )
    return said + of_part(part, "drafter")


def of_rule(setting: Setting, instead: str) -> list[str]:
    """What is lost of an acceptance rule that the engine does not have. `instead` says what its own rule does."""
    part = setting.system.parts[2]
    if judged := UNLIKE.get(part.counterpart.kind):
        return [f"{instead}; this system’s rule for {judged} is not offered. The distribution is the same."]
    return of_part(part, "rule")


def of_part(part: type[Part], what: str) -> list[str]:
    """What is lost of a part in every engine: its own sentence, and one where no counterpart is declared."""
    if part.counterpart.lost:
        return [part.counterpart.lost]
    if part.counterpart.kind:
        return []
    return [f"It has nothing like the {part.title} {what}, for which no counterpart is declared."]


def of_seed(setting: Setting, drafts: bool) -> list[str]:
    """What is lost of the seed, where this page's system would write the very text of plain decoding."""
    if setting.temperature == 0 or setting.system.guarantee != "tokens":
        return []
    if not drafts:
        return ["A seed stands for other random numbers there: the same seed writes another text than here."]
    return [
        "Above temperature 0 no seed repeats the text of plain decoding: the distribution is the same, the draws are not."
    ]
