"""Named systems: drafter x policy x acceptance. Knows which combinations are sound; refuses the others with the reason."""

from dataclasses import dataclass

from engine.acceptance import ACCEPTANCES, Acceptance
from engine.drafters import DRAFTERS, Drafter
from engine.models import LoadedPair
from engine.policies import POLICIES, Policy


@dataclass(frozen=True)
class System:
    """A way of decoding. `cost` says in a sentence what drafting takes; `depth`, `width` and `nodes` are the shape it starts with."""

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

    def __post_init__(self):
        """Raises `KeyError` for an unknown part and `ValueError` for parts that would bias the output together."""
        for part, name, registry in (
            ("drafter", self.drafter, DRAFTERS),
            ("policy", self.policy, POLICIES),
            ("acceptance rule", self.acceptance, ACCEPTANCES),
        ):
            if name not in registry:
                raise KeyError(f"Unknown {part} {name!r}. Available: {', '.join(registry)}.")
        needed, offered = ACCEPTANCES[self.acceptance].proposal, POLICIES[self.policy].proposals
        if needed not in offered:
            raise ValueError(
                f"{self.policy} with {self.acceptance} would bias the output: the rule needs tokens that were {needed} from q, and the "
                f"policy only offers {' or '.join(sorted(offered))} ones. Use token_match with {self.policy}, or the policy chain."
            )

    @property
    def guarantee(self) -> str:
        """ "tokens": the very tokens of plain decoding. "law": its distribution. "lossy": neither."""
        return ACCEPTANCES[self.acceptance].guarantee

    def build(
        self, pair: LoadedPair, capacity: int, depth: int, width: int, nodes: int
    ) -> tuple[Drafter, Policy, Acceptance]:
        """Fresh parts for one lane. Raises `ValueError` when the pair or the shape does not allow it."""
        rule = ACCEPTANCES[self.acceptance]()
        policy = POLICIES[self.policy](depth, width, nodes, rule.proposal, pair.calibration)
        return DRAFTERS[self.drafter](pair, capacity), policy, rule


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
            name="lookup",
            title="prompt lookup",
            idea="Guesses what followed the same words earlier in the text: free, and strong when text repeats itself.",
            source="prompt lookup decoding (Saxena 2023)",
            cost="A dictionary look-up per node; no draft forward.",
            drafter="lookup", policy="best_first", acceptance="token_match", depth=4, width=2, nodes=8,
        ),
    )
}  # fmt: skip


def find(name: str) -> System:
    """The system of that name, or one mixed by hand: "drafter/policy/acceptance", such as "model/kary/token_match".

    Raises `ValueError` with the reason when there is none or when the parts would bias the output together.
    """
    if name in SYSTEMS:
        return SYSTEMS[name]
    parts = str(name).split("/")
    if len(parts) != 3:
        raise ValueError(
            f"Unknown system {name!r}. Available: {', '.join(SYSTEMS)}, or a mix such as model/kary/token_match."
        )
    drafter, policy, acceptance = parts
    try:
        return System(
            name=name,
            title="your own mix",
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
