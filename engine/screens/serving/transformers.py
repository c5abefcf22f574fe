"""The spelling of a setting for transformers' `generate()`: an assistant model or prompt lookup, and chains."""

from engine.drafters.lookup import LONGEST
from engine.screens.serving import sentences
from engine.screens.serving.sentences import guesses, one_chain, seeds, tokens
from engine.screens.serving.setting import Configuration, Mode, Modes, Setting

MODES = Modes(
    own={
        "n-gram lookup": Mode("prompt_lookup_num_tokens", "prompt lookup"),
        "draft model": Mode("assistant_model", "a draft model", "a small model with TARGET’s vocabulary"),
    },
    nearest={**dict.fromkeys(("EAGLE", "Medusa", "block"), "draft model"), "suffix tree": "n-gram lookup"},
)
LOAD = """from transformers import AutoModelForCausalLM
from transformers import AutoTokenizer

load = AutoModelForCausalLM.from_pretrained
tokenizer = AutoTokenizer.from_pretrained("TARGET")
target = load("TARGET")
"""
ASSISTANT = """draft = load("DRAFT")
# read from the draft, not from generate()
draft.generation_config.update(
    num_assistant_tokens={tokens},
    num_assistant_tokens_schedule="{schedule}",
    assistant_confidence_threshold={threshold},
)
"""
GENERATE = """
inputs = tokenizer("PROMPT", return_tensors="pt")
output = target.generate(
    **inputs,
{options}
)
print(tokenizer.decode(output[0]))"""


def transformers(setting: Setting) -> Configuration:
    mode, options, before = MODES.of(setting), [], ""
    idea = "Plain decoding: generate() without an assistant."
    if mode and mode.draft:
        options, adapts = [f"{mode.option}=draft"], setting.grows == "tree that adapts"
        before = ASSISTANT.format(
            tokens=setting.chain,
            schedule="heuristic_transient" if adapts else "constant",
            threshold=0.4 if adapts else 0.0,
        )
        idea = f"Assisted generation: a chain of {guesses(setting.chain)} a round"
        idea += ", longer or shorter by what was accepted" if adapts else ""
        idea += f"; DRAFT is {mode.draft}."
    elif mode:
        options = [f"{mode.option}={setting.chain}", f"max_matching_ngram_size={LONGEST}"]
        idea = f"Prompt lookup: copies up to {tokens(setting.chain)} that followed the same words before."
    sample = (
        [f"do_sample=True, temperature={setting.temperature:g}, top_k=0"]
        if setting.temperature
        else ["do_sample=False"]
    )
    lines = "\n".join(f"    {option}," for option in [*options, *sample, "max_new_tokens=200"])
    return Configuration(
        engine="transformers",
        version="5.23",
        idea=idea,
        language="python",
        code=LOAD + before + GENERATE.format(options=lines),
        cannot=cannot(setting, mode),
        source="transformers 5.23, GenerationConfig and candidate_generator.py",
    )


def cannot(setting: Setting, mode: Mode | None) -> list[str]:
    said = sentences.drafter(setting, MODES)
    if not mode:
        return said + seeds(setting, drafts=False)
    said += one_chain(setting)
    if setting.grows == "tree that adapts":
        said.append("The chain’s length follows what was accepted, not what a forward costs on this machine.")
    said += sentences.policy(setting)
    if not mode.draft:
        said.append("It copies the first earlier match; here every earlier match votes.")
    said.append("It speculates for one sequence at a time: no batches.")
    said += sentences.rule(
        setting, "It accepts with min(1, p/q)" if mode.draft else "It accepts what the target draws itself"
    )
    return said + seeds(setting, drafts=True)
