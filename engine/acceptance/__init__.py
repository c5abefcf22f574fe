"""Acceptance rules: which guesses survive. One file per rule and one line in `ACCEPTANCES`."""

from engine.contracts import Acceptance, Registry

ACCEPTANCES: Registry[Acceptance] = Registry(
    "acceptance rule",
    __name__,
    {
        "token_match": "token_match.TokenMatch",
        "speculative": "speculative.Speculative",
        "with_replacement": "with_replacement.WithReplacement",
        "without_replacement": "without_replacement.WithoutReplacement",
        "k_seq": "k_seq.KSeq",
        "block": "block.Block",
        "traversal": "traversal.Traversal",
        "gbv": "gbv.GreedyBlock",
        "independent": "independent.Independent",
        "typical": "typical.Typical",
    },
)
