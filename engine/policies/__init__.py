"""Policies: which guesses enter the tree. One file per policy and one line in `POLICIES`."""

from engine.contracts import LazyPartRegistry, Policy

POLICIES: LazyPartRegistry[Policy] = LazyPartRegistry(
    "policy",
    __name__,
    {
        "auto": "auto.CostAdaptiveTree",
        "chain": "chain.Chain",
        "kary": "kary.FullKaryTree",
        "best_first": "best_first.BestFirst",
        "widths": "widths.FixedWidths",
        "chains": "chains.MergedChains",
        "sequoia": "sequoia.SequoiaStaticTree",
        "dyspec": "dyspec.DySpec",
        "dyspec_threshold": "dyspec_threshold.DySpecLevelThreshold",
        "beam": "beam.Beam",
        "expand_rerank": "expand_rerank.ExpandRerank",
        "talon": "talon.TalonNearBestPerLevel",
        "sparse": "sparse.CalibratedSparseTree",
        "rank_guided": "rank_guided.RankHeadGuidedTree",
        "own_tree": "own_tree.DrafterOwnTree",
    },
)
