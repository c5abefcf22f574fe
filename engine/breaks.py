"""Breaks: five typical mistakes of tree decoders, to be made on purpose. Knows what each changes and what would be right; knows no loop
and no page.

A broken system races like any other. "tree!mask" is the system tree with the break `mask` (`engine.systems.resolve_system_name`).
`engine.page.screens.break_distance.measure_broken_system_distance` says how far it is from the target's own distribution.
"""

from dataclasses import dataclass, field
from typing import Any

import torch

from engine.rounds.guiding import Mask, mask_forbidden_logits, mask_forbidden_logits_only_at_leaves
from engine.target import Target
from engine.tree import DraftTree


class BrokenMaskTarget(Target):
    """Every node sees all nodes that stand before it in the arrays, as if the tree were one text."""

    def verify(self, tree: DraftTree) -> tuple[torch.Tensor, torch.Tensor | None]:
        return self.session.forward(tree.tokens, tree.positions(self.committed_rows))


class BrokenPositionTarget(Target):
    """Every node stands at its array index behind the cache, up to the last position that the model knows."""

    def verify(self, tree: DraftTree) -> tuple[torch.Tensor, torch.Tensor | None]:
        last = self.session.runner.context - 1
        positions = [min(self.committed_rows + index, last) for index in range(len(tree))]
        return self.session.forward(tree.tokens, positions, tree.ancestor_mask())


class BrokenCommitTarget(Target):
    """The cache keeps as many rows as were accepted, but always the tree's first ones."""

    def commit(self, path: list[int]) -> None:
        self.session.keep(list(range(len(path) + 1)))


def build_race_settings_showing_break(
    prompt: str, break_name: str, temperature: float = 0.0, constraint: str = ""
) -> dict[str, Any]:
    """A race on the small embedded pair that shows the break within its first tokens, as arguments of `engine.race.Settings`."""
    chosen = {"temperature": temperature, "seed": 0, "max_new_tokens": 64, "constraint": constraint}
    return {"prompt": prompt, "systems": ("tree", f"tree!{break_name}"), **chosen}


@dataclass(frozen=True)
class PlantedBreak:
    """A mistake. `right` says what a correct decoder does, `wrong` what is done instead and `effect` what comes of it, a sentence each.

    `target_class` verifies and commits. `constraint_mask` keeps to a constraint what it answers; a break of it shows only where there
    is one. `replaced_system_fields` replace the system's own fields, by the names of `engine.systems.System`.
    """

    name: str
    title: str
    right: str
    wrong: str
    effect: str
    suggestion: dict[str, Any]
    target_class: type[Target] = Target
    constraint_mask: Mask = mask_forbidden_logits
    replaced_system_fields: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict:
        """All fields that a page shows: not `target_class`, `constraint_mask` and `replaced_system_fields`."""
        return {name: getattr(self, name) for name in ("name", "title", "right", "wrong", "effect", "suggestion")}


BOX = "Story: Once there was a cat and a duck. They were best friends. One day, they found a strange box in the garden."
KITE = "Story: One windy day, Ben took his new blue kite to the park. The wind was strong and the kite"
MITTEN = "Story: One snowy morning, Mia could not find her red mitten. She looked under the bed and"
CARD = (
    'json:{"type": "object", "properties": {"name": {"type": "string", "maxLength": 30}, '
    '"mood": {"enum": ["happy", "sad", "brave"]}, "age": {"type": "integer", "minimum": 1, "maximum": 99}, '
    '"friends": {"type": "array", "items": {"type": "string", "maxLength": 12}, "minItems": 1, "maxItems": 3}}, '
    '"required": ["name", "mood", "age", "friends"], "additionalProperties": false}'
)

BREAKS: dict[str, PlantedBreak] = {
    each.name: each
    for each in (
        PlantedBreak(
            name="mask",
            title="causal mask",
            right="A node sees the text so far and its own ancestors, nothing else.",
            wrong="A node sees every node that stands before it in the arrays, its rivals on other branches too.",
            effect="The target reads words of other branches into every guess, so it judges a text that nobody wrote.",
            suggestion=build_race_settings_showing_break(BOX, "mask"),
            target_class=BrokenMaskTarget,
        ),
        PlantedBreak(
            name="positions",
            title="positions by array index",
            right="A node's position is the length of the text so far plus its depth; siblings share one.",
            wrong="A node's position is the length of the text so far plus its index in the arrays.",
            effect="The target believes that words are missing between a guess and the text before it, and keeps rows that say so.",
            suggestion=build_race_settings_showing_break(MITTEN, "positions"),
            target_class=BrokenPositionTarget,
        ),
        PlantedBreak(
            name="trim",
            title="cache trimmed to the first rows",
            right="The cache keeps the rows of the root and of the accepted path, wherever they stand in the tree.",
            wrong="The cache keeps as many rows as were accepted, but always the first ones of the tree.",
            effect="The page shows one text and the target remembers another, from the first path that is not the tree's first rows.",
            suggestion=build_race_settings_showing_break(KITE, "trim"),
            target_class=BrokenCommitTarget,
        ),
        PlantedBreak(
            name="acceptance",
            title="naive acceptance",
            right="The rule accepts so that what comes out has the target's own distribution.",
            wrong="A full tree of the draft's favourites; every guess is tried on its own with min(1, p/q), and the longest path wins.",
            effect="Favourites get too many chances: above temperature 0 likely tokens come out too often. At 0 nothing changes.",
            suggestion=build_race_settings_showing_break(MITTEN, "acceptance", temperature=0.8),
            replaced_system_fields={"policy": "kary", "acceptance": "independent", "depth": 3, "width": 2, "nodes": 15},
        ),
        PlantedBreak(
            name="constraint",
            title="constraint on the last tokens alone",
            right="A constraint, such as a JSON schema, forbids tokens behind every node of the tree, drafted or not.",
            wrong="The constraint forbids tokens behind the tree's leaves alone. Guesses are masked, what they are judged by is not.",
            effect="Where a guess is rejected, the target's own token may be forbidden: the text breaks the schema.",
            suggestion=build_race_settings_showing_break(KITE, "constraint", constraint=CARD),
            constraint_mask=mask_forbidden_logits_only_at_leaves,
        ),
    )
}
