"""Corpora as lists of documents, and rows of token ids cut from them.

Each of three domains has a visible mark at the start of a document, so that a prompt of one domain stays in it:

    stories    "Story: ..."                      TinyStories, picture books
    problems   "Question: ...\\nAnswer: ..."      GSM8K
    code       "# Python\\ndef ..."               functions of the standard library

A document is `<|endoftext|>` + text. Rows start at a document, so position 0 always holds `<|endoftext|>`, as in decoding.
"""

import ast
import hashlib
import json
import random
import re
import sysconfig
import textwrap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

DOMAINS = ("stories", "problems", "code")
MIX = {"stories": 0.5, "problems": 0.2, "code": 0.3}
MARK = {"stories": "Story: ", "problems": "Question: ", "code": "# Python\n"}
UNMARKED = {"stories": 0.4, "problems": 0.0, "code": 0.3}  # share of documents without a mark: visitors type none
SKIPPED_PACKAGES = {"test", "tests", "idlelib", "lib2to3", "pydoc_data", "encodings", "site-packages", "turtledemo"}


def read_jsonl(path: Path) -> list[dict]:
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]


def is_held_out(name: str, share: float = 0.05) -> bool:
    """Whether a file belongs to the held-out share. A hash of its name decides, so every machine agrees."""
    return int(hashlib.sha256(name.encode()).hexdigest()[:8], 16) < share * 2**32


def story_documents(folder: Path, held_out: bool) -> list[str]:
    if held_out:
        return [row["text"].strip() for row in read_jsonl(folder / "tinystories" / "valid.jsonl")]
    stories = [row["text"].strip() for row in read_jsonl(folder / "tinystories" / "train.jsonl")]
    books = [row["text"].replace("# ", "").strip() for row in read_jsonl(folder / "storybooks" / "cc_by_en.jsonl")]
    return stories + books


def problem_documents(folder: Path, held_out: bool) -> list[str]:
    def worked(row: dict) -> str:
        answer = re.sub(r"<<.*?>>", "", row["answer"])  # calculator annotations
        return f"{row['question'].strip()}\nAnswer: {answer.replace('#### ', 'The answer is ').strip()}."

    return [worked(row) for row in read_jsonl(folder / "gsm8k" / ("test.jsonl" if held_out else "train.jsonl"))]


def functions_of(source: str) -> Iterator[str]:
    """Every function and method of 3 to 60 lines in a Python source text, dedented."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return
    lines = source.splitlines()
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and 3 <= (node.end_lineno or 0) - node.lineno + 1 <= 60
        ):
            yield textwrap.dedent("\n".join(lines[node.lineno - 1 : node.end_lineno]))


def code_documents(held_out: bool) -> list[str]:
    root = Path(sysconfig.get_paths()["stdlib"])
    documents = []
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root)
        if not SKIPPED_PACKAGES & set(name.parts) and is_held_out(name.as_posix()) == held_out:
            documents += functions_of(path.read_text(encoding="utf-8", errors="ignore"))
    return documents


def documents(folder: Path, held_out: bool = False) -> dict[str, list[str]]:
    """All documents by domain, marked, in a fixed shuffled order."""
    found = {
        "stories": story_documents(folder, held_out),
        "problems": problem_documents(folder, held_out),
        "code": code_documents(held_out),
    }
    for domain, texts in found.items():
        order = random.Random(domain)
        order.shuffle(texts)
        found[domain] = [text if order.random() < UNMARKED[domain] else MARK[domain] + text for text in texts]
    return found


class Corpus:
    """Token streams by domain and random rows of them.

    Each stream is `int32 [tokens]` with the offsets at which its documents start; each document begins with `<|endoftext|>`.
    """

    def __init__(self, texts: dict[str, list[str]], tokenizer):
        self.streams, self.starts = {}, {}
        for domain, documents_ in texts.items():
            encoded = tokenizer(documents_)["input_ids"]  # the tokenizer itself puts <|endoftext|> first
            lengths = np.array([len(ids) for ids in encoded])
            self.streams[domain] = np.concatenate([np.asarray(ids, dtype=np.int32) for ids in encoded])
            self.starts[domain] = np.concatenate([[0], np.cumsum(lengths)[:-1]])

    def __len__(self) -> int:
        return sum(len(stream) for stream in self.streams.values())

    def rows(self, domain: str, length: int, count: int, rng: np.random.Generator) -> np.ndarray:
        """`[count, length]` ids; every row starts at a random document of the domain and runs on into the next ones."""
        stream, starts = self.streams[domain], self.starts[domain]
        usable = starts[starts + length <= len(stream)]
        if not len(usable):
            raise ValueError(f"The {domain} corpus has {len(stream)} tokens, fewer than one row of {length}.")
        return np.stack([stream[s : s + length] for s in rng.choice(usable, count)])

    def draw(self, count: int, rng: np.random.Generator) -> list[str]:
        """`count` of this corpus's domains, drawn in the proportions of `MIX`."""
        domains = [domain for domain in DOMAINS if domain in self.streams]
        shares = np.array([MIX[domain] for domain in domains])
        return [domains[pick] for pick in rng.choice(len(domains), count, p=shares / shares.sum())]

    def batch(self, batch: int, length: int, rng: np.random.Generator) -> torch.Tensor:
        """`[batch, length]` ids in the proportions of `MIX`."""
        rows = [self.rows(domain, length, 1, rng)[0] for domain in self.draw(batch, rng)]
        return torch.from_numpy(np.stack(rows)).long()


def held_out_prompts(folder: Path) -> dict[str, list[str]]:
    """Prompts by domain from texts that training never saw, for benchmarks: 20 stories, 20 pieces of code, 20 word problems."""

    def opening(story: str, words: int = 12) -> str:
        return " ".join(story.split()[:words])

    stories = [text for text in story_documents(folder, held_out=True) if len(text.split()) > 100]
    stubs = [row["prompt"].strip("\n") for row in read_jsonl(folder / "humaneval" / "HumanEval.jsonl")]
    short = [stub for stub in stubs if stub.startswith("def ") and len(stub) < 700]
    questions = [row["question"].strip() for row in read_jsonl(folder / "gsm8k" / "test.jsonl")]
    return {
        "stories": [MARK["stories"] + opening(text) for text in stories[:20]],
        "code": [MARK["code"] + stub for stub in short[:20]],
        "word problems": [f"{MARK['problems']}{question}\nAnswer:" for question in questions[:20]],
    }
