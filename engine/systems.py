"""Named systems: drafter x policy x acceptance. Knows which combinations are sound; refuses the others with the reason."""

import re
from dataclasses import dataclass, replace

from engine.acceptance import ACCEPTANCES
from engine.breaks import BREAKS
from engine.contracts import PROPOSALS, Acceptance, Drafter, Policy, Rounds
from engine.drafters import DRAFTERS
from engine.models.pairs import LoadedPair
from engine.policies import POLICIES
from engine.record.costs import Costs
from engine.rounds.round import HostRounds
from engine.rounds.round_gpu import DeviceRounds, on_device
from engine.sampling import Sampling
from engine.target import Target


@dataclass(frozen=True)
class System:
    """A way of decoding. `cost` says in a sentence what drafting takes; `depth`, `width` and `nodes` are the shape it starts with;
    `broken` names one of `BREAKS`, "" for a system as it should be."""

    name: str
    title: str
    idea: str
    source: str
    cost: str
    drafter: str
    policy: str
    acceptance: str
    depth: int
    width: int
    nodes: int
    broken: str = ""

    def __post_init__(self):
        """Raises `KeyError` for an unknown part and `ValueError` for parts that would bias the output together."""
        for name, registry in zip(
            (self.drafter, self.policy, self.acceptance), (DRAFTERS, POLICIES, ACCEPTANCES), strict=True
        ):
            registry[name]
        if not serves(self.drafter, self.policy):
            able = [name for name in DRAFTERS if serves(name, self.policy)]
            raise ValueError(
                f"{self.policy} needs a drafter with a {POLICIES[self.policy].needs}, and {self.drafter} has none. "
                f"Use {self.policy} with {listed(able)}, or {self.drafter} with the policy best_first."
            )
        if not fits(self.policy, self.acceptance):
            raise ValueError(refusal(self.drafter, self.policy, self.acceptance))

    @property
    def guarantee(self) -> str:
        """ "tokens": the very tokens of plain decoding. "law": its distribution. "lossy": neither."""
        return "lossy" if self.broken else ACCEPTANCES[self.acceptance].guarantee

    @property
    def reads_costs(self) -> bool:
        """Whether its policy sizes trees by what forwards cost on this machine."""
        return POLICIES[self.policy].reads_costs

    def rounds(
        self, pair: LoadedPair, capacity: int, shape: dict[str, int], sampling: Sampling, costs: Costs | None = None
    ) -> Rounds:
        """A lane at work. `shape` is depth, width and nodes. Raises `ValueError` when the pair or the shape does not allow it."""
        kinds = DRAFTERS[self.drafter], POLICIES[self.policy], ACCEPTANCES[self.acceptance]
        if not self.broken and on_device(pair, *kinds, sampling):
            return DeviceRounds(pair, kinds[0].guesses, capacity, shape, sampling)
        drafter, policy, rule = self.build(pair, capacity, **shape, costs=costs)
        return HostRounds(self.target(pair, capacity, drafter.reads_features), drafter, policy, rule, sampling)

    def build(
        self, pair: LoadedPair, capacity: int, depth: int, width: int, nodes: int, costs: Costs | None = None
    ) -> tuple[Drafter, Policy, Acceptance]:
        """Fresh parts for one lane. `costs` are this machine's, for policies that read them; None counts forwards as free.

        Raises `ValueError` when the pair or the shape does not allow it.
        """
        rule = ACCEPTANCES[self.acceptance]()
        proposal, offered = rule.proposal, POLICIES[self.policy].proposals
        if proposal == "any":
            proposal = "ranked" if "ranked" in offered else min(offered)
        drafter, kind = DRAFTERS[self.drafter](pair, capacity), POLICIES[self.policy]
        measured = {"costs": costs} if self.reads_costs and costs else {}
        return drafter, kind(depth, width, nodes, proposal, pair.calibration, **measured), rule

    def target(self, pair: LoadedPair, capacity: int, features: bool) -> Target:
        """The lane's own view of the pair's target."""
        kind = BREAKS[self.broken].target if self.broken else Target
        return kind(pair.target, capacity, features)


def fits(policy: str, acceptance: str) -> bool:
    """Whether the policy can pick tokens in the way that the rule needs."""
    needed = ACCEPTANCES[acceptance].proposal
    return needed == "any" or needed in POLICIES[policy].proposals


def serves(drafter: str, policy: str) -> bool:
    """Whether the drafter answers all that the policy asks."""
    needs = POLICIES[policy].needs
    return not needs or needs in DRAFTERS[drafter].offers


def refusal(drafter: str, policy: str, acceptance: str) -> str:
    """Why policy and rule do not go together, and what goes with each of them on this drafter."""
    needed, lossy = ACCEPTANCES[acceptance].proposal, ACCEPTANCES[acceptance].guarantee == "lossy"
    offered = " or ".join(PROPOSALS[each] for each in sorted(POLICIES[policy].proposals))
    policies = [each for each in POLICIES if fits(each, acceptance) and serves(drafter, each)]
    rules = [each for each in ACCEPTANCES if fits(policy, each)]
    return (
        f"{policy} with {acceptance} {'has no meaning' if lossy else 'would bias the output'}: the rule needs {PROPOSALS[needed]}, "
        f"and the policy offers {offered}. Use {policy} with {listed(rules)}, or {acceptance} with the policy {listed(policies)}."
    )


def listed(names: list[str]) -> str:
    return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))


SYSTEMS: dict[str, System] = {
    system.name: system
    for system in (
        System(
            name="vanilla",
            title="token by token",
            idea="One target forward for every token: the baseline.",
            source="autoregressive decoding",
            cost="No draft: every token pays for a whole target forward.",
            drafter="none", policy="chain", acceptance="token_match", depth=1, width=1, nodes=2,
        ),
        System(
            name="tree",
            title="draft tree",
            idea="A small model drafts the most probable branches within a node budget; the target verifies all of them at once.",
            source="EAGLE-2's expand and rerank (Li et al. 2024) with a draft model and token match",
            cost="One draft forward per tree level.",
            drafter="model", policy="best_first", acceptance="token_match", depth=4, width=4, nodes=8,
        ),
        System(
            name="chain",
            title="draft chain",
            idea="A small model drafts a few tokens in a row; each is accepted with min(1, p/q).",
            source="Leviathan et al. 2023, Chen et al. 2023",
            cost="One draft forward per token of the chain.",
            drafter="model", policy="chain", acceptance="speculative", depth=4, width=1, nodes=5,
        ),
        System(
            name="nanogpt-tree",
            title="bigram tree",
            idea="A table of which token follows which fills a full tree: no draft model at all.",
            source="tree-based speculative decoding for nanoGPT, with token match in place of its biased rule",
            cost="A table look-up per node; no draft forward.",
            drafter="bigram", policy="kary", acceptance="token_match", depth=3, width=2, nodes=15,
        ),
        System(
            name="medusa",
            title="Medusa heads",
            idea="Extra heads on the target's last hidden state guess several tokens ahead, none knowing of the others' guesses.",
            source="Medusa (Cai et al. 2024), calibrated sparse tree, with token match",
            cost="One small matrix product per depth; no draft forward.",
            drafter="medusa", policy="sparse", acceptance="token_match", depth=4, width=8, nodes=12,
        ),
        System(
            name="medusa-typical",
            title="Medusa, typical acceptance (lossy)",
            idea="The same heads; any guess that the target finds likely enough passes. Lossy: above temperature 0 the text changes.",
            source="Medusa (Cai et al. 2024), typical acceptance",
            cost="One small matrix product per depth; no draft forward.",
            drafter="medusa", policy="sparse", acceptance="typical", depth=4, width=8, nodes=12,
        ),
        System(
            name="parallel-tree",
            title="parallel tree",
            idea="A small net reads the target's hidden states and guesses every depth at once; a beam makes a tree of the guesses.",
            source="the feature-conditioned parallel-tree drafter of the seeds",
            cost="One draft forward a round, for all depths together.",
            drafter="parallel", policy="beam", acceptance="token_match", depth=6, width=4, nodes=12,
        ),
        System(
            name="specblock",
            title="SpecBlock",
            idea="Each draft forward gives four tokens that know of each other, and a rank head says where the tree should branch.",
            source="SpecBlock, rank-guided tree, with token match",
            cost="One draft forward per four levels.",
            drafter="specblock", policy="rank_guided", acceptance="token_match", depth=4, width=4, nodes=12,
        ),
        System(
            name="specblock-adapt",
            title="SpecBlock, adapting",
            idea="The same drafter learns from its rejected guesses while it serves, when a bandit expects that to pay.",
            source="SpecBlock's cost-aware adaptation; the reward is our own",
            cost="One draft forward per four levels, and now and then a training step, which counts on this lane's clock.",
            drafter="specblock-adapt", policy="rank_guided", acceptance="token_match", depth=4, width=4, nodes=12,
        ),
        System(
            name="eagle",
            title="EAGLE tree",
            idea="One small layer goes on from the target's hidden states, so it guesses with what the target was already thinking.",
            source="EAGLE-2 and 3 (Li et al. 2024, 2025), with token match",
            cost="One draft forward per tree level.",
            drafter="eagle", policy="expand_rerank", acceptance="token_match", depth=5, width=3, nodes=12,
        ),
        System(
            name="auto",
            title="auto",
            idea="Grows, every round anew, the tree that pays on this machine and for this text: none at all where guessing does not.",
            source="ours: the pair's best drafter, measured costs of forwards, and how often guesses came true so far",
            cost="One draft forward per tree level, as many levels as are worth it.",
            drafter="best", policy="auto", acceptance="token_match", depth=12, width=4, nodes=24,
        ),
        System(
            name="lookup",
            title="prompt lookup",
            idea="Guesses what followed the same words earlier in the text: free, and strong when text repeats itself.",
            source="prompt lookup decoding (Saxena 2023)",
            cost="A dictionary look-up per node; no draft forward.",
            drafter="lookup", policy="best_first", acceptance="token_match", depth=4, width=2, nodes=8,
        ),
        System(
            name="naive",
            title="naive p/q tree (biased)",
            idea="Every guess of a full tree is tried on its own with min(1, p/q), and the longest surviving path wins. "
            "Lossy: above temperature 0 likely tokens come out too often.",
            source="tree-based speculative decoding for nanoGPT, its own rule",
            cost="One draft forward per tree level.",
            drafter="model", policy="kary", acceptance="independent", depth=3, width=2, nodes=15,
        ),
        System(
            name="specinfer",
            title="SpecInfer tree",
            idea="A fixed number of guesses is drawn on every level; each rejected guess leaves a residual for the next.",
            source="Miao et al. 2024, multi-round speculative sampling with replacement",
            cost="One draft forward per tree level.",
            drafter="model", policy="widths", acceptance="with_replacement", depth=4, width=3, nodes=16,
        ),
        System(
            name="spectr",
            title="SpecTr chains",
            idea="Several chains are drawn side by side and share their common beginnings; what they hold at a place competes there.",
            source="Sun et al. 2023, K-SEQ",
            cost="One draft forward per token of a chain, for all chains at once.",
            drafter="model", policy="chains", acceptance="k_seq", depth=4, width=3, nodes=16,
        ),
        System(
            name="sequoia",
            title="Sequoia tree",
            idea="One tree shape, computed beforehand from measured acceptance and forward times; its guesses are drawn, none twice. "
            "At 64 nodes the tree is as large as pays off, below that as large as asked for.",
            source="Chen et al. 2024, dynamic program and sampling without replacement",
            cost="One draft forward per tree level.",
            drafter="model", policy="sequoia", acceptance="without_replacement", depth=6, width=8, nodes=64,
        ),
        System(
            name="dyspec",
            title="DySpec tree",
            idea="Each guess is drawn where the draft itself expects the best chance of acceptance, until the budget is spent.",
            source="DySpec, Algorithms 1 and 3",
            cost="One draft forward for every node that gets children: the best tree for its size, drafted one node at a time.",
            drafter="model", policy="dyspec", acceptance="without_replacement", depth=5, width=4, nodes=8,
        ),
        System(
            name="dyspec-threshold",
            title="DySpec tree by levels",
            idea="Draws guesses level by level wherever their expected acceptance is above a threshold of 1 / nodes.",
            source="DySpec, Algorithms 2 and 3",
            cost="One draft forward per tree level.",
            drafter="model", policy="dyspec_threshold", acceptance="without_replacement", depth=5, width=4, nodes=12,
        ),
    )
}  # fmt: skip


def find(name: str) -> System:
    """The system of that name, or one mixed by hand: "drafter/policy/acceptance", such as "model/kary/token_match". Either may end in
    a shape of its own, depth x width x nodes: "tree:3x2x8"; or in a break, to be wrong on purpose: "tree!mask", "tree:3x2x8!mask".

    Raises `ValueError` with the reason when there is none or when the parts would bias the output together.
    """
    if name in SYSTEMS:
        return SYSTEMS[name]
    if shaped := re.fullmatch(r"(.+):(\d{1,4})x(\d{1,4})x(\d{1,4})", str(name)):
        depth, width, nodes = (int(each) for each in shaped.groups()[1:])
        return replace(find(shaped[1]), name=name, depth=depth, width=width, nodes=nodes)
    right, mark, broken = str(name).partition("!")
    if mark:
        return break_of(find(right), broken)
    parts = str(name).split("/")
    if len(parts) != 3:
        raise ValueError(
            f"Unknown system {name!r}. Available: {', '.join(SYSTEMS)}, or a mix such as model/kary/token_match."
        )
    drafter, policy, acceptance = parts
    lossy = acceptance in ACCEPTANCES and ACCEPTANCES[acceptance].guarantee == "lossy"
    try:
        return System(
            name=name,
            title="your own mix (lossy)" if lossy else "your own mix",
            idea=f"The {drafter} drafter, the {policy} policy and the {acceptance} rule, put together by hand.",
            source="mixed by hand",
            cost="As its drafter and its policy.",
            drafter=drafter,
            policy=policy,
            acceptance=acceptance,
            depth=3,
            width=2,
            nodes=8,
        )
    except KeyError as error:
        raise ValueError(error.args[0]) from None


def break_of(right: System, broken: str) -> System:
    """The system with one thing wrong. Raises `ValueError` for an unknown break and for a system that it cannot show in."""
    if broken not in BREAKS:
        raise ValueError(f"Unknown break {broken!r}. Available: {', '.join(BREAKS)}, one at a time, as in tree!mask.")
    chosen = BREAKS[broken]
    if right.drafter == "none" or (right.policy == "chain" and "policy" not in chosen.parts):
        raise ValueError(
            f"{right.name} has no branches, so the break {broken} changes nothing there. Break tree instead."
        )
    if right.acceptance == chosen.parts.get("acceptance"):
        raise ValueError(f"{right.name} is broken that way already. Break tree instead.")
    return replace(
        right,
        **chosen.parts,
        name=f"{right.name}!{broken}",
        title=f"{right.title}, {chosen.title} (broken)",
        idea=f"Broken on purpose. {chosen.wrong} {chosen.effect}",
        source="broken on purpose",
        broken=broken,
    )
