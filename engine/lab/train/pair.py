"""`python -m engine train pair`: tokenizer, target, draft and bigram table of an embedded pair; `train draft`: the draft alone."""

import argparse
import json
import shutil
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer, LlamaForCausalLM, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from engine.lab.train.data import load_documents, load_training_and_held_out
from engine.lab.train.distill import DRAFT_SHAPES, distill_draft, measure_agreement_by_domain
from engine.lab.train.features import TrainingBatchBuilder
from engine.lab.train.loop import TrainingBudget
from engine.lab.train.pretrain import LONG_ROW, pretrain_target, validation_loss_by_domain
from engine.models.bigram import BigramTable
from engine.models.loading import load_and_check_tokenizer_and_config, load_model
from engine.models.pairs import PAIRS, Checkpoint
from engine.models.quantising import bitsandbytes_config_of

LARGEST_FILE = "48MB"
END_OF_TEXT = "<|endoftext|>"  # the one special token, which ends and begins a text


def train_tokenizer(texts: list[str], vocab_size: int = 4096) -> PreTrainedTokenizerFast:
    """Byte-level BPE with all 256 bytes, which loads with `AutoTokenizer`. Encoding puts `<|endoftext|>` first, as a text's start."""
    bpe = Tokenizer(models.BPE())
    digits = pre_tokenizers.Digits(individual_digits=True)
    bpe.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=[END_OF_TEXT], initial_alphabet=alphabet, show_progress=False
    )
    bpe.train_from_iterator(texts, trainer)
    start = bpe.token_to_id(END_OF_TEXT)
    bpe.post_processor = processors.TemplateProcessing(
        single=f"{END_OF_TEXT} $A", pair=f"{END_OF_TEXT} $A $B", special_tokens=[(END_OF_TEXT, start)]
    )
    named = dict.fromkeys(("bos_token", "eos_token", "pad_token"), END_OF_TEXT)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe, clean_up_tokenization_spaces=False, model_max_length=1024, **named
    )


def write_checkpoint(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerBase, folder: Path, eight_bits: bool = False
) -> None:
    """Write float16 safetensors, config and tokenizer into `folder`, replacing what is there. No file is above `LARGEST_FILE`.

    With `eight_bits` the layers' matrices are in eight bits, as bitsandbytes keeps them.
    """
    shutil.rmtree(folder, ignore_errors=True)
    model.half().save_pretrained(folder, max_shard_size=LARGEST_FILE)
    model.float()
    if eight_bits:
        kept = LlamaForCausalLM.from_pretrained(
            folder, dtype=torch.float16, quantization_config=bitsandbytes_config_of("8-bit", torch.float16)
        )
        shutil.rmtree(folder)
        kept.save_pretrained(folder, max_shard_size=LARGEST_FILE)
    tokenizer.save_pretrained(folder)


def train_draft(options: argparse.Namespace) -> None:
    """Train a draft for the target of the embedded pair `options.pair` and write it to `options.out`, in place of the one there."""
    work, checkpoint = options.work / "drafters" / options.pair, PAIRS[options.pair].target_checkpoint
    work.mkdir(parents=True, exist_ok=True)
    tokenizer, _ = load_and_check_tokenizer_and_config(checkpoint)
    target = load_model(checkpoint, torch.device(options.device), torch.float32)
    spent, shape = TrainingBudget(options.minutes), DRAFT_SHAPES[options.size]
    texts = load_training_and_held_out(options.data, work, tokenizer)
    write_checkpoint(
        distill_draft(target, *texts, work, spent, options.own_rows, shape, bf16=options.bf16),
        tokenizer,
        options.out,
    )


def train_tokenizer_target_draft_and_bigram(options: argparse.Namespace) -> None:
    work = options.work / "pair"
    work.mkdir(parents=True, exist_ok=True)
    if given := options.start or options.tokenizer:
        AutoTokenizer.from_pretrained(given).save_pretrained(work / "tokenizer")
    elif not (work / "tokenizer").exists():
        everything = [text for domain in load_documents(options.data).values() for text in domain]
        train_tokenizer(everything).save_pretrained(work / "tokenizer")
    tokenizer = AutoTokenizer.from_pretrained(work / "tokenizer")
    corpus, held_out = load_training_and_held_out(options.data, work, tokenizer)
    print({domain: f"{len(stream):,} tokens" for domain, stream in corpus.streams.items()})
    target = pretrain_target(corpus, held_out, work, options, len(tokenizer))
    write_checkpoint(target, tokenizer, options.out / "target", options.eight_bits)
    if options.eight_bits:  # its draft learns from it as it serves
        target = load_model(Checkpoint(str(options.out / "target")), target.device, torch.float32, "8-bit")
    spent, shape = TrainingBudget(options.draft_minutes), DRAFT_SHAPES[options.draft_size or options.size]
    draft = distill_draft(target, corpus, held_out, work, spent, options.own_rows, shape, bf16=options.bf16)
    write_checkpoint(draft, tokenizer, options.out / "draft")
    stream = np.concatenate([*corpus.streams.values(), np.load(work / "own.npy").ravel()])
    BigramTable.build_from_token_stream(stream, len(tokenizer)).save(options.out / "bigram.safetensors")
    figures = {
        "loss": validation_loss_by_domain(target, held_out),
        "loss at 1,024 tokens": validation_loss_by_domain(target, held_out, LONG_ROW, row_count=8),
        "draft agreement": measure_agreement_by_domain(draft, TrainingBatchBuilder(target), held_out),
    }
    print(json.dumps(figures))
