"""llama.cpp's spelling of a setting for `llama-server`: chains of a draft model, an EAGLE-3 head, a DFlash drafter or an n-gram lookup.

Read in `tools/server/README.md` at commit 00dc8057, which names every option. `--draft-max` and `--draft-min` are removed there:
`--spec-draft-n-max` and `--spec-draft-n-min` replace them. A draft model is used only where `--spec-type` says so. Guesses are
accepted where the target samples the same token; min(1, p/q) is an open proposal (pull request 27694). By default the server cuts the
target's distribution (top-k 40, top-p 0.95, min-p 0.05), which is switched off here.
"""

from engine.drafters.lookup import LONGEST
from engine.screens.serving import sentences
from engine.screens.serving.sentences import guesses, one_chain, request, seeds, tokens
from engine.screens.serving.setting import Configuration, Mode, Modes, Setting

MODES = Modes(
    own={
        "n-gram lookup": Mode("ngram-simple", "n-gram lookup"),
        "draft model": Mode("draft-simple", "a draft model", "a small model with TARGET’s vocabulary, as GGUF"),
        "EAGLE": Mode("draft-eagle3", "EAGLE-3", "an EAGLE-3 head trained for TARGET, as GGUF"),
        "block": Mode("draft-dflash", "DFlash", "a DFlash drafter trained for TARGET, as GGUF"),
    },
    nearest={"Medusa": "EAGLE", "suffix tree": "n-gram lookup"},
)
UNCUT = "--top-k 0 --top-p 1 --min-p 0"  # the target's whole distribution
UNSURE = 0.4  # a draft that is less sure than this stops, where a chain should adapt; transformers' default too


def llama_cpp(setting: Setting) -> Configuration:
    mode, idea = MODES.of(setting), "Plain decoding: llama-server without speculation."
    flags: list[str] = []
    if mode and mode.draft:
        flags = [f"--spec-type {mode.option}", "-md DRAFT", f"--spec-draft-n-max {setting.chain}"]
        flags += [f"--spec-draft-p-min {UNSURE}"] if setting.grows == "tree that adapts" else []
        idea = f"A chain of {guesses(setting.chain)} a round; DRAFT is {mode.draft}."
    elif mode:
        flags = [
            f"--spec-type {mode.option}",
            f"--spec-ngram-simple-size-n {LONGEST}",
            f"--spec-ngram-simple-size-m {setting.chain}",
        ]
        idea = f"N-gram lookup: copies up to {tokens(setting.chain)} that followed the same words before."
    launch = " \\\n  ".join(["llama-server -m TARGET", *flags, UNCUT])
    return Configuration(
        engine="llama.cpp",
        version="00dc8057",
        idea=idea,
        language="bash",
        code=f"{launch}\n\n{request(8080, setting.temperature)}",
        cannot=cannot(setting, mode),
        source="llama.cpp’s tools/server/README.md at commit 00dc8057, and its pull request 27694",
    )


def cannot(setting: Setting, mode: Mode | None) -> list[str]:
    said = sentences.drafter(setting, MODES)
    if not mode:
        return said + seeds(setting, drafts=False)
    said += one_chain(setting, "The server verifies a chain and no tree")
    if setting.grows == "tree that adapts":
        said.append(
            f"The chain ends where the draft is unsure (below {UNSURE:g}), not where a forward’s cost on this machine says."
            if mode.draft
            else "The chain’s length does not follow what was accepted, nor what a forward costs."
        )
    said += sentences.policy(setting)
    if not mode.draft:
        said.append(
            f"It looks for the last {LONGEST} tokens only and copies one match; here shorter ones count, and every match votes."
        )
    if setting.accepts_by == "min(1, p/q)":
        said.append("It accepts a guess where the target samples the same token: the same distribution, fewer guesses.")
    else:
        said += sentences.rule(setting, "It accepts a guess where the target samples the same token")
    if setting.draws:
        said.append("Its guesses are the drafter’s favourites: it cannot draw them, as this system does.")
    return said + seeds(setting, drafts=True)
