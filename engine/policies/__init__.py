"""Policies: which guesses enter the tree. One file per policy and one line in `POLICIES`."""

from engine.contracts import Policy, Registry

POLICIES: Registry[Policy] = Registry(
    "policy",
    __name__,
    {
        "auto": "auto.Auto",
        "chain": "chain.Chain",
        "kary": "kary.Kary",
        "best_first": "best_first.BestFirst",
        "widths": "widths.Widths",
        "chains": "chains.Chains",
        "sequoia": "sequoia.Sequoia",
        "dyspec": "dyspec.DySpec",
        "dyspec_threshold": "dyspec_threshold.DySpecThreshold",
        "beam": "beam.Beam",
        "expand_rerank": "expand_rerank.ExpandRerank",
        "talon": "talon.Talon",
        "sparse": "sparse.Sparse",
        "rank_guided": "rank_guided.RankGuided",
        "own_tree": "own_tree.OwnTree",
    },
)
