"""Acceptance rules: which guesses survive. One file per rule and one line in `ACCEPTANCES`."""

from engine.contracts import Acceptance, LazyPartRegistry

ACCEPTANCES: LazyPartRegistry[Acceptance] = LazyPartRegistry(
    "acceptance rule",
    __name__,
    {
        "token_match": "token_match.TokenMatch",
        "speculative": "speculative.ChainSpeculativeSampling",
        "with_replacement": "with_replacement.MultiRoundWithReplacement",
        "without_replacement": "without_replacement.MultiRoundWithoutReplacement",
        "k_seq": "k_seq.KSeq",
        "block": "block.BlockVerification",
        "traversal": "traversal.TraversalVerification",
        "gbv": "gbv.GreedyMultiPathBlockVerification",
        "independent": "independent.LossyIndependentNodes",
        "typical": "typical.LossyTypicalAcceptance",
    },
)
