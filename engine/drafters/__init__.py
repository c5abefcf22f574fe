"""Drafters: who guesses. One file per drafter and one line in `DRAFTERS`; all answer the same question, `log_q(tree, nodes)`."""

from engine.contracts import Drafter, LazyPartRegistry

DRAFTERS: LazyPartRegistry[Drafter] = LazyPartRegistry(
    "drafter",
    __name__,
    {
        "none": "none.NoDrafter",
        "bigram": "bigram.BigramDrafter",
        "lookup": "lookup.LookupDrafter",
        "suffix": "suffix.SuffixDrafter",
        "recycling": "recycling.TokenRecyclingDrafter",
        "lookahead": "lookahead.LookaheadDrafter",
        "model": "model.ModelDrafter",
        "medusa": "medusa.MedusaDrafter",
        "eagle": "eagle.EagleDrafter",
        "mtp": "mtp.MtpDrafter",
        "parallel": "parallel.ParallelDrafter",
        "dflash": "dflash.DFlashDrafter",
        "dspark": "dflash.DSparkDrafter",
        "specblock": "specblock.SpecBlockDrafter",
        "specblock-adapt": "specblock_adapt.AdaptiveSpecBlockDrafter",
        "forced": "forced.ConstraintForcedDrafter",
        "best": "best_with_copies.BestDrafterWithCopies",
    },
)
