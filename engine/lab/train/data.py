"""Corpora as lists of documents, and rows of token ids cut from them.

Each of three domains has a visible mark at the start of a document, so that a prompt of one domain stays in it:

    stories    "Story: ..."                      TinyStories, picture books; old children's books of 1860 to 1920, never with the mark
    problems   "Question: ...\\nAnswer: ..."      GSM8K, the same with other numbers, SVAMP, AQuA
    code       "# Python\\ndef ..."               functions of the standard library and of four packages

A document is `<|endoftext|>` + text. Rows start at a document, so position 0 always holds `<|endoftext|>`, as in decoding.
"""

import ast
import hashlib
import json
import random
import re
import sysconfig
import textwrap
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

DOMAINS = ("stories", "problems", "code")
MIX = {"stories": 0.5, "problems": 0.2, "code": 0.3}
MARK = {"stories": "Story: ", "problems": "Question: ", "code": "# Python\n"}
UNMARKED = {"stories": 0.4, "problems": 0.0, "code": 0.3}  # share of documents without a mark: visitors type none
STORIES = (
    "tinystories/train.jsonl",
    "storybooks/cc_by_en.jsonl",
    "tinystories_more/ekg.jsonl",
    "bookdash/bookdash_en.jsonl",
)
PACKAGES = ("mpmath", "networkx", "numpy", "sympy")  # BSD; read where they are installed
HELD_OUT = 0.05  # share of the files with functions
OLD_BOOKS = 3000  # pieces, the simplest first
SKIPPED_PACKAGES = {"test", "tests", "idlelib", "lib2to3", "pydoc_data", "encodings", "site-packages", "turtledemo"}


def read_jsonl(path: Path) -> list[dict]:
    """The file's values, one a line. Raises `ValueError` where there is no such file."""
    if not path.is_file():
        raise ValueError(
            f"There is no {path.parent.name}/{path.name} in the folder that --data names. Give --data a folder with it."
        )
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]


def is_held_out_file(name: str) -> bool:
    """Whether a file belongs to the held-out share. A hash of its name decides, so every machine agrees."""
    return int(hashlib.sha256(name.encode()).hexdigest()[:8], 16) < HELD_OUT * 2**32


def read_texts_of_existing_jsonl_files(folder: Path, *files: str) -> list[str]:
    """The texts of those files that are there; a folder need not hold the ones that came later."""
    paths = [folder / file for file in files if (folder / file).exists()]
    return [row["text"].replace("# ", "").strip() for path in paths for row in read_jsonl(path)]


def load_math_problem_documents(data_folder: Path, held_out: bool) -> list[str]:
    def format_solved_problem(row: dict) -> str:
        answer = re.sub(r"<<.*?>>", "", row["answer"])  # calculator annotations
        return f"{row['question'].strip()}\nAnswer: {answer.replace('#### ', 'The answer is ').strip()}."

    paths = [data_folder / "gsm8k" / ("test.jsonl" if held_out else "train.jsonl")]
    for more in () if held_out else ("gsm8k_renumbered", "word_problems"):
        paths += sorted((data_folder / more).glob("*.jsonl"))
    return [format_solved_problem(row) for path in paths for row in read_jsonl(path)]


def extract_functions_of_3_to_60_lines(source: str) -> Iterator[str]:
    """Every function and method of 3 to 60 lines in a Python source text, dedented."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return
    lines = source.splitlines()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            cut = lines[node.lineno - 1 : node.end_lineno]
            if 3 <= len(cut) <= 60:
                yield textwrap.dedent("\n".join(cut))


def list_non_test_python_files(root: Path, package: str = "") -> list[Path]:
    """The Python files of a package below `root`, or of `root` itself, but for tests and the like."""
    found = sorted((root / package).rglob("*.py"))
    return [path for path in found if not SKIPPED_PACKAGES & set(path.relative_to(root).parts)]


def load_functions_of_installed_packages(held_out: bool) -> list[str]:
    """Functions of the standard library; for training also those of `PACKAGES`, where they are installed."""
    own, installed = (Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib"))
    files = [
        path
        for path in list_non_test_python_files(own)
        if is_held_out_file(path.relative_to(own).as_posix()) == held_out
    ]
    if not held_out:
        files += [path for package in PACKAGES for path in list_non_test_python_files(installed, package)]
    sources = (path.read_text(encoding="utf-8", errors="ignore") for path in files)
    return [function for source in sources for function in extract_functions_of_3_to_60_lines(source)]


def load_documents(data_folder: Path, held_out: bool = False) -> dict[str, list[str]]:
    """All documents by domain, marked, in a fixed shuffled order."""
    found = {
        "stories": read_texts_of_existing_jsonl_files(
            data_folder, *(("tinystories/valid.jsonl",) if held_out else STORIES)
        ),
        "problems": load_math_problem_documents(data_folder, held_out),
        "code": load_functions_of_installed_packages(held_out),
    }
    for domain, texts in found.items():
        order = random.Random(domain)
        order.shuffle(texts)
        found[domain] = [text if order.random() < UNMARKED[domain] else MARK[domain] + text for text in texts]
    if not held_out:  # never with a mark, so that a marked story stays a simple one
        found["stories"] += read_texts_of_existing_jsonl_files(data_folder, "gutenberg/children.jsonl")[:OLD_BOOKS]
    return found


class TokenCorpus:
    """By domain a token stream `int32 [tokens]` with the offsets at which its documents start, and random rows of it."""

    def __init__(self, texts_by_domain: dict[str, list[str]], tokenizer: PreTrainedTokenizerBase):
        self.streams, self.starts = {}, {}
        for domain, documents_ in texts_by_domain.items():
            encoded = tokenizer(documents_)["input_ids"]  # the tokenizer itself puts <|endoftext|> first
            lengths = np.array([len(ids) for ids in encoded])
            self.streams[domain] = np.concatenate([np.asarray(ids, dtype=np.int32) for ids in encoded])
            self.starts[domain] = np.concatenate([[0], np.cumsum(lengths)[:-1]])

    @classmethod
    def load_existing_or_build_and_save(
        cls, path: Path, load_texts_by_domain: Callable[[], dict[str, list[str]]], tokenizer: PreTrainedTokenizerBase
    ) -> "TokenCorpus":
        """The corpus that the file at `path` holds, or else that of `load_texts_by_domain()`, which is written there for runs
        without the texts.
        """
        if not path.exists():
            made = cls(load_texts_by_domain(), tokenizer)
            streams = {f"stream {domain}": stream for domain, stream in made.streams.items()}
            starts = {f"starts {domain}": found for domain, found in made.starts.items()}
            np.savez_compressed(path, allow_pickle=False, **streams, **starts)
            return made
        corpus = cls({}, tokenizer)
        with np.load(path) as held:
            for domain in (name.removeprefix("stream ") for name in held if name.startswith("stream ")):
                corpus.streams[domain], corpus.starts[domain] = held[f"stream {domain}"], held[f"starts {domain}"]
        return corpus

    def drop_other_domains(self, kept_domains: Iterable[str]) -> "TokenCorpus":
        """This corpus without its other domains."""
        self.streams = {domain: self.streams[domain] for domain in kept_domains}
        self.starts = {domain: self.starts[domain] for domain in kept_domains}
        return self

    def __len__(self) -> int:
        return sum(len(stream) for stream in self.streams.values())

    def draw_rows_from_document_starts(
        self, domain: str, row_length: int, row_count: int, rng: np.random.Generator
    ) -> np.ndarray:
        """`[row_count, row_length]` ids; every row starts at a random document of the domain and runs on into the next ones."""
        stream, starts = self.streams[domain], self.starts[domain]
        usable = starts[starts + row_length <= len(stream)]
        if not len(usable):
            raise ValueError(f"The {domain} corpus has {len(stream)} tokens, fewer than one row of {row_length}.")
        return np.stack([stream[s : s + row_length] for s in rng.choice(usable, row_count)])

    def draw_domains(self, count: int, rng: np.random.Generator) -> list[str]:
        """`count` of this corpus's domains, drawn in the proportions of `MIX`."""
        domains = [domain for domain in DOMAINS if domain in self.streams]
        shares = np.array([MIX[domain] for domain in domains])
        return [domains[pick] for pick in rng.choice(len(domains), count, p=shares / shares.sum())]

    def draw_rows_of_mixed_domains(self, row_count: int, row_length: int, rng: np.random.Generator) -> torch.Tensor:
        """`[row_count, row_length]` ids in the proportions of `MIX`."""
        rows = [
            self.draw_rows_from_document_starts(domain, row_length, 1, rng)[0]
            for domain in self.draw_domains(row_count, rng)
        ]
        return torch.from_numpy(np.stack(rows)).long()


def load_training_and_held_out(
    data_folder: Path, work_folder: Path, tokenizer: PreTrainedTokenizerBase
) -> tuple[TokenCorpus, TokenCorpus]:
    """The training corpus and the held-out one, from the texts in `data_folder` or from `corpus.npz` and `held_out.npz` in
    `work_folder`.
    """
    return (
        TokenCorpus.load_existing_or_build_and_save(
            work_folder / "corpus.npz", lambda: load_documents(data_folder), tokenizer
        ),
        TokenCorpus.load_existing_or_build_and_save(
            work_folder / "held_out.npz", lambda: load_documents(data_folder, held_out=True), tokenizer
        ),
    )
