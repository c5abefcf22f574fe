"""The target's own writing, which the draft and learned drafters train on, because they see such text while they serve.

Prompts of all domains open it, greedy and sampled. On a CPU the forward that serves the target writes many texts at once, where that is
compiled: an eight-bit target is several times as fast so.
"""

from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm
from transformers import GenerationConfig, PreTrainedModel

from engine.forward.batch import RowRequest, SharedForwardBatch
from engine.forward.llama import is_full_attention_llama
from engine.forward.llama_compiled import CompiledLlama, can_compile_forward
from engine.forward.runner import Runner
from engine.lab.train.data import TokenCorpus
from engine.sampling import build_generator_from_key

ROW = 256
PROMPT = (4, 40)  # tokens of a document that the target goes on from
TEMPERATURES = (0.0, 0.0, 0.8, 1.0)
AT_ONCE = {"cpu": 128, "cuda": 512}  # texts; a GPU takes as long for one


class RowWriter:
    """Goes on from prompts of one length until every row has `ROW` tokens. No token ends a text: a new one follows the first."""

    def __init__(self, target: PreTrainedModel):
        self.target = target
        runner = Runner(target) if is_full_attention_llama(target) and can_compile_forward(target) else None
        self.runner = runner if runner and isinstance(runner.own, CompiledLlama) else None

    @torch.inference_mode()
    def __call__(self, prompts: torch.Tensor, temperature: float, key: int) -> torch.Tensor:
        """int64 `[B, ROW]`, which begins with `prompts [B, n]`. The same `key` gives the same rows on one machine."""
        if self.runner:
            with self.runner.without_torch_threads():
                return continue_prompts_to_full_rows(
                    self.runner, prompts.tolist(), temperature, build_generator_from_key("own text", key)
                )
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


def continue_prompts_to_full_rows(
    runner: Runner,
    prompt_ids: list[list[int]],
    temperature: float,
    generator: torch.Generator,
    stop_ids: Collection[int] = (),
    following_texts: Iterator[list[int]] | None = None,
) -> torch.Tensor:
    """As `RowWriter.__call__`, with one forward of the runner for all texts. `prompt_ids` may differ in length, up to `ROW` tokens.

    Where the target ends its text by one of `stop_ids`, the next of the `following_texts` follows in the row. Where one token both
    ends and begins texts, it stands there once.
    """
    batch, rows = SharedForwardBatch(runner, len(prompt_ids), ROW), [list(prompt) for prompt in prompt_ids]
    sessions = [batch.open_session(ROW) for _ in rows]
    for session, row in zip(sessions, rows, strict=True):
        session.prefill(row[:-1])
    while open_rows := [(session, row) for session, row in zip(sessions, rows, strict=True) if len(row) < ROW]:
        asked = [RowRequest(session, row[-1:], [len(row) - 1], None) for session, row in open_rows]
        logits = torch.cat([each for each, _ in batch.forward(asked)])
        if temperature:
            written = (logits / temperature).softmax(-1).cpu().multinomial(1, generator=generator)[:, 0].tolist()
        else:
            written = logits.argmax(-1).tolist()
        for (session, row), token in zip(open_rows, written, strict=True):
            session.keep([0])
            row.append(token)
            if following_texts and token in stop_ids:
                prompt = next(following_texts)
                behind = [*row[-1:], *(prompt[1:] if prompt[0] == token else prompt)][: ROW - len(row) + 1]
                row += behind[1:]
                session.prefill(behind[:-1])
    return torch.tensor(rows)


def load_or_write_target_rows(
    target: PreTrainedModel, corpus: TokenCorpus, work_folder: Path, row_count: int, batch_size: int | None = None
) -> np.ndarray:
    """`[row_count, ROW]` ids that the target wrote after short prompts, `batch_size` at once. `own.npy` keeps them to resume from."""
    count, write = batch_size or AT_ONCE[target.device.type], RowWriter(target)

    def write_more_rows(done: int) -> torch.Tensor:
        rng = np.random.default_rng([2, done])
        [domain] = corpus.draw_domains(1, rng)
        length, now = int(rng.integers(*PROMPT)), min(count, row_count - done)
        temperature = TEMPERATURES[rng.integers(len(TEMPERATURES))]
        return write(
            torch.from_numpy(corpus.draw_rows_from_document_starts(domain, length, now, rng)).long(), temperature, done
        )

    return load_or_write_rows(work_folder / "own.npy", row_count, write_more_rows)


def load_or_write_rows(path: Path, row_count: int, write_more: Callable[[int], torch.Tensor]) -> np.ndarray:
    """At least `row_count` rows of ids, those of the file first. `write_more` writes some behind so many, which the file then keeps
    too.
    """
    done = np.load(path) if path.exists() else np.zeros((0, ROW), dtype=np.int32)
    with tqdm(total=row_count, initial=len(done), desc="own text", unit="row") as bar:
        while len(done) < row_count:
            done = np.concatenate([done, write_more(len(done)).numpy().astype(np.int32)])
            np.save(path, done)
            bar.update(len(done) - bar.n)
    return done
