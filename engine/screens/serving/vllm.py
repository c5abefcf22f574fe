"""vLLM's spelling of a setting. It drafts in every way that engines know, and verifies chains.

Read in its documentation of 0.32 ("Adaptive Verification", "Dynamic Speculative Decoding"). Adaptive verification is off by default.
It trims every request's chain by the chance of its guesses and by what steps of each size cost, which is profiled at the start. It
serves model drafters, needs full CUDA graphs, and excludes LoRA and pipeline parallelism. `num_speculative_tokens_per_batch_size` sets
a chain's length by the number of requests.
"""

import json

from engine.drafters.lookup import LONGEST
from engine.screens.serving import sentences
from engine.screens.serving.sentences import guesses, one_chain, request, seeds, tokens
from engine.screens.serving.setting import Configuration, Mode, Modes, Setting

MODES = Modes(
    own={
        "n-gram lookup": Mode("ngram", "n-gram lookup"),
        "suffix tree": Mode("suffix", "suffix decoding"),
        "draft model": Mode("draft_model", "a draft model", "a small model with TARGET’s vocabulary"),
        "EAGLE": Mode("eagle3", "EAGLE-3", "an EAGLE-3 head trained for TARGET"),
        "Medusa": Mode("medusa", "Medusa", "a set of Medusa heads trained for TARGET"),
        "block": Mode("dflash", "DFlash", "a DFlash drafter trained for TARGET"),
    },
    nearest={},
)


def vllm(setting: Setting) -> Configuration:
    mode, options, idea = MODES.of(setting), {}, "Plain decoding: vLLM without speculation."
    if mode and mode.draft:
        options = {"method": mode.option, "model": "DRAFT", "num_speculative_tokens": setting.chain}
        idea = f"A chain of {guesses(setting.chain)} a round; DRAFT is {mode.draft}."
        if setting.accepts_by in ("min(1, p/q)", "whole block"):
            options["draft_sample_method"] = "probabilistic"
        if setting.accepts_by == "whole block":
            options["rejection_sample_method"] = "block"
        if adapts(setting, mode):
            options["enable_adaptive_verification"] = True
            idea = f"A chain of up to {guesses(setting.chain)}, verified as far as it is likely to pay; DRAFT is {mode.draft}."
    elif mode and mode.option == "suffix":
        options = {"method": mode.option, "num_speculative_tokens": setting.chain}
        idea = f"Suffix decoding: copies up to {tokens(setting.chain)} that followed the same words here or in earlier answers."
    elif mode:
        options = {
            "method": mode.option,
            "num_speculative_tokens": setting.chain,
            "prompt_lookup_min": 1,
            "prompt_lookup_max": LONGEST,
        }
        idea = f"N-gram lookup: copies up to {tokens(setting.chain)} that followed the same words before."
    serve = "vllm serve TARGET"
    if options:
        serve += f" \\\n  --speculative-config '{indented(options)}'"
    return Configuration(
        engine="vLLM",
        version="0.32",
        idea=idea,
        language="bash",
        code=f"{serve}\n\n{request(8000, setting.temperature)}",
        cannot=cannot(setting, mode),
        source="vLLM’s documentation 0.32, “Speculative Decoding” and “Adaptive Verification”",
    )


def adapts(setting: Setting, mode: Mode) -> bool:
    """Whether it can verify less where less pays. That is for drafters whose logits it reads."""
    return setting.grows == "tree that adapts" and mode.option in ("draft_model", "eagle3", "dflash")


def cannot(setting: Setting, mode: Mode | None) -> list[str]:
    said = sentences.drafter(setting, MODES)
    if not mode:
        return said + seeds(setting, drafts=False)
    if mode.option == "medusa":
        said.append("Of every head only its first guess is verified; the heads’ other ranks are not used.")
    said += one_chain(setting)
    if adapts(setting, mode):
        said.append(
            f"It drafts all {guesses(setting.chain)} of every chain and trims what is verified; {setting.chain} is an upper limit here."
        )
        said.append("Adaptive verification needs full CUDA graphs, and excludes LoRA and pipeline parallelism.")
    elif setting.grows == "tree that adapts":
        said.append(
            f"This drafter’s chain has a fixed length, or one for each batch size: {setting.chain} is an upper limit here."
        )
    said += sentences.policy(setting)
    if mode.option == "suffix":
        said.append("It needs the package arctic-inference, which is installed beside it.")
    if mode.option == "ngram":
        said.append("It copies one earlier match; here every earlier match votes.")
    if not (mode.draft and setting.accepts_by == "whole block"):
        said += sentences.rule(setting)
    if setting.temperature == 0 and setting.system.guarantee == "tokens":
        said.append("Its text equals plain decoding’s up to rounding, which changes with the size of the batch.")
    return said + seeds(setting, drafts=True)


def indented(options: dict) -> str:
    return json.dumps(options, indent=2).replace("\n", "\n  ")
