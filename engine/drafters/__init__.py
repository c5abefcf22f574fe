"""Drafters: who guesses. One file per drafter and one line in `DRAFTERS`; all answer the same question, `log_q(tree, nodes)`."""

from engine.contracts import Drafter, Registry

DRAFTERS: Registry[Drafter] = Registry(
    "drafter",
    __name__,
    {
        "none": "none.NoDrafter",
        "bigram": "bigram.BigramDrafter",
        "lookup": "lookup.LookupDrafter",
        "suffix": "suffix.SuffixDrafter",
        "recycling": "recycling.RecyclingDrafter",
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
        "forced": "forced.ForcedDrafter",
        "best": "best_with_copies.BestDrafter",
    },
)
