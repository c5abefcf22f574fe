"""Convert: pickled weights become the same tensors in safetensors, which load; what is no tensor is refused and never run."""

import json
import pickle

import pytest
import torch
from safetensors.torch import load_file

from engine.__main__ import main
from engine.models.convert import convert_to_safetensors
from engine.nets import open_lazy_nets
from helpers.pairs import tiny_pair

CONFIG = {"medusa_num_heads": 2, "medusa_num_layers": 1}


def heads() -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    shapes = {"0.0.linear.weight": (64, 64), "0.0.linear.bias": (64,), "0.1.weight": (256, 64)}
    return {name: torch.randn(shape, generator=draw).half() for name, shape in shapes.items()}


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    torch.save(heads(), folder / "medusa_lm_head.pt")
    return folder


@pytest.mark.parametrize("file", ["", "medusa_lm_head.pt"])
def test_what_was_pickled_loads_as_the_same_tensors(file, source, tmp_path, capsys):
    model = tiny_pair().target.model
    with pytest.raises(ValueError, match=r"pickled weights \(medusa_lm_head\.pt\).*python -m engine convert"):
        open_lazy_nets(source.parent, model)["medusa"]
    out = tmp_path / "pair" / "heads"
    main(["convert", str(source / file), str(out)])
    assert capsys.readouterr().out == f"Wrote 3 tensors to {out / 'model.safetensors'}.\n"
    written = load_file(out / "model.safetensors")
    assert written.keys() == heads().keys() and json.loads((out / "config.json").read_text()) == CONFIG
    assert all(torch.equal(written[name], each) and written[name].dtype == each.dtype for name, each in heads().items())
    net = open_lazy_nets(out.parent, model)["medusa"]
    assert torch.equal(net.blocks[0].weight, heads()["0.0.linear.weight"].float())


def test_tensors_that_share_memory_and_files_that_share_a_drafter_are_converted(source, tmp_path):
    shared = torch.arange(12.0).view(3, 4)
    torch.save({"one": shared, "two": shared, "turned": shared.T}, source / "more.bin")
    assert convert_to_safetensors(source, tmp_path / "out") == 6
    written = load_file(tmp_path / "out" / "model.safetensors")
    assert torch.equal(written["one"], written["two"]) and torch.equal(written["turned"], shared.T)


class Harmful:
    def __reduce__(self):
        return print, ("this ran",)


def test_code_in_a_pickle_is_refused_and_not_run(source, tmp_path, capsys):
    (source / "medusa_lm_head.pt").unlink()
    for name, content in (("pytorch_model.bin", Harmful()), ("pytorch_model.bin", {"weight": Harmful()})):
        torch.save(content, source / name)
        with pytest.raises(ValueError, match="holds more than tensors, or is damaged, and was not loaded"):
            convert_to_safetensors(source, tmp_path / "out")
    (source / name).write_bytes(pickle.dumps(Harmful(), protocol=2))
    with pytest.raises(ValueError, match="holds more than tensors"):
        convert_to_safetensors(source, tmp_path / "out")
    assert "this ran" not in capsys.readouterr().out and not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is damaged"),
        (b"version https://git-lfs.github.com/spec/v1\n", "is damaged"),
        ([torch.zeros(1)], "holds no tensors by name"),
        ({"state": {"weight": torch.zeros(1)}}, "holds no tensors by name"),
    ],
)
def test_other_contents_are_refused(content, sentence, source, tmp_path):
    path = source / "medusa_lm_head.pt"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        torch.save(content, path)
    with pytest.raises(ValueError, match=sentence):
        convert_to_safetensors(path, tmp_path / "out")


def test_what_is_missing_doubled_or_there_already_is_a_sentence(source, tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["convert", str(tmp_path / "nowhere"), str(tmp_path / "out")])
    assert "nowhere is no file that ends in .bin, .pt, .pth" in capsys.readouterr().err
    convert_to_safetensors(source, tmp_path / "out")
    with pytest.raises(ValueError, match="holds safetensors already"):
        convert_to_safetensors(source, tmp_path / "out")
    torch.save({"0.1.weight": torch.zeros(1)}, source / "other.bin")
    with pytest.raises(ValueError, match=r"the tensor 0\.1\.weight in two files"):
        convert_to_safetensors(source, tmp_path / "second")
    (source / "config.json").unlink()
    with pytest.raises(ValueError, match=r"There is no .*config\.json"):
        convert_to_safetensors(source / "medusa_lm_head.pt", tmp_path / "second")
