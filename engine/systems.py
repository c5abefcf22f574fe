"""Systems: drafter x policy x acceptance, by name or as a mix, and what each needs of a pair."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from operator import le
from typing import Any

from engine.acceptance import ACCEPTANCES
from engine.breaks import BREAKS
from engine.contracts import (
    FREE,
    NO_GUESSES,
    Acceptance,
    Drafter,
    MissingRequirement,
    Policy,
    RoundRunner,
)
from engine.drafters import DRAFTERS
from engine.mixes import (
    can_feed_policy,
    explain_unsound_mix,
    is_sound_policy_for_acceptance,
    join_with_commas_and_or,
)
from engine.models.pairs import LoadedPair
from engine.named_systems import NAMED
from engine.policies import POLICIES
from engine.record.calibration import parse_depth_width_nodes
from engine.record.costs import Costs, MeanRoundCountsOfShape
from engine.record.parsing import format_value_for_error
from engine.rounds.guiding import Mask, mask_forbidden_logits
from engine.rounds.pair_costs import PairCosts
from engine.rounds.round import HostRoundRunner
from engine.rounds.round_gpu import DeviceRoundRunner, can_run_rounds_on_device
from engine.sampling import Sampling
from engine.target import Target

SHAPE = ("depth", "width", "nodes")
# What a system that chooses its drafter races as, where a GPU decides whole rounds
ONE_DRAFTER = "tree", "eagle", "dspark", "mtp"


def format_shape(shape: Mapping[str, Any]) -> str:
    """A shape in a word, as in 4x4x8."""
    return "x".join(str(shape[name]) for name in SHAPE)


def parse_shape_word(shape_name: str) -> dict[str, int]:
    """The shape that `format_shape` spells."""
    return dict(zip(SHAPE, parse_depth_width_nodes(shape_name), strict=True))


@dataclass(frozen=True)
class System:
    """A way of decoding. `depth`, `width` and `nodes` are its own shape: its paper's, or the one that it is named with.

    `cost` is a sentence on what drafting costs. `broken` names one of `BREAKS`, "" for a system as it should be.
    """

    name: str
    title: str
    idea: str
    source: str
    drafter: str
    policy: str
    acceptance: str
    depth: int
    width: int
    nodes: int
    cost: str = "One draft forward per tree level."
    broken: str = ""

    def __post_init__(self):
        """Raises `KeyError` for an unknown part and `ValueError` for parts that would bias the output together."""
        _ = self.parts
        if not can_feed_policy(self.drafter, self.policy):
            able = [name for name in DRAFTERS if can_feed_policy(name, self.policy)]
            raise ValueError(
                f"{self.policy} needs a drafter with a {POLICIES[self.policy].required_capability}, and {self.drafter} has none. "
                f"Use {self.policy} with {join_with_commas_and_or(able)}, or {self.drafter} with the policy best_first."
            )
        if not is_sound_policy_for_acceptance(self.policy, self.acceptance):
            raise ValueError(explain_unsound_mix(self.drafter, self.policy, self.acceptance))

    @property
    def parts(self) -> tuple[type[Drafter], type[Policy], type[Acceptance]]:
        """The classes of its drafter, policy and acceptance rule. Raises `KeyError` for an unknown one."""
        return DRAFTERS[self.drafter], POLICIES[self.policy], ACCEPTANCES[self.acceptance]

    @property
    def guarantee(self) -> str:
        """ "tokens": the very tokens of plain decoding. "law": its distribution. "lossy": neither."""
        return "lossy" if self.broken else ACCEPTANCES[self.acceptance].guarantee

    @property
    def guesses(self) -> bool:
        """Whether its drafter guesses anything."""
        return DRAFTERS[self.drafter].guess_origin != NO_GUESSES

    @property
    def can_branch(self) -> bool:
        """Whether its trees may branch."""
        return self.guesses and POLICIES[self.policy].can_branch

    @property
    def sizes_trees(self) -> bool:
        """Whether its policy sizes trees by this machine's costs, so that depth, width and nodes are only upper limits."""
        return POLICIES[self.policy].reads_costs

    def needs_costs(self, pair: LoadedPair) -> bool:
        """Whether its lanes are made with the costs of forwards on this machine."""
        return self.sizes_trees or bool(DRAFTERS[self.drafter].inner_drafter_candidates(pair))

    @property
    def has_shape_in_name(self) -> bool:
        """Whether its name says its shape, as in tree:3x2x8, so that it races in no other."""
        return ":" in self.name

    @property
    def default_shape(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in SHAPE}

    def find_missing_requirement(self, pair: LoadedPair) -> MissingRequirement | None:
        """What the pair lacks for it, None for nothing. Nothing is loaded for the answer."""
        drafter, policy, _ = self.parts
        return drafter.find_missing_requirement(pair) or policy.find_missing_requirement(pair)

    def refuse_pair_lacking_parts(self, pair: LoadedPair) -> None:
        """Raises `ValueError` where the pair lacks something for it."""
        if lack := self.find_missing_requirement(pair):
            raise ValueError(lack.refusal)

    def calibrated_mean_rounds_by_shape(self, pair: LoadedPair) -> Mapping[str, MeanRoundCountsOfShape]:
        """The shapes that were counted of this system on the pair. A break has those of what it breaks; a shape in the name is all."""
        return pair.calibration.shapes.get(self.name.partition("!")[0], {})

    def get_or_measure_costs(self, pair: LoadedPair) -> Costs:
        """What its rounds cost on this machine and what its counted shapes promise there, measured on the first call.

        A policy that sizes trees by costs has them as `PairCosts.retime_verifications_if_stale` timed them last. Where a GPU decides
        whole rounds and a system chooses its drafter, promises are those of such rounds.
        """
        measured = PairCosts(pair).get_or_measure_costs(self.drafter, use_recent_verifications=self.sizes_trees)
        costs = measured.with_predicted_speedups_of_shapes(self.calibrated_mean_rounds_by_shape(pair))
        sampling = Sampling(device=pair.target.noise_place)
        there = self.promised_speedups_of_device_systems(pair, self.default_shape, sampling)
        promised = {each.drafter: round(speedup, 2) for each, speedup in there.items() if speedup}
        return replace(costs, promised=promised) if promised else costs

    def best_shape_for(self, pair: LoadedPair) -> dict[str, int]:
        """The shape that it races in where nobody asks for another: of the counted ones the best on this machine, else its own."""
        if not self.calibrated_mean_rounds_by_shape(pair):
            return self.default_shape
        return parse_shape_word(self.get_or_measure_costs(pair).best_shape)

    def open_rounds(self, pair: LoadedPair, capacity: int, shape: dict[str, int], sampling: Sampling) -> RoundRunner:
        """A lane at work. `shape` is depth, width and nodes. Raises `ValueError` when the pair or the shape does not allow it."""
        self.refuse_pair_lacking_parts(pair)
        if self.can_run_whole_rounds_on_device(pair, shape, sampling):
            return DeviceRoundRunner(pair, self.drafter, self.build_policy(pair, shape), capacity, sampling)
        if there := self.promised_speedups_of_device_systems(pair, shape, sampling):
            best = max(there, key=there.__getitem__)
            system = SYSTEMS["vanilla"] if 0 < there[best] < 1 else best  # none promises to pay
            return system.open_rounds(pair, capacity, system.default_shape, sampling)
        costs = self.get_or_measure_costs(pair) if self.needs_costs(pair) else FREE
        drafter, policy, rule = self.build_parts(pair, capacity, **shape, costs=costs)
        target = self.open_target(pair, capacity, drafter.reads_features)
        return HostRoundRunner(target, drafter, policy, rule, sampling, self.constraint_mask)

    def can_run_whole_rounds_on_device(self, pair: LoadedPair, shape: Mapping[str, int], sampling: Sampling) -> bool:
        """Whether a GPU decides rounds of this system alone, in this shape."""
        alike = self.acceptance == SYSTEMS["tree"].acceptance and not self.broken and sampling.device is not None
        return alike and can_run_rounds_on_device(pair, self.drafter, self.build_policy(pair, shape), sampling)

    def promised_speedups_of_device_systems(
        self, pair: LoadedPair, shape_limits: Mapping[str, int], sampling: Sampling
    ) -> dict["System", float]:
        """Where a GPU decides whole rounds, what a system that chooses its drafter may race as, by how much faster each promises to be.

        Of each drafter that is the counted shape within the limits that promises the most by measured rounds. Without counted shapes
        it is the drafter's own shape, cut to the limits, which promises nothing. Empty stands for rounds with parts on the host.
        """
        if not self.sizes_trees or self.acceptance != SYSTEMS["tree"].acceptance or self.broken or not sampling.device:
            return {}
        choices, found = DRAFTERS[self.drafter].inner_drafter_candidates(pair), {}
        for system in map(SYSTEMS.__getitem__, ONE_DRAFTER):
            if system.drafter not in choices:
                continue
            own = {name: min(value, shape_limits[name]) for name, value in system.default_shape.items()}
            if not system.can_run_whole_rounds_on_device(pair, own, sampling):
                continue
            counted = {
                name: each
                for name, each in system.calibrated_mean_rounds_by_shape(pair).items()
                if all(map(le, parse_depth_width_nodes(name), shape_limits.values()))
            }
            costs = FREE
            if counted:
                measured = PairCosts(pair).get_or_measure_device_costs(system.drafter, system.policy)
                costs = measured.with_predicted_speedups_of_shapes(counted)
            shape = parse_shape_word(costs.best_shape) if counted else own
            made = replace(system, depth=shape["depth"], width=shape["width"], nodes=shape["nodes"])
            found[made] = costs.shapes[costs.best_shape].speedup if counted else 0.0
        return found

    def build_policy(self, pair: LoadedPair, shape: Mapping[str, int], costs: Costs = FREE) -> Policy:
        """A fresh policy of that depth, width and nodes. Raises `ValueError` when the pair or the shape does not allow it."""
        _, policy, rule = self.parts
        proposal, offered = rule.required_proposal_mode, policy.supported_proposal_modes
        if proposal == "any":
            proposal = "ranked" if "ranked" in offered else min(offered)
        return policy(shape["depth"], shape["width"], shape["nodes"], proposal, pair.calibration, costs)

    def build_parts(
        self, pair: LoadedPair, capacity: int, depth: int, width: int, nodes: int, costs: Costs = FREE
    ) -> tuple[Drafter, Policy, Acceptance]:
        """Fresh parts for one lane. `costs` are this machine's. Raises `ValueError` when the pair or the shape does not allow it."""
        self.refuse_pair_lacking_parts(pair)
        drafter, _, rule = self.parts
        choices = drafter.inner_drafter_candidates(pair)
        name = (costs.best_drafter_among(choices) or choices[0]) if choices else self.drafter
        guessing = drafter(pair, capacity, **({"drafter_name": name} if choices else {}))
        guessing.stop_ids, guessing.score_hits = pair.stop_ids, pair.calibration.score_hits.get(name)
        return guessing, self.build_policy(pair, {"depth": depth, "width": width, "nodes": nodes}, costs), rule()

    @property
    def constraint_mask(self) -> Mask:
        """How its rounds keep to a constraint."""
        return BREAKS[self.broken].constraint_mask if self.broken else mask_forbidden_logits

    def refuse_constraint_break_without_constraint(self, constraint: str) -> None:
        """Raises `ValueError` for a break of constraints in a race without a constraint."""
        if self.constraint_mask is not mask_forbidden_logits and not constraint:
            raise ValueError(
                f"{self.name} breaks a constraint, and there is none. Give one, such as a JSON schema, or another break."
            )

    def open_target(self, pair: LoadedPair, capacity: int, features: bool | tuple[int, ...]) -> Target:
        """The lane's own view of the pair's target."""
        kind = BREAKS[self.broken].target_class if self.broken else Target
        return kind(pair.target, capacity, features)


LONGEST_CHAIN = 12  # guesses in a row, as many as a race lets a tree have levels
LONGEST_NAME = 100  # characters; no mix with a shape and a break has more than 72
SYSTEMS: dict[str, System] = {name: System(name, **fields) for name, fields in NAMED.items()}


def resolve_system_name(name: object) -> System:
    """The system of that name, or one mixed by hand as "drafter/policy/acceptance", such as "model/kary/token_match".

    Either may end in a shape of its own, depth x width x nodes, as in "tree:3x2x8". Either may end in a break, to be wrong on purpose:
    "tree!mask", "tree:3x2x8!mask".

    Raises `ValueError` with the reason when there is no such system or when its parts would bias the output together.
    """
    if not isinstance(name, str) or len(name) > LONGEST_NAME:
        raise unknown_system_error(name)
    if name in SYSTEMS:
        return SYSTEMS[name]
    if shaped := re.fullmatch(r"(.+):([0-9]{1,4})x([0-9]{1,4})x([0-9]{1,4})", name):
        if ":" in shaped[1]:
            raise ValueError(f"{format_value_for_error(name)} has two shapes. Give it one, as in tree:3x2x8.")
        depth, width, nodes = (int(each) for each in shaped.groups()[1:])
        found = replace(resolve_system_name(shaped[1]), name=name, depth=depth, width=width, nodes=nodes)
        one_path = found.guesses and "/" in name and (width == 1 or not found.can_branch)
        return retitle_mix_as_chain(found) if one_path else found
    right, mark, broken = name.partition("!")
    if mark:
        return break_system(resolve_system_name(right), broken)
    parts = name.split("/")
    if len(parts) != 3:
        raise unknown_system_error(name)
    drafter, policy, acceptance = parts
    idea = f"The {drafter} drafter, the {policy} policy and the {acceptance} rule, put together by hand."
    cost = "As its drafter and its policy."
    try:
        title = f"your own mix{', all nodes used' * POLICIES[policy].is_budget_filling_substitute}"
        words = (title, idea, "mixed by hand")
        mix = System(name, *words, drafter, policy, acceptance, depth=3, width=2, nodes=8, cost=cost)
    except KeyError as error:
        raise ValueError(error.args[0]) from None
    return replace(mix, title=f"{mix.title} (lossy)") if mix.guarantee == "lossy" else mix


def find_comparable_chain_name(system: System, shape: Mapping[str, int]) -> str:
    """The name of the chain with the same drafter and as many nodes as that system in this shape; "" where it never branches.

    A policy that sizes trees by costs sizes the chain too, with a width of 1. No chain is deeper than `LONGEST_CHAIN`.
    """
    if not system.can_branch or system.broken:
        return ""
    if system.sizes_trees:
        parts, depth = (system.drafter, system.policy, system.acceptance), shape["depth"]
    else:
        parts = (system.drafter, SYSTEMS["chain"].policy, SYSTEMS["tree"].acceptance)
        depth = min(shape["nodes"] - 1, LONGEST_CHAIN)
    return f"{'/'.join(parts)}:{depth}x1x{shape['nodes'] if system.sizes_trees else depth + 1}"


def find_node_filling_system_name(system: System) -> str:
    """The name of the system that uses all nodes, with the same drafter and rule; "" where this one does, or none can."""
    filling = next(name for name, policy in POLICIES.items() if policy.is_budget_filling_substitute)
    fits = is_sound_policy_for_acceptance(filling, system.acceptance) and can_feed_policy(system.drafter, filling)
    able = fits and not system.broken
    spares = able and (system.sizes_trees or POLICIES[system.policy].unused_budget_reason)
    return f"{system.drafter}/{filling}/{system.acceptance}" if spares else ""


def retitle_mix_as_chain(chain: System) -> System:
    """A mixed system whose trees are single paths, with the title and idea of a draft chain."""
    if chain.sizes_trees:
        idea = "The same guesses in one row: a wrong one ends them all."
        return replace(chain, title="draft chain, sizes itself", idea=idea)
    guesses = min(chain.depth, chain.nodes - 1)
    return replace(chain, title=f"draft chain of {guesses}", idea="All guesses in one row: a wrong one ends them all.")


def unknown_system_error(name: object) -> ValueError:
    names = ", ".join(SYSTEMS)
    return ValueError(
        f"Unknown system {format_value_for_error(name)}. Available: {names}, or a mix such as model/kary/token_match."
    )


def break_system(system: System, break_name: str) -> System:
    """The system `system` with one thing wrong. Raises `ValueError` for an unknown break, and where the break changes nothing."""
    if break_name not in BREAKS:
        raise ValueError(
            f"Unknown break {format_value_for_error(break_name)}. Available: {', '.join(BREAKS)}, one at a time, as in tree!mask."
        )
    chosen = BREAKS[break_name]
    wrong = replace(
        system,
        **chosen.replaced_system_fields,
        name=f"{system.name}!{break_name}",
        title=f"{system.title}, {chosen.title} (broken)",
        idea=f"Broken on purpose. {chosen.wrong} {chosen.effect}",
        source="broken on purpose",
        broken=break_name,
    )
    if not wrong.can_branch:
        raise ValueError(
            f"{system.name} has no branches, so the break {break_name} changes nothing there. Break tree instead."
        )
    if system.acceptance == chosen.replaced_system_fields.get("acceptance"):
        raise ValueError(f"{system.name} is broken that way already. Break tree instead.")
    return wrong
