"""SGLang's spelling of a setting. It expands and reranks trees, copies trees of matches, and verifies blocks as chains."""

from engine.acceptance.typical import EPSILON
from engine.screens.serving import sentences
from engine.screens.serving.sentences import guesses, one_chain, request, seeds
from engine.screens.serving.setting import Configuration, Mode, Modes, Setting

STEPS = (1, 3, 7)  # drafting depths that its adaptive mode changes between by default
MODES = Modes(
    own={
        "n-gram lookup": Mode("NGRAM", "n-gram lookup"),
        "draft model": Mode("STANDALONE", "a draft model", "a small model with TARGET’s vocabulary"),
        "EAGLE": Mode("EAGLE3", "EAGLE-3", "an EAGLE-3 head trained for TARGET"),
        "block": Mode("DFLASH", "DFlash", "a DFlash drafter trained for TARGET"),
    },
    nearest={"Medusa": "EAGLE", "suffix tree": "n-gram lookup"},
)
Spelled = tuple[list[str], str, list[str]]  # flags, what they do in words, and what is lost


def sglang(setting: Setting) -> Configuration:
    mode, idea = MODES.of(setting), "Plain decoding: SGLang without speculation."
    flags: list[str] = []
    lost: list[str] = []
    if mode:
        spell = {"NGRAM": copied, "DFLASH": blocks}.get(mode.option, grown)
        options, idea, lost = spell(setting, mode)
        flags = [f"--speculative-algorithm {mode.option}", *options]
    if setting.accepts_by == "threshold":
        flags.append(f"--speculative-accept-threshold-single {EPSILON}")
    launch = " \\\n  ".join(["python -m sglang.launch_server", "--model-path TARGET", *flags])
    return Configuration(
        engine="SGLang",
        version="0.5 of mid 2026",
        idea=idea,
        language="bash",
        code=f"{launch}\n\n{request(30000, setting.temperature)}",
        cannot=cannot(setting, mode, lost),
        source="SGLang’s documentation, “Speculative Decoding”, and its speculative_hook.py",
    )


def copied(setting: Setting, mode: Mode) -> Spelled:
    system = setting.system
    flags = [
        f"--speculative-num-draft-tokens {system.nodes}",
        f"--speculative-ngram-max-bfs-breadth {setting.width}",
    ]
    flags += ["--attention-backend flashinfer"] if setting.width > 1 else []
    idea = f"N-gram lookup: a tree of {system.nodes} nodes from what followed the same words before."
    return flags, idea, [f"Depth {system.depth} has no flag: a branch goes on as far as its match does."]


def blocks(setting: Setting, mode: Mode) -> Spelled:
    flags = ["--speculative-draft-model-path DRAFT", f"--speculative-num-draft-tokens {setting.chain + 1}"]
    idea = f"{mode.called}: {guesses(setting.chain)} from one draft forward; DRAFT is {mode.draft}."
    return flags, idea, one_chain(setting, "DFlash verifies a chain")


def grown(setting: Setting, mode: Mode) -> Spelled:
    adapts = setting.grows == "tree that adapts" and mode.option == "EAGLE3"
    flags, words, lost = adaptive(setting) if adapts else tree(setting)
    if setting.accepts_by == "min(1, p/q)" and mode.option == "EAGLE3" and setting.width == 1:
        flags.append("--speculative-use-rejection-sampling")
    return ["--speculative-draft-model-path DRAFT", *flags], f"{words}; DRAFT is {mode.draft}.", lost


def tree(setting: Setting) -> Spelled:
    """It expands the `width` best nodes of every level and keeps the best of all."""
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


def adaptive(setting: Setting) -> Spelled:
    """Where our tree adapts to the text, it adapts the length of a chain."""
    steps = max(step for step in STEPS if step <= setting.chain)
    flags = [
        f"--speculative-num-steps {steps}",
        "--speculative-eagle-topk 1",
        f"--speculative-num-draft-tokens {steps + 1}",
        "--speculative-adaptive",
    ]
    lengths = " or ".join((", ".join(map(str, STEPS[:-1])), str(STEPS[-1])))
    words = f"A chain that begins with {guesses(steps)} and changes with what was accepted"
    lost = f"It adapts a chain’s length ({lengths} guesses) to the batches so far, not a tree to every round: "
    return flags, words, [f"{lost}of {setting.shape} no width is left."]


def cannot(setting: Setting, mode: Mode | None, lost: list[str]) -> list[str]:
    said = sentences.drafter(setting, MODES)
    if not mode:
        return said + seeds(setting, drafts=False)
    said += lost
    if mode.option in ("STANDALONE", "EAGLE3"):
        if setting.grows == "full tree":
            said.append("It keeps the most probable nodes, not every branch of a full tree.")
        elif setting.draws:
            said.append("Its guesses are the drafter’s favourites: it cannot draw them, as this system does.")
        if setting.grows == "fixed tree":
            said.append("A fixed tree from calibration has no flag: it grows one anew every round.")
        elif setting.grows == "tree that adapts" and mode.option == "STANDALONE":
            said.append("A draft model’s tree is the same size every round: only EAGLE can adapt, and only a chain.")
    said += sentences.policy(setting)
    if setting.accepts_by == "threshold":
        said.append(
            f"Typical acceptance has no flag: the threshold given instead accepts every guess with p above {EPSILON:g}, whatever the "
            "entropy, and does nothing at temperature 0."
        )
    elif setting.accepts_by == "min(1, p/q)":
        if mode.option == "STANDALONE" or setting.width > 1:
            said.append(
                "It has min(1, p/q) for EAGLE chains only, and accepts with p alone: the same distribution, fewer guesses."
            )
    else:
        said += sentences.rule(setting, "It accepts a guess with p alone")
    return said + seeds(setting, drafts=True)
