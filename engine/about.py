"""One plain sentence for every part that a system is mixed from, by kind and name. Knows words only; imports nothing."""

ABOUT: dict[str, dict[str, str]] = {
    "drafter": {
        "none": "Guesses nothing: every token comes from the target.",
        "bigram": "A table of which token follows which; it looks one token back.",
        "lookup": "Copies what followed the same words earlier in the text.",
        "model": "A small language model beside the target.",
        "medusa": "Heads on the target, one for each place ahead; none knows what the others guess.",
        "eagle": "A small layer that goes on from the target's own hidden states.",
        "parallel": "A small net that guesses every depth in one forward.",
        "specblock": "A small net that guesses a block of several depths in one forward.",
        "specblock-adapt": "The block drafter, which goes on learning from the target while it serves.",
    },
    "policy": {
        "chain": "One guess after another, no branches.",
        "kary": "A full tree: the same number of branches everywhere.",
        "best_first": "The most probable path next, within a node budget.",
        "widths": "A fixed number of independent draws behind every node.",
        "chains": "Several independent chains, merged where they begin alike.",
        "sequoia": "One fixed shape, the best for how often guesses were right when measured.",
        "dyspec": "Each draw goes where it is most likely to be accepted.",
        "dyspec_threshold": "Level by level, a draw wherever it is worth its place.",
        "beam": "The best few paths survive each level.",
        "expand_rerank": "Expands the best few nodes of a level, then keeps the best of all levels.",
        "rank_guided": "The drafter itself says where to branch and from where to draft on.",
        "sparse": "One fixed shape, the best for how often each favourite was right.",
    },
    "acceptance": {
        "token_match": "Keeps a guess if the target draws that very token.",
        "speculative": "Keeps a guess with probability min(1, p/q), else draws from the rest of p.",
        "with_replacement": "Tries several draws from one q in turn, each against what is left of p.",
        "without_replacement": "Tries draws in turn; a token that failed is not drawn again.",
        "k_seq": "Tries several draws, each with a p/q scaled for their number.",
        "independent": "Every guess alone with min(1, p/q): simple, and biased.",
        "typical": "Keeps what the target finds likely enough, whatever it would have drawn.",
    },
}
