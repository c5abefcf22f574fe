"""Rendering: a row of the table of engines, and what it makes of a setting. Knows no engine.

A condition is facts of the setting with a space between, all of which hold; `|` stands between choices, and `-` denies a fact. A text
names words in braces. `facts` and `words` say which there are.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from engine.contracts import Part
from engine.systems import System

Rows = tuple[tuple[str, ...], ...]  # conditions, and behind each its texts


class Way(NamedTuple):
    """A way of drafting: its kind of counterpart (`engine.contracts.SERVED`), how people call it, and what DRAFT must be."""

    kind: str
    called: str
    draft: str = ""


# By fact
WAYS = {
    "lookup": Way("n-gram lookup", "n-gram lookup"),
    "suffix": Way("suffix tree", "suffix decoding"),
    "model": Way("draft model", "a draft model", "a small model with TARGET’s vocabulary"),
    "EAGLE": Way("EAGLE", "EAGLE-3", "an EAGLE-3 head trained for TARGET"),
    "Medusa": Way("Medusa", "Medusa", "a set of Medusa heads trained for TARGET"),
    "block": Way("block", "DFlash", "a DFlash drafter trained for TARGET"),
    "MTP": Way("MTP", "MTP"),
}
POLICIES = {"adapts": "tree that adapts", "full": "full tree", "fixed": "fixed tree"}
RULES = {"ratio": "min(1, p/q)", "whole": "whole block", "threshold": "threshold"}
NEAREST = {"Medusa": "EAGLE", "EAGLE": "model", "block": "model", "suffix": "lookup"}  # where an engine lacks a way
UNLIKE = {"several draws": "several draws at one place", "whole block": "a chain as a whole"}  # rules that most lack
# Sentences of all engines: on the drafter, the policy, the rule and the seed
DRAFTER = (
    ("nearest", "It has no {lacks} drafter; {called} is the nearest."),
    ("EAGLE|Medusa -nearest",
     "It loads {called} heads in their published format, trained for your target; this page’s have a format of their own."),
    ("", "{drafter_lost}"),
)  # fmt: skip
POLICY = ("", "{policy_lost}")
RULE = ("", "{rule_lost}")
INSTEAD = "; this system’s rule for {judged} is not offered. The distribution is the same."
SEED = (
    ("-cold keeps -drafts", "A seed stands for other random numbers there: the same seed writes another text than here."),
    ("-cold keeps drafts",
     "Above temperature 0 no seed repeats the text of plain decoding: the distribution is the same, the draws are not."),
)  # fmt: skip


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
class Engine:
    """An engine that serves models.

    - `version` is the one that the rows were written for, `source` what they were checked against
    - `own`: its options' words for its ways of drafting; `called`: how people call its lookup
    - `ideas`: what it does, the first row that holds; `flags`: the rows that hold, with `between` between them; `code`: those that hold
    - `lost`: what it cannot express of a system that drafts
    - `kept`: the nodes of its tree; `begun`: the depth with which it begins
    """

    name: str
    version: str
    source: str
    own: Mapping[str, str]
    ideas: Rows
    flags: Rows
    between: str
    code: Rows
    lost: Rows
    kept: Callable[[Setting], int] = lambda setting: setting.chain + 1
    begun: Callable[[Setting], int] = lambda setting: setting.chain
    called: str = "n-gram lookup"
    language: str = "bash"

    def way(self, system: System) -> str:
        """The fact of the way in which it drafts for this system, "" for none."""
        kind = system.parts[0].counterpart.kind
        fact = next((fact for fact, way in WAYS.items() if way.kind == kind), "")
        while fact and fact not in self.own:
            fact = NEAREST[fact]
        return fact


def rendered(engine: Engine, setting: Setting) -> dict[str, object]:
    """The engine's nearest setting as plain values. `idea` says what it does, `cannot` what the engine cannot express."""
    true, said = facts(engine, setting), words(engine, setting)

    def those(rows: Rows) -> list[str]:
        return [text.format_map(said) for condition, *texts in rows if holds(condition, true) for text in texts]

    said["flags"] = engine.between.join(those(engine.flags))
    lost = those((*DRAFTER, *(engine.lost if true["drafts"] else ()), *SEED))
    return {
        "engine": engine.name,
        "version": engine.version,
        "idea": those(engine.ideas)[0],
        "language": engine.language,
        "code": "".join(those(engine.code)),
        "cannot": [*filter(None, lost)],
        "source": engine.source,
    }


def holds(condition: str, true: Mapping[str, bool]) -> bool:
    """Whether the facts fit the condition."""
    return all(
        any(true[fact.removeprefix("-")] != fact.startswith("-") for fact in choices.split("|"))
        for choices in condition.split()
    )


def facts(engine: Engine, setting: Setting) -> dict[str, bool]:
    """What is true of the setting in the engine: `drafts`, and one of `WAYS`; `nearest` where that is not quite the system's; `draft`
    where it needs weights. `POLICIES`, `draws` and `branches` are about the policy, `RULES` and `unlike` about the rule. `unfilled`:
    the engine's tree keeps fewer nodes; `shallow`: too few for the depth; `cold`: temperature 0; `keeps`: plain decoding's tokens.
    """
    drafter, policy, rule = setting.system.parts
    found = engine.way(setting.system)
    return {
        "drafts": bool(found),
        "draft": bool(found and WAYS[found].draft),
        "nearest": bool(found and WAYS[found].kind != (drafter.counterpart.lacks or drafter.counterpart.kind)),
        **{fact: found == fact for fact in WAYS},
        **{fact: policy.counterpart.kind == each for fact, each in POLICIES.items()},
        **{fact: rule.counterpart.kind == each for fact, each in RULES.items()},
        "unlike": rule.counterpart.kind in UNLIKE,
        "draws": not policy.proposals & {"ranked", "top"},
        "branches": setting.width > 1,
        "unfilled": engine.kept(setting) < setting.system.nodes,
        "shallow": setting.chain < setting.system.depth,
        "cold": setting.temperature == 0,
        "keeps": setting.system.guarantee == "tokens",
    }


def words(engine: Engine, setting: Setting) -> dict[str, object]:
    """The words of texts: the way's, the shape's, counts of guesses, tokens and nodes, and what is lost of the parts."""
    system, chain, found = setting.system, setting.chain, engine.way(setting.system)
    kept, begun = engine.kept(setting), engine.begun(setting)
    drafter, policy, rule = system.parts
    way = {"option": engine.own[found], **WAYS[found]._asdict()} if found else {}
    return {
        **way,
        **({"called": engine.called} if found == "lookup" else {}),
        "lacks": drafter.counterpart.lacks or drafter.counterpart.kind,
        "drafter_lost": lost(drafter, "drafter"),
        "policy_lost": lost(policy, "policy"),
        "rule_lost": lost(rule, "rule"),
        "judged": UNLIKE.get(rule.counterpart.kind),
        "chain": chain,
        "width": setting.width,
        "depth": system.depth,
        "nodes": system.nodes,
        "nodes_in_chain": chain + 1,
        "kept": kept,
        "guessed": kept - 1,
        "begun": begun,
        "nodes_begun": begun + 1,
        "guesses": several(chain, "guess", "guesses"),
        "guesses_kept": several(kept - 1, "guess", "guesses"),
        "guesses_begun": several(begun, "guess", "guesses"),
        "tokens": several(chain, "token", "tokens"),
        "shape": f"depth {system.depth}, width {system.width} and {system.nodes} nodes",
        "temperature": f"{setting.temperature:g}",
    }


def several(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def lost(part: type[Part], what: str) -> str:
    """What is lost of a part in every engine: its own sentence, or one where no counterpart is declared."""
    if part.counterpart.lost or part.counterpart.kind:
        return part.counterpart.lost
    return f"It has nothing like the {part.title} {what}, for which no counterpart is declared."
