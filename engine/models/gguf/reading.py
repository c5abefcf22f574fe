"""GGUF as a checkpoint: its configuration and tokenizer as transformers reads them, and its weights, each when it is asked for.

Weights are what the package gguf dequantises, in float32. Reading a vocabulary out of such a file takes seconds, so that configuration,
tokenizer and the places of all tensors are kept in the user's cache, in a folder named after the content of the files.
Names of values and tensors are those of ggml-org/llama.cpp.
"""

import hashlib
import json
import os
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from glob import escape
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig, PreTrainedTokenizerFast
from transformers.integrations import GGUF_CONFIG_MAPPING
from transformers.modeling_gguf_pytorch_utils import TENSOR_PROCESSORS, TensorProcessor, get_gguf_hf_weights_map

from engine.models.gguf.files import gguf_title_of, shards_of
from engine.models.gguf.settings import apply_gguf_pre_tokenizer, apply_gguf_settings

FORM = "1"  # of a folder in the cache; another one is another folder
PLACES = "tensors.json"
PIECE = 1 << 24  # bytes
NO_WEIGHTS = (
    "rope_freqs.weight",
    ".attn_rot_embd",
    ".rot_embd",
    "rope_factors_",
)  # tensors that say how positions turn
SPELLED_ANEW = {"qwen2moe": "qwen2_moe", "qwen3moe": "qwen3_moe", "gpt-oss": "gpt_oss"}  # as transformers spells them


@dataclass(frozen=True)
class TensorPlace:
    """Where a tensor lies: `[*shape]` numbers of a `kind` in `size` bytes of a shard, from `offset` on. `weight` is its name here."""

    name: str
    weight: str
    shard: int
    kind: int
    shape: tuple[int, ...]
    offset: int
    size: int


class LazyGgufWeight:
    """One weight of the model, dequantised when it is indexed, as transformers indexes the slices of safetensors."""

    def __init__(
        self, weight_name: str, places: list[TensorPlace], shards: list[Path], config: dict[str, Any], architecture: str
    ):
        self.weight, self.places, self.shards = weight_name, places, shards
        self.processor = TENSOR_PROCESSORS.get(architecture, TensorProcessor)(config=config)

    def __getitem__(self, _: object) -> torch.Tensor:
        parsed: dict[str, dict[str, torch.Tensor]] = {"tensors": {}}
        names = {place.name: self.weight for place in self.places}
        names |= {place.name.removesuffix(".weight"): self.weight for place in self.places}
        for place in self.places:
            numbers = read_and_dequantise_tensor(place, self.shards[place.shard])
            made = self.processor.process(
                weights=numbers, name=place.name, tensor_key_mapping=names, parsed_parameters=parsed
            )
            if made.name is not None:  # else it is one part of a weight, and was put into its place
                parsed["tensors"][self.weight] = torch.from_numpy(np.array(made.weights))
        return parsed["tensors"][self.weight]


def read_and_dequantise_tensor(place: TensorPlace, shard_file: Path) -> np.ndarray:
    """The tensor's numbers, dequantised to float32."""
    raw = np.memmap(shard_file, np.uint8, "r", place.offset, (place.size,))
    rows = raw.reshape(*place.shape[:-1], -1)
    return gguf.dequantize(rows, gguf.GGMLQuantizationType(place.kind)).reshape(place.shape)


def is_gguf_conversion_uncached(path: str) -> bool:
    """Whether `convert_config_and_tokenizer_into_cache` will take long: the cache has nothing of a model of this name. No byte of
    the file is read.
    """
    return not any(private_cache_folder().glob(f"{escape(gguf_title_of(path)[:60])}-*/{PLACES}"))


def lazy_weights_of(path: str) -> dict[str, LazyGgufWeight]:
    """Every weight of the model in these files, by transformers' name."""
    shards, folder = shards_of(Path(path)), convert_config_and_tokenizer_into_cache(path)
    told = json.loads((folder / PLACES).read_text(encoding="utf-8"))
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    parts: dict[str, list[TensorPlace]] = defaultdict(list)
    for each in told["tensors"]:
        parts[each["weight"]].append(TensorPlace(**{**each, "shape": tuple(each["shape"])}))
    return {name: LazyGgufWeight(name, places, shards, config, told["architecture"]) for name, places in parts.items()}


def convert_config_and_tokenizer_into_cache(path: str) -> Path:
    """The folder with config.json, the tokenizer's files and `PLACES` of the model in a GGUF file. Made where it is not there.

    Raises `ValueError`, without the file's folder, for what cannot be read.
    """
    shards = shards_of(Path(path))
    state = tuple((str(each.resolve()), (at := each.stat()).st_size, at.st_mtime_ns) for each in shards)
    return convert_config_and_tokenizer_once_per_file_state(path, state)


@cache
def convert_config_and_tokenizer_once_per_file_state(path: str, file_state: tuple[tuple[str, int, int], ...]) -> Path:
    """As `convert_config_and_tokenizer_into_cache`, once for every `file_state` of the files."""
    shards = shards_of(Path(path))
    digest = hashlib.sha256(f"{FORM} {version('transformers')} {version('gguf')}".encode())
    for each in shards:
        with each.open("rb") as file:
            while piece := file.read(PIECE):
                digest.update(piece)
    folder = private_cache_folder() / f"{gguf_title_of(path)[:60]}-{digest.hexdigest()[:32]}"
    if not (folder / PLACES).is_file():
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".new-") as place:
            new = Path(place) / "files"
            new.mkdir()
            write_config_tokenizer_and_locations(shards, new)
            try:
                new.rename(folder)  # whole or not at all, whoever else makes it
            except OSError:
                if not (folder / PLACES).is_file():
                    raise
    return folder


@cache
def private_cache_folder() -> Path:
    """This user's own folder for converted files. Where nobody else is kept out, or nothing can be written, a passing one."""
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "treerace" / "gguf"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        state = folder.stat()
        if os.access(folder, os.W_OK) and (
            os.name != "posix" or (state.st_uid == os.getuid() and not state.st_mode & 0o022)
        ):
            return folder
    except (OSError, RuntimeError):  # no home
        pass
    passing = tempfile.TemporaryDirectory(prefix="treerace-gguf-")
    PASSING.append(passing)  # its folder goes when the process does
    return Path(passing.name)


PASSING: list[tempfile.TemporaryDirectory] = []


class PlainViewGgufReader(gguf.GGUFReader):
    """Reads from a plain view of the mapped file: NumPy takes several times as long for each of a vocabulary's slices of a map."""

    @property
    def data(self) -> Any:
        return self.plain

    @data.setter
    def data(self, mapped: Any) -> None:
        self.plain = mapped.view(np.ndarray)


def write_config_tokenizer_and_locations(shards: list[Path], folder: Path) -> None:
    """Write what `convert_config_and_tokenizer_into_cache` holds. Raises `ValueError` with what is missing."""
    readers = [PlainViewGgufReader(each) for each in shards]
    values = {
        name: field.contents()
        for name, field in readers[0].fields.items()
        if "tokenizer.ggml." not in name or len(field.data) == 1
    }
    architecture = str(values.get("general.architecture"))
    known = sorted({*GGUF_CONFIG_MAPPING} - {"general", "tokenizer"})
    if SPELLED_ANEW.get(architecture, architecture) not in known:
        raise ValueError(
            f"its architecture is {architecture!r}, and transformers {version('transformers')} reads {', '.join(known)}"
        )
    tensors = {each.name: (shard, each) for shard, reader in enumerate(readers) for each in reader.tensors}
    refuse_unreadable_types(tensors.values())
    with from_pretrained_arguments_of_lone_gguf(shards[0]) as source:
        config = AutoConfig.from_pretrained(**source)
        tokenizer = PreTrainedTokenizerFast.from_pretrained(**source)
    if len(shards) > 1:  # transformers looks for the head in the first one alone
        config.tie_word_embeddings = "output.weight" not in tensors
    rope = tensors.get("rope_freqs.weight")
    apply_gguf_settings(config, architecture, values, None if rope is None else np.array(rope[1].data, np.float32))
    apply_gguf_pre_tokenizer(tokenizer, values)
    config.dtype = smallest_exact_dtype(each.tensor_type for _, each in tensors.values())
    config.name_or_path = ""
    config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    names = map_gguf_to_transformers_names(config, architecture, config.to_dict())
    unknown = [name for name in tensors if name not in names and not any(each in name for each in NO_WEIGHTS)]
    if unknown:
        raise ValueError(
            f"transformers' {config.model_type} has no place for {len(unknown)} of its tensors, such as {unknown[0]}"
        )
    places = [
        TensorPlace(
            name,
            names[name],
            shard,
            int(each.tensor_type),
            tuple(map(int, reversed(each.shape))),
            int(each.data_offset),
            int(each.n_bytes),
        )
        for name, (shard, each) in tensors.items()
        if name in names
    ]
    told = {"architecture": architecture, "tensors": [asdict(each) for each in places]}
    (folder / PLACES).write_text(json.dumps(told), encoding="utf-8")


def refuse_unreadable_types(tensors: Iterable[tuple[int, gguf.ReaderTensor]]) -> None:
    """Raises `ValueError` for a type of blocks that the package gguf does not dequantise."""
    for each in {each.tensor_type: each for _, each in tensors}.values():
        block = np.zeros((1, gguf.GGML_QUANT_SIZES[each.tensor_type][1]), np.uint8)
        try:
            gguf.dequantize(block, each.tensor_type)
        except NotImplementedError:
            raise ValueError(
                f"its tensor {each.name} is of the type {each.tensor_type.name}, which the package gguf {version('gguf')} does not know"
            ) from None


def smallest_exact_dtype(types: Iterable[gguf.GGMLQuantizationType]) -> torch.dtype:
    """The smallest type that holds all matrices exactly. Norms are in 32 bits everywhere."""
    kinds = {each.name for each in types} - {"F32"}
    return {frozenset({"F16"}): torch.float16, frozenset({"BF16"}): torch.bfloat16}.get(frozenset(kinds), torch.float32)


def map_gguf_to_transformers_names(
    config: PreTrainedConfig, architecture: str, config_values: dict[str, Any]
) -> dict[str, str]:
    """transformers' names of the weights by those in the file."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    # Names are found in the model or in a part of it. The map would look into each part's parts, too, and make all names anew for each
    for part in model.children():
        setattr(part, "named_children", lambda: iter(()))  # noqa: B010, no method may be assigned to
    processor = TENSOR_PROCESSORS.get(architecture, TensorProcessor)(config=config_values)
    try:
        return get_gguf_hf_weights_map(model, processor)
    except NotImplementedError:
        raise ValueError(f"the package gguf {version('gguf')} names no tensors of {architecture}") from None


@contextmanager
def from_pretrained_arguments_of_lone_gguf(file: Path) -> Iterator[dict[str, Any]]:
    """Arguments by which `from_pretrained` finds the file alone: what else lies in its folder plays no part, and no network does."""
    with tempfile.TemporaryDirectory(prefix="treerace-") as place:
        (Path(place) / "model.gguf").symlink_to(file.resolve())
        yield {
            "pretrained_model_name_or_path": place,
            "gguf_file": "model.gguf",
            "local_files_only": True,
            "trust_remote_code": False,
        }
