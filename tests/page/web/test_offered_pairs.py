"""Which pairs the page offers beside its own, and when: they are loaded behind the live page. Nothing is loaded here."""

import gc
import sys
from types import SimpleNamespace

import pytest

import app
from engine.models.pairs import PAIRS, build_pair


@pytest.fixture(autouse=True)
def collecting():
    """What `load_pair_and_serve_live_page` does to the collection of garbage ends with the test."""
    yield
    gc.unfreeze()
    gc.enable()


def test_a_published_pair_that_is_here_is_offered_when_it_is_loaded_behind_all_others(monkeypatch, capsys):
    """One that cannot be loaded leaves a sentence in the terminal, and one that is not on the machine leaves none."""
    said, pages, obstacle = [], [], ""
    front = SimpleNamespace(start_and_attach_live_app=lambda live: None, may_browser_be_building_page=False)

    class Noted:
        waiting = "systems"

        def __init__(self, pair, *_, **__):
            self.pair, self.preparation_progress_text = pair, f"Making ready {pair.title}"

        def prepare_opening_race(self) -> None:
            pass

        def prepare_remaining_systems(self) -> None:
            assert front.progress_text() == self.preparation_progress_text
            said.append((self.pair.title, [each.title for each in pages[-1].pairs]))
            self.waiting = ""

    def load(pair, *_):
        if pair.name == "smollm2" and obstacle:
            raise ValueError(obstacle)
        return SimpleNamespace(title=pair.title, remote=None)

    page = {
        "build_gradio_page_and_api": pages.append,
        "mount_guarded_page": lambda *_: None,
        "describe_pairs_on_offer": lambda served: {},
    }
    monkeypatch.setitem(sys.modules, "engine.page.web.page", SimpleNamespace(**page))
    monkeypatch.setattr("engine.models.loading.load", load)
    monkeypatch.setattr("engine.page.screens.readiness.SystemPreparation", Noted)
    monkeypatch.setattr(app, "OFFER", "small,smollm2")
    own, small, real = (PAIRS[name].title for name in ("embedded", "small", "smollm2"))
    how = {"device": "cpu"} | app.AS_FILED
    for is_here, obstacle in ((True, ""), (True, "it is too large."), (False, "")):
        monkeypatch.setattr(app, "is_target_on_this_machine", lambda pair, here=is_here: here or pair.name != "smollm2")
        said.clear()
        app.load_pair_and_serve_live_page(front, PAIRS["embedded"], how, lambda own: own)
        assert said[:2] == [(own, [own, small]), (small, [own, small])]
        offered = is_here and not obstacle
        assert said[2:] == ([(real, [own, small, real])] if offered else [])
        assert (f"The page does not offer {real}: it is too large.\n" in capsys.readouterr().out) == bool(obstacle)
    assert (
        app.list_additional_pair_names(PAIRS["small"], how)
        == app.list_additional_pair_names(PAIRS["embedded"], how | {"quantisation": "none"})
        == []
    )
    monkeypatch.setattr(app, "OFFER", "qwen3-8b")
    with pytest.raises(
        SystemExit, match=r"Unknown pair in TREERACE_OFFER 'qwen3-8b'\. Available: small, embedded, smollm2"
    ):
        app.list_additional_pair_names(PAIRS["embedded"], how)


@pytest.mark.parametrize("unread", [True, False])
def test_a_gguf_file_that_was_never_read_is_read_by_another_process_while_the_small_pair_goes_live(
    unread, monkeypatch, tmp_path
):
    """One that was read before is refused before anything is made ready."""
    said, file = [], tmp_path / "model.gguf"
    file.touch()
    front = SimpleNamespace(
        start_and_attach_live_app=lambda live: said.append("live"), may_browser_be_building_page=False
    )

    class Noted:
        preparation_progress_text = waiting = ""

        def __init__(self, pair, *_, **__):
            self.pair = pair

        def prepare_opening_race(self) -> None:
            said.append(self.pair.title)

        def prepare_remaining_systems(self) -> None:
            pass

    def call(function, path):
        said.append("reads")
        assert function == "engine.models.gguf.reading:convert_config_and_tokenizer_into_cache" and path == str(file)
        return SimpleNamespace(wait=lambda: said.append("waits"))

    def checked_files(pair, **_):
        said.append("checks")
        return ("its tokenizer",)

    def suits(tokenizer):
        assert tokenizer == "its tokenizer"

    page = {
        "build_gradio_page_and_api": lambda served: None,
        "mount_guarded_page": lambda *_: None,
        "describe_pairs_on_offer": lambda served: {},
    }
    monkeypatch.setitem(sys.modules, "engine.page.web.page", SimpleNamespace(**page))
    monkeypatch.setattr(
        "engine.models.loading.load", lambda pair, *_, **__: SimpleNamespace(title=pair.title, remote=None)
    )
    monkeypatch.setattr("engine.models.loading.check_files_memory_and_choose_quantisation", checked_files)
    monkeypatch.setattr("engine.models.gguf.reading.is_gguf_conversion_uncached", lambda path: unread)
    monkeypatch.setattr("engine.page.screens.readiness.SystemPreparation", Noted)
    monkeypatch.setattr(app.beforehand, "start_process_calling_if_multicore", call)
    app.load_pair_and_serve_live_page(
        front, build_pair(str(file)), {"device": "cpu"} | app.AS_FILED, lambda own: own, suits
    )
    small = PAIRS["small"].title
    if unread:
        assert said == ["reads", small, "live", "waits", "checks", "model"]
    else:
        assert said == ["checks", small, "live", "model"]
