"""The named systems: for each its words, its parts and the shape it starts with. Data only; `engine.systems` makes systems of it.

Fields are those of `engine.systems.System`; the order is that of menus and tables.
"""

from typing import Any

NAMED: dict[str, dict[str, Any]] = {
    "vanilla": {
        "title": "token by token",
        "idea": "One target forward for every token: the baseline.",
        "source": "autoregressive decoding",
        "cost": "No draft: every token pays for a whole target forward.",
        "drafter": "none", "policy": "chain", "acceptance": "token_match", "depth": 1, "width": 1, "nodes": 2,
    },
    "tree": {
        "title": "draft tree",
        "idea": "A small model drafts the most probable branches within a node budget; the target verifies all of them at once.",
        "source": "EAGLE-2's expand and rerank (Li et al. 2024) with a draft model and token match",
        "cost": "One draft forward per tree level.",
        "drafter": "model", "policy": "best_first", "acceptance": "token_match", "depth": 4, "width": 4, "nodes": 8,
    },
    "chain": {
        "title": "draft chain",
        "idea": "A small model drafts a few tokens in a row; each is accepted with min(1, p/q).",
        "source": "Leviathan et al. 2023, Chen et al. 2023",
        "cost": "One draft forward per token of the chain.",
        "drafter": "model", "policy": "chain", "acceptance": "speculative", "depth": 4, "width": 1, "nodes": 5,
    },
    "block": {
        "title": "draft chain, judged as a block",
        "idea": "The same chain, judged as a whole: likely later guesses can save an earlier one that p/q alone would reject.",
        "source": "Block Verification (Sun et al. 2024)",
        "cost": "One draft forward per token of the chain.",
        "drafter": "model", "policy": "chain", "acceptance": "block", "depth": 4, "width": 1, "nodes": 5,
    },
    "nanogpt-tree": {
        "title": "bigram tree",
        "idea": "A table of which token follows which fills a full tree: no draft model at all.",
        "source": "tree-based speculative decoding for nanoGPT, with token match in place of its biased rule",
        "cost": "A table look-up per node; no draft forward.",
        "drafter": "bigram", "policy": "kary", "acceptance": "token_match", "depth": 3, "width": 2, "nodes": 15,
    },
    "medusa": {
        "title": "Medusa heads",
        "idea": "Extra heads on the target's last hidden state guess several tokens ahead, none knowing of the others' guesses.",
        "source": "Medusa (Cai et al. 2024), calibrated sparse tree, with token match",
        "cost": "One small matrix product per depth; no draft forward.",
        "drafter": "medusa", "policy": "sparse", "acceptance": "token_match", "depth": 4, "width": 8, "nodes": 12,
    },
    "medusa-typical": {
        "title": "Medusa, typical acceptance (lossy)",
        "idea": "The same heads; any guess that the target finds likely enough passes. Lossy: above temperature 0 the text changes.",
        "source": "Medusa (Cai et al. 2024), typical acceptance",
        "cost": "One small matrix product per depth; no draft forward.",
        "drafter": "medusa", "policy": "sparse", "acceptance": "typical", "depth": 4, "width": 8, "nodes": 12,
    },
    "parallel-tree": {
        "title": "parallel tree",
        "idea": "A small net reads the target's hidden states and guesses every depth at once; a beam makes a tree of the guesses.",
        "source": "the feature-conditioned parallel-tree drafter",
        "cost": "One draft forward a round, for all depths together.",
        "drafter": "parallel", "policy": "beam", "acceptance": "token_match", "depth": 6, "width": 4, "nodes": 12,
    },
    "dflash": {
        "title": "DFlash tree",
        "idea": "A small net fills a block of blanks behind the last word in one forward, reading the target's hidden states; a beam "
        "makes a tree of it.",
        "source": "DFlash (z-lab 2026), with token match",
        "cost": "One draft forward a round, for all depths together.",
        "drafter": "dflash", "policy": "beam", "acceptance": "token_match", "depth": 7, "width": 4, "nodes": 12,
    },
    "dspark": {
        "title": "DSpark tree",
        "idea": "DFlash's block, and a small table that tells every guess which word stands before it.",
        "source": "DSpark (DeepSeek 2026), with token match",
        "cost": "One draft forward a round, for all depths together, and a small matrix product per node.",
        "drafter": "dspark", "policy": "best_first", "acceptance": "token_match", "depth": 7, "width": 4, "nodes": 12,
    },
    "specblock": {
        "title": "SpecBlock",
        "idea": "Each draft forward gives four tokens that know of each other, and a rank head says where the tree should branch.",
        "source": "SpecBlock, rank-guided tree, with token match",
        "cost": "One draft forward per four levels.",
        "drafter": "specblock", "policy": "rank_guided", "acceptance": "token_match", "depth": 4, "width": 4, "nodes": 12,
    },
    "specblock-adapt": {
        "title": "SpecBlock, adapting",
        "idea": "The same drafter learns from its rejected guesses while it serves, when a bandit expects that to pay.",
        "source": "SpecBlock's cost-aware adaptation; the reward is our own",
        "cost": "One draft forward per four levels, and now and then a training step, which counts on this lane's clock.",
        "drafter": "specblock-adapt", "policy": "rank_guided", "acceptance": "token_match", "depth": 4, "width": 4, "nodes": 12,
    },
    "eagle": {
        "title": "EAGLE tree",
        "idea": "One small layer goes on from the target's hidden states, so it guesses with what the target was already thinking.",
        "source": "EAGLE-2 and 3 (Li et al. 2024, 2025), with token match",
        "cost": "One draft forward per tree level.",
        "drafter": "eagle", "policy": "expand_rerank", "acceptance": "token_match", "depth": 5, "width": 3, "nodes": 12,
    },
    "mtp": {
        "title": "MTP tree",
        "idea": "Layers that the target brings along guess the tokens after the next one, from its own final state. Only targets that "
        "ship such layers, or an assistant of Gemma 4, can race it.",
        "source": "multi-token prediction of DeepSeek-V3 (2024), with token match",
        "cost": "One forward of such a layer per tree level.",
        "drafter": "mtp", "policy": "best_first", "acceptance": "token_match", "depth": 3, "width": 3, "nodes": 8,
    },
    "talon": {
        "title": "EAGLE, a tree by Talon",
        "idea": "A fixed number of guesses is spent level by level: deep and narrow where the drafter is sure, wide where it is not.",
        "source": "Talon (Liu et al. 2026) on EAGLE's guesses, with token match",
        "cost": "One draft forward per tree level, most levels where the drafter is sure.",
        "drafter": "eagle", "policy": "talon", "acceptance": "token_match", "depth": 8, "width": 3, "nodes": 12,
    },
    "auto": {
        "title": "auto",
        "idea": "Grows, every round anew, the tree that pays on this machine and for this text: none at all where guessing does not.",
        "source": "ours: the pair's best drafter, measured costs of forwards, and how often guesses came true so far",
        "cost": "One draft forward per tree level, as many levels as are worth it.",
        "drafter": "best", "policy": "auto", "acceptance": "token_match", "depth": 12, "width": 4, "nodes": 24,
    },
    "lookup": {
        "title": "prompt lookup",
        "idea": "Guesses what followed the same words earlier in the text: free, and strong when text repeats itself.",
        "source": "prompt lookup decoding (Saxena 2023)",
        "cost": "A dictionary look-up per node; no draft forward.",
        "drafter": "lookup", "policy": "best_first", "acceptance": "token_match", "depth": 4, "width": 2, "nodes": 8,
    },
    "suffix": {
        "title": "suffix tree",
        "idea": "Copies what followed the same words most often; the longer the match, the more it guesses.",
        "source": "SuffixDecoding (Oliaro et al. 2024), with token match",
        "cost": "A search of the text so far; no draft forward.",
        "drafter": "suffix", "policy": "own_tree", "acceptance": "token_match", "depth": 8, "width": 4, "nodes": 12,
    },
    "forced": {
        "title": "forced tokens",
        "idea": "Under a constraint, such as a JSON schema, it guesses what leaves no choice: names of fields, quotes, brackets. "
        "Without a constraint it is plain decoding.",
        "source": "jump-forward decoding of SGLang (Zheng et al. 2024), here as guesses that are verified",
        "cost": "A mask of the constraint per node; no draft forward.",
        "drafter": "forced", "policy": "chain", "acceptance": "token_match", "depth": 8, "width": 1, "nodes": 9,
    },
    "recycling": {
        "title": "token recycling",
        "idea": "Fills a fixed tree with what the target itself ranked highest after the same tokens, in every verification so far.",
        "source": "Token Recycling (Luo et al. 2024), with token match",
        "cost": "A table look-up per node; no draft forward.",
        "drafter": "recycling", "policy": "own_tree", "acceptance": "token_match", "depth": 4, "width": 4, "nodes": 12,
    },
    "lookahead": {
        "title": "lookahead",
        "idea": "The target guesses far ahead by itself in every forward; its guesses are tried when their first word comes up.",
        "source": "Lookahead Decoding (Fu et al. 2024), with token match",
        "cost": "No draft forward, but most of every verification is spent on the window.",
        "drafter": "lookahead", "policy": "own_tree", "acceptance": "token_match", "depth": 6, "width": 5, "nodes": 32,
    },
    "naive": {
        "title": "naive p/q tree (biased)",
        "idea": "Every guess of a full tree is tried on its own with min(1, p/q), and the longest surviving path wins. "
        "Lossy: above temperature 0 likely tokens come out too often.",
        "source": "tree-based speculative decoding for nanoGPT, its own rule",
        "cost": "One draft forward per tree level.",
        "drafter": "model", "policy": "kary", "acceptance": "independent", "depth": 3, "width": 2, "nodes": 15,
    },
    "specinfer": {
        "title": "SpecInfer tree",
        "idea": "A fixed number of guesses is drawn on every level; each rejected guess leaves a residual for the next.",
        "source": "Miao et al. 2024, multi-round speculative sampling with replacement",
        "cost": "One draft forward per tree level.",
        "drafter": "model", "policy": "widths", "acceptance": "with_replacement", "depth": 4, "width": 3, "nodes": 16,
    },
    "spectr": {
        "title": "SpecTr chains",
        "idea": "Several chains are drawn side by side and share their common beginnings; what they hold at a place competes there.",
        "source": "Sun et al. 2023, K-SEQ",
        "cost": "One draft forward per token of a chain, for all chains at once.",
        "drafter": "model", "policy": "chains", "acceptance": "k_seq", "depth": 4, "width": 3, "nodes": 16,
    },
    "gbv": {
        "title": "chains, the best judged as a block",
        "idea": "Several chains are drawn side by side; the one whose guesses the target likes best is judged as a whole.",
        "source": "Greedy Multi-Path Block Verification (Thomas and Pal 2026)",
        "cost": "One draft forward per token of a chain, for all chains at once.",
        "drafter": "model", "policy": "chains", "acceptance": "gbv", "depth": 4, "width": 3, "nodes": 16,
    },
    "sequoia": {
        "title": "Sequoia tree",
        "idea": "One tree shape, computed beforehand from measured acceptance and forward times; its guesses are drawn, none twice. "
        "At 64 nodes the tree is as large as pays off, below that as large as asked for.",
        "source": "Chen et al. 2024, dynamic program and sampling without replacement",
        "cost": "One draft forward per tree level.",
        "drafter": "model", "policy": "sequoia", "acceptance": "without_replacement", "depth": 6, "width": 8, "nodes": 64,
    },
    "dyspec": {
        "title": "DySpec tree",
        "idea": "Each guess is drawn where the draft itself expects the best chance of acceptance, until the budget is spent.",
        "source": "DySpec, Algorithms 1 and 3",
        "cost": "One draft forward for every node that gets children: the best tree for its size, drafted one node at a time.",
        "drafter": "model", "policy": "dyspec", "acceptance": "without_replacement", "depth": 5, "width": 4, "nodes": 8,
    },
    "traversal": {
        "title": "DySpec tree, judged from the leaves",
        "idea": "Whole paths of a drawn tree are judged, leaves first; where a branch fails, its beginning gets another chance.",
        "source": "Traversal Verification (Weng et al. 2025) on DySpec's tree",
        "cost": "One draft forward for every node that gets children.",
        "drafter": "model", "policy": "dyspec", "acceptance": "traversal", "depth": 5, "width": 4, "nodes": 8,
    },
    "dyspec-threshold": {
        "title": "DySpec tree by levels",
        "idea": "Draws guesses level by level wherever their expected acceptance is above a threshold of 1 / nodes.",
        "source": "DySpec, Algorithms 2 and 3",
        "cost": "One draft forward per tree level.",
        "drafter": "model", "policy": "dyspec_threshold", "acceptance": "without_replacement", "depth": 5, "width": 4, "nodes": 12,
    },
}  # fmt: skip
