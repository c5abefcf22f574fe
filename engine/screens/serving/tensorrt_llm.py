"""TensorRT-LLM's spelling of a setting: chains of every drafter, and for EAGLE-3 a tree that it expands and reranks every round.

Read in its documentation of 1.4.0rc1 (features/speculative-decoding, llm-api/reference/Eagle3DecodingConfig) and in its pull request
15775, which brings min(1, p/q) to draft models. Without that option a guess is accepted where the target chooses the same token.
A dynamic tree holds from `max_draft_len` to `dynamic_tree_max_topK * max_draft_len` guesses. The field for fixed trees is gone in 1.4.
"""

from engine.drafters.lookup import LONGEST
from engine.screens.serving import sentences
from engine.screens.serving.sentences import guesses, one_chain, request, seeds, tokens
from engine.screens.serving.setting import Configuration, Mode, Modes, Setting

MODES = Modes(
    own={
        "n-gram lookup": Mode("NGram", "n-gram lookup"),
        "draft model": Mode("DraftTarget", "a draft model", "a small model with TARGET’s tokenizer"),
        "EAGLE": Mode("Eagle3", "EAGLE-3", "an EAGLE-3 head trained for TARGET"),
        "block": Mode("DFlash", "DFlash", "a DFlash drafter trained for TARGET"),
    },
    nearest={"Medusa": "EAGLE", "suffix tree": "n-gram lookup"},
)
WITHOUT_OVERLAP = {"NGram", "DraftTarget"}  # run with the overlap scheduler off
Options = dict[str, object]


def tensorrt_llm(setting: Setting) -> Configuration:
    mode, idea, code = MODES.of(setting), "Plain decoding: TensorRT-LLM without speculation.", "trtllm-serve TARGET"
    if mode:
        options, idea = spelled(setting, mode)
        code = f"cat > config.yaml <<'END'\n{yaml(mode, options)}END\ntrtllm-serve TARGET --config config.yaml"
    return Configuration(
        engine="TensorRT-LLM",
        version="1.4.0rc1",
        idea=idea,
        language="bash",
        code=f"{code}\n\n{request(8000, setting.temperature)}",
        cannot=cannot(setting, mode),
        source="TensorRT-LLM’s documentation 1.4.0rc1, “Speculative Decoding”, and its pull request 15775",
    )


def spelled(setting: Setting, mode: Mode) -> tuple[Options, str]:
    """The mode's options, and what they do in words."""
    options: Options = {"max_draft_len": setting.chain}
    if not mode.draft:
        options |= {"max_matching_ngram_size": LONGEST, "is_public_pool": False}
        return options, f"N-gram lookup: copies up to {tokens(setting.chain)} that followed the same words before."
    options["speculative_model"] = "DRAFT"
    if has_tree(setting, mode):
        options |= {
            "use_dynamic_tree": True,
            "dynamic_tree_max_topK": setting.width,
            "max_total_draft_tokens": held(setting),
        }
        words = f"A tree of {guesses(held(setting))}, {setting.width} wide and {setting.chain} deep, grown every round"
    else:
        words = f"A chain of {guesses(setting.chain)} a round"
    if rejects(setting, mode):
        options["use_rejection_sampling"] = True
    return options, f"{words}; DRAFT is {mode.draft}."


def has_tree(setting: Setting, mode: Mode) -> bool:
    return mode.option == "Eagle3" and setting.width > 1


def held(setting: Setting) -> int:
    """The guesses that its tree holds; the root is none of them."""
    return min(setting.system.nodes - 1, setting.width * setting.chain)


def rejects(setting: Setting, mode: Mode) -> bool:
    return setting.accepts_by == "min(1, p/q)" and bool(mode.draft) and not has_tree(setting, mode)


def yaml(mode: Mode, options: Options) -> str:
    spoken = {name: str(value).lower() if isinstance(value, bool) else value for name, value in options.items()}
    lines = [f"  {name}: {value}" for name, value in {"decoding_type": mode.option, **spoken}.items()]
    lines += ["disable_overlap_scheduler: true"] if mode.option in WITHOUT_OVERLAP else []
    return "\n".join(["speculative_config:", *lines, ""])


def cannot(setting: Setting, mode: Mode | None) -> list[str]:
    said = sentences.drafter(setting, MODES)
    if not mode:
        return said + seeds(setting, drafts=False)
    if has_tree(setting, mode):
        said += of_tree(setting)
    else:
        said += one_chain(setting, "It verifies trees of EAGLE-3 only, and a chain here")
    if setting.grows == "tree that adapts":
        said.append("The tree or chain has the same size every round, or one for each batch size.")
    said += sentences.policy(setting)
    if mode.option == "NGram":
        said.append("It proposes one earlier match; here every earlier match votes.")
    if not rejects(setting, mode):
        if setting.accepts_by == "min(1, p/q)":
            said.append(
                "It accepts a guess where the target chooses the same token: the same distribution, fewer guesses."
            )
        else:
            said += sentences.rule(setting, "It accepts a guess where the target chooses the same token")
    return said + seeds(setting, drafts=True)


def of_tree(setting: Setting) -> list[str]:
    """What its dynamic tree leaves out."""
    said = ["Its dynamic tree is not for models with sliding windows or latent attention."]
    if held(setting) < setting.system.nodes - 1:
        said.append(f"A tree of {setting.chain} levels, {setting.width} wide, holds {held(setting)} guesses at most.")
    if setting.grows == "full tree":
        said.append("It keeps the most probable nodes, not every branch of a full tree.")
    elif setting.grows == "fixed tree":
        said.append("A fixed tree from calibration has no field any more: it grows one anew every round.")
    if setting.draws:
        said.append("Its guesses are the drafter’s favourites: it cannot draw them, as this system does.")
    return said
