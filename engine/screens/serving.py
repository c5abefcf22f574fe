"""A system's setting for the engines that serve models: vLLM, SGLang, transformers. Knows their options and what they cannot say;
imports none of them. Checked against the sources named here; TARGET, DRAFT and PROMPT stand for the reader's own.
"""

import json
from dataclasses import asdict, dataclass, replace

from engine.acceptance.typical import EPSILON
from engine.drafters.lookup import LONGEST
from engine.race import SHAPE, checked
from engine.systems import System, find

SGLANG_STEPS = (1, 3, 7)  # drafting depths that SGLang's adaptive mode changes between, unless told others
TABLES = ("lookup", "bigram")  # drafters without a network
BLOCKS = ("parallel", "specblock", "specblock-adapt")  # drafters that guess several depths in one forward
DRAWN = ("widths", "chains", "sequoia", "dyspec", "dyspec_threshold")  # policies that draw their guesses
FIXED = ("sparse", "sequoia")  # policies whose tree has one shape, known beforehand
HEADS = {"eagle": "EAGLE-3 heads", "best": "EAGLE-3 heads", "medusa": "Medusa heads"}
KINDS = {
    "bigram": "bigram table",
    "medusa": "Medusa",
    **dict.fromkeys(("eagle", "best"), "EAGLE"),
    "parallel": "parallel-tree",
    **dict.fromkeys(("specblock", "specblock-adapt"), "SpecBlock"),
}

REQUEST = """curl http://localhost:{port}/v1/completions \\
  -H 'Content-Type: application/json' \\
  -d '{{"model": "TARGET", "prompt": "PROMPT",
       "max_tokens": 200, "temperature": {temperature:g}}}'"""

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


@dataclass(frozen=True)
class Configuration:
    """One engine's nearest setting. `idea` says what it does, `cannot` what the engine has no way to say; `version` is the engine's
    for which the code was written, `source` what it was checked against.
    """

    engine: str
    version: str
    idea: str
    language: str
    code: str
    cannot: list[str]
    source: str


@dataclass(frozen=True)
class Setting:
    system: System
    temperature: float

    @property
    def chain(self) -> int:
        """The longest chain of guesses that the tree can hold; the root is one of its nodes."""
        return min(self.system.depth, self.system.nodes - 1)

    @property
    def width(self) -> int:
        return 1 if self.system.policy == "chain" else self.system.width

    @property
    def shape(self) -> str:
        return f"depth {self.system.depth}, width {self.system.width} and {self.system.nodes} nodes"


def configurations(
    system: str,
    depth: int | None = None,
    width: int | None = None,
    nodes: int | None = None,
    temperature: float = 0.0,
) -> list[dict]:
    """The setting in every engine, as plain values; a shape of None is the system's own. Raises `ValueError` as a race would, and for
    a system that is wrong on purpose."""
    found = find(str(system))
    if found.broken:
        raise ValueError(f"{found.name} is wrong on purpose and not for production. Choose {found.name.split('!')[0]}.")
    asked = dict(zip(SHAPE, (depth, width, nodes), strict=True))
    shape = {name: checked(name, getattr(found, name) if value is None else value) for name, value in asked.items()}
    setting = Setting(replace(found, **shape), checked("temperature", temperature))
    return [asdict(engine(setting)) for engine in (vllm, sglang, transformers)]


# ---- vLLM -----------------------------------------------------------------------------------------------------------


def vllm(setting: Setting) -> Configuration:
    system, options, idea = setting.system, {}, "Plain decoding: vLLM without speculation."
    if system.drafter in TABLES:
        options = {
            "method": "ngram",
            "num_speculative_tokens": setting.chain,
            "prompt_lookup_min": 1,
            "prompt_lookup_max": LONGEST,
        }
        idea = f"N-gram lookup: copies up to {tokens(setting.chain)} that followed the same words before."
    elif system.drafter != "none":
        method, needs = VLLM_METHODS[system.drafter]
        options = {"method": method, "model": "DRAFT", "num_speculative_tokens": setting.chain}
        idea = f"A chain of {guesses(setting.chain)} a round; DRAFT is {needs}."
        if system.acceptance == "speculative":
            options["draft_sample_method"] = "probabilistic"
    serve = "vllm serve TARGET"
    if options:
        serve += f" \\\n  --speculative-config '{indented(options)}'"
    return Configuration(
        engine="vLLM",
        version="0.26",
        idea=idea,
        language="bash",
        code=f"{serve}\n\n{REQUEST.format(port=8000, temperature=setting.temperature)}",
        cannot=vllm_cannot(setting),
        source="vLLM’s documentation 0.26, “Speculative Decoding”, and its pull request 42121",
    )


VLLM_NEAREST = {"bigram": "n-gram lookup", **dict.fromkeys(BLOCKS, "DFlash")}
VLLM_METHODS = {
    "model": ("draft_model", "a small model with TARGET’s vocabulary"),
    "eagle": ("eagle3", "an EAGLE-3 head trained for TARGET"),
    "best": ("eagle3", "an EAGLE-3 head trained for TARGET"),
    "medusa": ("medusa", "a set of Medusa heads trained for TARGET"),
    **dict.fromkeys(BLOCKS, ("dflash", "a DFlash drafter trained for TARGET")),
}


def vllm_cannot(setting: Setting) -> list[str]:
    system, said = setting.system, []
    if system.drafter == "none":
        return seeds(setting)
    said += drafter(setting, VLLM_NEAREST)
    if system.drafter == "medusa":
        said.append("Of every head only its first guess is verified; the heads’ other ranks are not used.")
    if setting.width > 1:
        said.append(f"It verifies a chain and no tree: of {setting.shape}, a chain of {setting.chain} is left.")
    if system.policy == "auto":
        said.append(
            f"The chain’s length is fixed, or follows the batch size: {setting.chain} is an upper limit here, and less may pay more."
        )
    if system.drafter in TABLES:
        said.append("It copies one earlier match; here every earlier match votes.")
    said += one_guess_rule(setting)
    if setting.temperature == 0 and system.guarantee == "tokens":
        said.append("Its text equals plain decoding’s up to rounding, which changes with the size of the batch.")
    return said + seeds(setting)


# ---- SGLang ---------------------------------------------------------------------------------------------------------


SGLANG_NEAREST = {**VLLM_NEAREST, "medusa": "EAGLE-3"}


def sglang(setting: Setting) -> Configuration:
    system, flags, idea, cannot = setting.system, [], "Plain decoding: SGLang without speculation.", []
    if system.drafter in TABLES:
        flags = [
            "--speculative-algorithm NGRAM",
            f"--speculative-num-draft-tokens {system.nodes}",
            f"--speculative-ngram-max-bfs-breadth {setting.width}",
        ]
        flags += ["--attention-backend flashinfer"] if setting.width > 1 else []
        idea = f"N-gram lookup: a tree of {system.nodes} nodes from what followed the same words before."
        cannot.append(f"Depth {system.depth} has no flag: a branch goes on as far as its match does.")
    elif system.drafter in BLOCKS:
        block = setting.chain + 1
        flags = [
            "--speculative-algorithm DFLASH",
            "--speculative-draft-model-path DRAFT",
            f"--speculative-num-draft-tokens {block}",
        ]
        idea = f"DFlash: {guesses(setting.chain)} from one draft forward; DRAFT is a DFlash drafter trained for TARGET."
        if setting.width > 1:
            cannot.append(f"DFlash verifies a chain: of {setting.shape}, a chain of {setting.chain} is left.")
    elif system.drafter != "none":
        algorithm = "STANDALONE" if system.drafter == "model" else "EAGLE3"
        adaptive = system.policy == "auto" and algorithm == "EAGLE3"
        tree, words, cannot = sglang_adaptive(setting) if adaptive else sglang_tree(setting)
        flags = [f"--speculative-algorithm {algorithm}", "--speculative-draft-model-path DRAFT", *tree]
        if system.acceptance == "speculative" and algorithm == "EAGLE3" and setting.width == 1:
            flags.append("--speculative-use-rejection-sampling")
        draft = (
            "a small model with TARGET’s vocabulary"
            if system.drafter == "model"
            else "an EAGLE-3 head trained for TARGET"
        )
        idea = f"{words}; DRAFT is {draft}."
    if system.acceptance == "typical":
        flags.append(f"--speculative-accept-threshold-single {EPSILON}")
    launch = " \\\n  ".join(["python -m sglang.launch_server", "--model-path TARGET", *flags])
    return Configuration(
        engine="SGLang",
        version="0.5 of mid 2026",
        idea=idea,
        language="bash",
        code=f"{launch}\n\n{REQUEST.format(port=30000, temperature=setting.temperature)}",
        cannot=sglang_cannot(setting, cannot),
        source="SGLang’s documentation, “Speculative Decoding”, and its speculative_hook.py",
    )


def sglang_tree(setting: Setting) -> tuple[list[str], str, list[str]]:
    """Flags, words and what is lost: SGLang expands the `width` best nodes of every level and keeps the best of all."""
    steps, width, nodes, lost = setting.chain, setting.width, setting.system.nodes, []
    if width == 1:
        kept = steps + 1
        words = f"A chain of {guesses(steps)} a round"
    else:
        kept = min(nodes, 1 + width + (steps - 1) * width * width)
        words = f"A tree of {kept} nodes, {width} wide and {steps} deep, expanded and reranked every round"
        lost.append("A tree that branches runs without the overlap scheduler, which takes chains only.")
    if kept < nodes:
        lost.append(f"A tree of {steps} levels, {width} wide, fills no more than {kept} of {nodes} nodes.")
    if steps < setting.system.depth:
        lost.append(f"{nodes} nodes reach {steps} deep, not {setting.system.depth}.")
    flags = [
        f"--speculative-num-steps {steps}",
        f"--speculative-eagle-topk {width}",
        f"--speculative-num-draft-tokens {kept}",
    ]
    return flags + (["--disable-overlap-schedule"] if width > 1 else []), words, lost


def sglang_adaptive(setting: Setting) -> tuple[list[str], str, list[str]]:
    """Flags, words and what is lost for a tree that follows the text: SGLang adapts the length of a chain."""
    steps = max(step for step in SGLANG_STEPS if step <= setting.chain)
    flags = [
        f"--speculative-num-steps {steps}",
        "--speculative-eagle-topk 1",
        f"--speculative-num-draft-tokens {steps + 1}",
        "--speculative-adaptive",
    ]
    lengths = " or ".join((", ".join(map(str, SGLANG_STEPS[:-1])), str(SGLANG_STEPS[-1])))
    words = f"A chain that begins with {guesses(steps)} and changes with what was accepted"
    lost = f"It adapts a chain’s length ({lengths} guesses) to the batches so far, not a tree to every round: "
    return flags, words, [f"{lost}of {setting.shape} no width is left."]


def sglang_cannot(setting: Setting, lost: list[str]) -> list[str]:
    system = setting.system
    if system.drafter == "none":
        return seeds(setting)
    said = drafter(setting, SGLANG_NEAREST) + lost
    if system.drafter not in (*TABLES, *BLOCKS):
        if system.policy == "kary":
            said.append("It keeps the most probable nodes, not every branch of a full tree.")
        elif system.policy in DRAWN:
            said.append("Its guesses are the drafter’s favourites: it cannot draw them, as this system does.")
        if system.policy in FIXED:
            said.append("A fixed tree from calibration has no flag: it grows one anew every round.")
        elif system.policy == "auto" and system.drafter == "model":
            said.append("A draft model’s tree is the same size every round: only EAGLE can adapt, and only a chain.")
    if system.acceptance == "typical":
        said.append(
            f"Typical acceptance has no flag: the threshold given instead accepts every guess with p above {EPSILON:g}, whatever the "
            "entropy, and does nothing at temperature 0."
        )
    elif system.acceptance == "speculative":
        if system.drafter == "model" or setting.width > 1:
            said.append(
                "It has min(1, p/q) for EAGLE chains only, and accepts with p alone: the same distribution, fewer guesses."
            )
    else:
        said += one_guess_rule(setting, "It accepts a guess with p alone")
    return said + seeds(setting)


# ---- transformers ---------------------------------------------------------------------------------------------------


TRANSFORMERS_NEAREST = {"bigram": "prompt lookup", **dict.fromkeys((*HEADS, *BLOCKS), "a draft model")}


def transformers(setting: Setting) -> Configuration:
    system, options, before = setting.system, [], ""
    idea = "Plain decoding: generate() without an assistant."
    if system.drafter in TABLES:
        options = [f"prompt_lookup_num_tokens={setting.chain}", f"max_matching_ngram_size={LONGEST}"]
        idea = f"Prompt lookup: copies up to {tokens(setting.chain)} that followed the same words before."
    elif system.drafter != "none":
        options = ["assistant_model=draft"]
        adapts = system.policy == "auto"
        before = ASSISTANT.format(
            tokens=setting.chain,
            schedule="heuristic_transient" if adapts else "constant",
            threshold=0.4 if adapts else 0.0,
        )
        idea = f"Assisted generation: a chain of {guesses(setting.chain)} a round"
        idea += ", longer or shorter by what was accepted" if adapts else ""
        idea += "; DRAFT is a small model with TARGET’s vocabulary."
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
        cannot=transformers_cannot(setting),
        source="transformers 5.23, GenerationConfig and candidate_generator.py",
    )


def transformers_cannot(setting: Setting) -> list[str]:
    system = setting.system
    if system.drafter == "none":
        return seeds(setting)
    said = drafter(setting, TRANSFORMERS_NEAREST)
    if setting.width > 1:
        said.append(f"It verifies a chain and no tree: of {setting.shape}, a chain of {setting.chain} is left.")
    if system.policy == "auto":
        said.append("The chain’s length follows what was accepted, not what a forward costs on this machine.")
    if system.drafter in TABLES:
        said.append("It copies the first earlier match; here every earlier match votes.")
    said.append("It speculates for one sequence at a time: no batches.")
    if system.acceptance != "speculative" or system.drafter in TABLES:
        rule = "It accepts what the target draws itself" if system.drafter in TABLES else "It accepts with min(1, p/q)"
        said += one_guess_rule(setting, rule)
    return said + seeds(setting)


# ---- sentences that several engines share ---------------------------------------------------------------------------


def drafter(setting: Setting, nearest: dict[str, str]) -> list[str]:
    """What becomes of the drafter. `nearest` names what the engine has instead, by the drafters that it lacks."""
    name, said = setting.system.drafter, []
    if name in nearest:
        said.append(f"It has no {KINDS[name]} drafter; {nearest[name]} is the nearest.")
    elif name in HEADS:
        said.append(
            f"It loads {HEADS[name]} in their published format, trained for your target; this page’s have a format of their own."
        )
    if name == "bigram":
        said.append("Lookup guesses nothing where nothing repeats; the table always has a guess.")
    elif name == "best":
        said.append("It drafts in one way all the time: it does not copy from the text when that promises more.")
    elif name == "specblock-adapt":
        said.append("Its drafter does not learn while it serves.")
    return said


def one_guess_rule(setting: Setting, rule: str = "Its rule tries one guess at a place") -> list[str]:
    """What becomes of an acceptance rule that the engine does not have; token match needs no other."""
    acceptance = setting.system.acceptance
    if acceptance == "typical":
        return ["Typical acceptance is not offered: it keeps the target’s distribution, and accepts less."]
    if acceptance == "independent":
        return ["This system’s biased rule is not offered, which is a gain: the target’s distribution is kept."]
    if acceptance in ("with_replacement", "without_replacement", "k_seq"):
        return [
            f"{rule}; this system’s rule for several draws at one place is not offered. The distribution is the same."
        ]
    return []


def seeds(setting: Setting) -> list[str]:
    """What becomes of the seed, where this page's system would write the very text of plain decoding."""
    system = setting.system
    if setting.temperature == 0 or system.guarantee != "tokens":
        return []
    if system.drafter == "none":
        return ["A seed stands for other random numbers there: the same seed writes another text than here."]
    return [
        "Above temperature 0 no seed repeats the text of plain decoding: the distribution is the same, the draws are not."
    ]


def indented(options: dict) -> str:
    return json.dumps(options, indent=2).replace("\n", "\n  ")


def guesses(number: int) -> str:
    return "1 guess" if number == 1 else f"{number} guesses"


def tokens(number: int) -> str:
    return "1 token" if number == 1 else f"{number} tokens"
