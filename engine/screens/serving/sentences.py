"""Sentences that several engines share: what a drafter, a policy, a rule and the seed become there. Knows no engine's options."""

from engine.contracts import Part
from engine.screens.serving.setting import Modes, Setting

UNLIKE = {
    "several draws": "several draws at one place",
    "whole block": "a chain as a whole",
}  # rules that most engines lack
PUBLISHED = {"EAGLE": "EAGLE-3 heads", "Medusa": "Medusa heads"}  # drafters whose weights engines load


def drafter(setting: Setting, modes: Modes) -> list[str]:
    """What the drafter becomes in an engine with these ways of drafting."""
    part = setting.system.parts[0]
    if not part.counterpart.kind:
        return none_like(part, "drafter")
    kind, mode, said = part.counterpart.kind, modes.of(setting), []
    if mode and (part.counterpart.lacks or kind in modes.nearest):
        said.append(f"It has no {part.counterpart.lacks or kind} drafter; {mode.called} is the nearest.")
    elif kind in PUBLISHED:
        said.append(
            f"It loads {PUBLISHED[kind]} in their published format, trained for your target; this page’s have a format of their own."
        )
    return said + lost(part)


def policy(setting: Setting) -> list[str]:
    """What is lost of a policy that the engine does not have."""
    part = setting.system.parts[1]
    return lost(part) if part.counterpart.kind else none_like(part, "policy")


def rule(setting: Setting, instead: str = "Its rule tries one guess at a place") -> list[str]:
    """What is lost of an acceptance rule that the engine does not have. `instead` says what its own rule does."""
    part = setting.system.parts[2]
    if judged := UNLIKE.get(part.counterpart.kind):
        return [f"{instead}; this system’s rule for {judged} is not offered. The distribution is the same."]
    return lost(part) if part.counterpart.kind else none_like(part, "rule")


def lost(part: type[Part]) -> list[str]:
    return [part.counterpart.lost] if part.counterpart.lost else []


def none_like(part: type[Part], what: str) -> list[str]:
    """The sentence for a part without a counterpart: its own `lost`, where it has one."""
    return lost(part) or [f"It has nothing like the {part.title} {what}, for which no counterpart is declared."]


def seeds(setting: Setting, drafts: bool) -> list[str]:
    """What is lost of the seed, where this page's system would write the very text of plain decoding."""
    if setting.temperature == 0 or setting.system.guarantee != "tokens":
        return []
    if not drafts:
        return ["A seed stands for other random numbers there: the same seed writes another text than here."]
    return [
        "Above temperature 0 no seed repeats the text of plain decoding: the distribution is the same, the draws are not."
    ]


def one_chain(setting: Setting, words: str = "It verifies a chain and no tree") -> list[str]:
    """What is left of a tree where an engine verifies chains."""
    if setting.width == 1:
        return []
    return [f"{words}: of {setting.shape}, a chain of {setting.chain} is left."]


def request(port: int, temperature: float) -> str:
    """A shell command that asks the server for a completion."""
    return f"""curl http://localhost:{port}/v1/completions \\
  -H 'Content-Type: application/json' \\
  -d '{{"model": "TARGET", "prompt": "PROMPT",
       "max_tokens": 200, "temperature": {temperature:g}}}'"""


def guesses(number: int) -> str:
    return "1 guess" if number == 1 else f"{number} guesses"


def tokens(number: int) -> str:
    return "1 token" if number == 1 else f"{number} tokens"
