"""`python -m engine train pair`: tokenizer, target, draft and bigram table of the embedded pair. Knows the recipe, no options."""

import argparse
import json
import shutil
from pathlib import Path

import numpy as np
from transformers import AutoTokenizer, LlamaForCausalLM

from engine.models.bigram import BigramTable
from engine.train.data import Corpus, documents
from engine.train.distill import agreement, distill
from engine.train.loop import Budget
from engine.train.pretrain import LONG_ROW, pretrain, validation_loss
from engine.train.tokenizer import train_tokenizer


def ship(model: LlamaForCausalLM, tokenizer, folder: Path) -> None:
    """Write float16 safetensors, config and tokenizer into `folder`, replacing what is there."""
    shutil.rmtree(folder, ignore_errors=True)
    model.half().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    model.float()


def train_pair(options: argparse.Namespace) -> None:
    work = options.work / "pair"
    work.mkdir(parents=True, exist_ok=True)
    texts, held_out_texts = documents(options.data), documents(options.data, held_out=True)
    if not (work / "tokenizer").exists():
        everything = [text for domain in texts.values() for text in domain]
        train_tokenizer(everything).save_pretrained(work / "tokenizer")
    tokenizer = AutoTokenizer.from_pretrained(work / "tokenizer")
    corpus, held_out = Corpus(texts, tokenizer), Corpus(held_out_texts, tokenizer)
    print({domain: f"{len(stream):,} tokens" for domain, stream in corpus.streams.items()})
    budget = Budget(options.minutes, options.tokens)
    target = pretrain(corpus, held_out, work, options.size, budget, len(tokenizer), options.device)
    ship(target, tokenizer, options.out / "target")
    draft = distill(target, corpus, held_out, work, Budget(options.draft_minutes), options.own_rows)
    ship(draft, tokenizer, options.out / "draft")
    stream = np.concatenate([*corpus.streams.values(), np.load(work / "own.npy").ravel()])
    BigramTable.count(stream, len(tokenizer)).save(options.out / "bigram.safetensors")
    figures = {
        "loss": validation_loss(target, held_out),
        "loss at 1,024 tokens": validation_loss(target, held_out, LONG_ROW, rows=8),
        "draft agreement": agreement(draft, target, held_out),
    }
    print(json.dumps(figures))
