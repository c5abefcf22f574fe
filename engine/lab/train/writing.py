"""The target's own writing, which the draft and learned drafters train on, because they see such text while they serve.

Prompts of all domains open it, greedy and sampled. On a CPU the forward that serves the target writes many texts at once, where that is
compiled: an eight-bit target is several times as fast so.
"""

from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm
from transformers import GenerationConfig, PreTrainedModel

from engine.forward.batch import Asked, Batch
from engine.forward.llama import is_known
from engine.forward.llama_compiled import CompiledLlama, compiles
from engine.forward.runner import Runner
from engine.lab.train.data import Corpus
from engine.sampling import seeded

ROW = 256
PROMPT = (4, 40)  # tokens of a document that the target goes on from
TEMPERATURES = (0.0, 0.0, 0.8, 1.0)
AT_ONCE = {"cpu": 128, "cuda": 512}  # texts; a GPU takes as long for one


class Writer:
    """Goes on from prompts of one length until every row has `ROW` tokens. No token ends a text: a new one follows the first."""

    def __init__(self, target: PreTrainedModel):
        self.target = target
        runner = Runner(target) if is_known(target) and compiles(target) else None
        self.runner = runner if runner and isinstance(runner.own, CompiledLlama) else None

    @torch.inference_mode()
    def __call__(self, prompts: torch.Tensor, temperature: float, key: int) -> torch.Tensor:
        """int64 `[B, ROW]`, which begins with `prompts [B, n]`. The same `key` gives the same rows on one machine."""
        if self.runner:
            with self.runner.undisturbed():
                return together(self.runner, prompts, temperature, seeded("own text", key))
        kept, self.target.generation_config = self.target.generation_config, GenerationConfig(max_length=ROW)
        torch.manual_seed(key)
        prompts = prompts.to(self.target.device)
        written = self.target.generate(
            prompts,
            attention_mask=torch.ones_like(prompts),
            do_sample=temperature > 0,
            temperature=temperature or None,
            top_k=0 if temperature else None,
            cache_implementation="static",  # on a CPU twice as fast as a cache that grows
            disable_compile=True,  # every length of prompt would be compiled anew
        )
        self.target.generation_config = kept
        return written.cpu()


def together(runner: Runner, prompts: torch.Tensor, temperature: float, draws: torch.Generator) -> torch.Tensor:
    """As `Writer.__call__`, with one forward of the runner for all texts."""
    batch, start = Batch(runner, len(prompts), ROW), prompts.shape[1]
    sessions = [batch.open(ROW) for _ in prompts]
    rows = torch.zeros(len(prompts), ROW, dtype=torch.long)
    rows[:, :start] = prompts
    for session, row in zip(sessions, rows.tolist(), strict=True):
        session.prefill(row[: start - 1])
    for place in range(start, ROW):
        last = rows[:, place - 1].tolist()
        asked = [Asked(session, [token], [place - 1], None) for session, token in zip(sessions, last, strict=True)]
        logits = torch.cat([each for each, _ in batch.forward(asked)])
        for session in sessions:
            session.keep([0])
        if temperature:
            rows[:, place] = (logits / temperature).softmax(-1).multinomial(1, generator=draws)[:, 0]
        else:
            rows[:, place] = logits.argmax(-1)
    return rows


def own_text(target: PreTrainedModel, corpus: Corpus, work: Path, rows: int, batch: int | None = None) -> np.ndarray:
    """`[rows, ROW]` ids that the target wrote after short prompts of all domains. `work/own.npy` keeps them, for a run that resumes.

    `batch` texts are written at once; None leaves their number to the target's device.
    """
    path = work / "own.npy"
    batch = batch or AT_ONCE[target.device.type]
    done = np.load(path) if path.exists() else np.zeros((0, ROW), dtype=np.int32)
    bar, write = tqdm(total=rows, initial=len(done), desc="own text", unit="row"), Writer(target)
    while len(done) < rows:
        rng = np.random.default_rng([2, len(done)])
        [domain] = corpus.draw(1, rng)
        length = int(rng.integers(*PROMPT))
        temperature = TEMPERATURES[rng.integers(len(TEMPERATURES))]
        prompts = torch.from_numpy(corpus.rows(domain, length, batch, rng)).long()
        done = np.concatenate([done, write(prompts, temperature, len(done)).numpy().astype(np.int32)])
        np.save(path, done)
        bar.update(batch)
    bar.close()
    return done
