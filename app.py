"""The page: Gradio components wired to the engine. Knows events and files of the page; holds no algorithm."""

import argparse
import html
import importlib.util
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"

import gradio as gr

from engine.about import ABOUT
from engine.acceptance import ACCEPTANCES
from engine.drafters import DRAFTERS
from engine.models import LoadedPair, load
from engine.policies import POLICIES
from engine.race import LIMITS, SHAPE, Race, Settings
from engine.systems import SYSTEMS, System, find
from engine.timing import costs_of
from engine.views.wire import events

PAGE = Path(__file__).parent / "assets" / "page"
PROMPTS = json.loads((PAGE.parent / "prompts.json").read_text("utf-8"))
PLOTLY = Path(importlib.util.find_spec("plotly").origin).parent / "package_data" / "plotly.min.js"
PLOTS = ("plot-base.js", "tree-plot.js", "mask-plot.js", "guess-plot.js", "cost-plot.js")
PARTS = ("text.js", "popover.js", "card.js", "mix.js", "order.js", "costs.js", "panel.js", "lane.js")
SCRIPTS = ("wire.js", *PLOTS, *PARTS, "race-view.js", "header.js")
STYLES = ("page.css", "race.css", "card.css")
SCREENS = {"race": "Race", "prix": "Grand prix", "lab": "Lab"}  # the first one is open at the start
PROMISES = {"tokens": "same tokens", "law": "same distribution", "lossy": "changes the text"}
LANES = ("vanilla", "tree")
FIRSTS = ("vanilla", "auto")  # what each lane's menu begins with
MIX = "mix"  # the menu's entry for a system of the visitor's own; its name then comes from a hidden field
ONE_AT_A_TIME = {"concurrency_id": "race", "concurrency_limit": 1}  # a second race would disturb the clocks
QUIET = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}


def read(*names: str) -> str:
    return "\n".join((PAGE / name).read_text("utf-8") for name in names)


def card(system: System) -> dict[str, object]:
    """What the page says about a system; with `limits` its tree only stays within depth, width and nodes."""
    limits = hasattr(POLICIES[system.policy], "reads_costs")
    return {**asdict(system), "guarantee": system.guarantee, "limits": limits}


def parts() -> dict[str, dict[str, str]]:
    """A sentence for every part that a system can be mixed from."""
    registries = {"drafter": DRAFTERS, "policy": POLICIES, "acceptance": ACCEPTANCES}
    return {kind: {name: ABOUT[kind].get(name, "") for name in names} for kind, names in registries.items()}


def look(name: str) -> dict[str, object]:
    """The system of that name, or why there is none."""
    try:
        return card(find(str(name)))
    except ValueError as error:
        return {"refused": str(error)}


def shape(name: str) -> list[int] | None:
    """The tree shape that a system starts with; None if there is no such system."""
    found = look(name)
    return None if "refused" in found else [found[dial] for dial in SHAPE]


def label(system: System) -> str:
    marked = system.guarantee == "lossy" and "lossy" not in system.title
    return f"{system.title} · lossy" if marked else system.title


def menu(first: str) -> list[tuple[str, str]]:
    """Labels and names of the systems by what they promise, the lossy ones last and `first` before its like; then the mix."""
    promises = list(PROMISES)
    ordered = sorted(SYSTEMS.values(), key=lambda system: (promises.index(system.guarantee), system.name != first))
    return [*((label(system), system.name) for system in ordered), ("mix your own …", MIX)]


def menu_headings() -> str:
    """Style rules that write each promise beside its first system in the menus."""
    guarantees = [SYSTEMS[name].guarantee for _, name in menu(LANES[0])[:-1]]
    firsts = {guarantees.index(each) + 1: words for each, words in PROMISES.items() if each in guarantees}
    return "\n".join(f"#systems li:nth-of-type({at})::after {{ content: '{words}'; }}" for at, words in firsts.items())


def theme() -> gr.themes.Base:
    return gr.themes.Base(
        primary_hue="orange",
        secondary_hue="blue",
        neutral_hue="stone",
        radius_size="md",
        font=[gr.themes.LocalFont("IBM Plex Sans", weights=(400, 700)), "system-ui", "sans-serif"],
        font_mono=[gr.themes.LocalFont("IBM Plex Mono", weights=(400, 700)), "ui-monospace", "monospace"],
    ).set(
        body_background_fill="#f4f3ee",
        body_background_fill_dark="#0f1113",
        body_text_color="#1b1c1e",
        body_text_color_dark="#f1f2f3",
        body_text_color_subdued="#5b5c5e",
        body_text_color_subdued_dark="#a4abb3",
        block_background_fill="#ffffff",
        block_background_fill_dark="#181b1f",
        border_color_primary="#d9d8d1",
        border_color_primary_dark="#33383e",
        slider_color="#a84300",
        slider_color_dark="#f08a24",
    )


def refusal(sentence: str) -> gr.Error:
    """A sentence for the visitor. Gradio renders errors as HTML, and the sentence may quote what the visitor wrote."""
    return gr.Error(html.escape(sentence, quote=False), title="No race", print_exception=False)


def told(events: Callable[[], Iterator[str]]) -> Iterator[str]:
    """The events; what the visitor can mend is told in a sentence."""
    try:
        yield from events()
    except ValueError as error:
        raise refusal(str(error)) from None
    except RuntimeError as error:
        if "out of memory" not in str(error).lower():
            raise
        raise refusal(
            "The device ran out of memory. Ask for fewer nodes or new tokens, or load a smaller pair."
        ) from None


def wire(name: str) -> gr.HTML:
    """A hidden component that carries JSON strings to the page, where each is a window event of that name."""
    return gr.HTML(
        "",
        html_template="",
        js_on_load=f"TreeRace.mountWire({json.dumps(name)}, props, watch);",
        visible="hidden",
        elem_id=f"wire-{name}",
    )


def part(name: str, mount: str, value: object = None, **more: object) -> gr.HTML:
    """A part of the page: `assets/page/<name>.html`, filled by its own script's `TreeRace.<mount>(element, value, server)`."""
    return gr.HTML(
        json.dumps(value),
        html_template=read(f"{name}.html"),
        js_on_load=f"TreeRace.{mount}(element, JSON.parse(props.value), server);",
        apply_default_css=False,
        elem_id=name,
        **more,
    )


@dataclass(frozen=True)
class Form:
    """What every screen reads: the prompt and the dials."""

    prompt: gr.Textbox
    depth: gr.Slider
    width: gr.Slider
    temperature: gr.Slider
    nodes: gr.Number
    seed: gr.Number
    max_new_tokens: gr.Number


def prompt_box() -> gr.Textbox:
    return gr.Textbox(
        PROMPTS["stories"][0]["prompt"],
        label="Prompt",
        show_label=False,
        placeholder="Write the beginning; both lanes go on from here.",
        lines=2,
        max_lines=2,
        elem_id="prompt",
    )


def dials() -> dict[str, gr.components.Component]:
    """The dials by name. Those of the tree's shape are for the race alone."""
    shaping = {"buttons": [], "elem_classes": "shape"}
    tree = SYSTEMS["tree"]
    return {
        "depth": gr.Slider(*LIMITS["depth"], value=tree.depth, step=1, label="Depth", **shaping),
        "width": gr.Slider(*LIMITS["width"], value=tree.width, step=1, label="Width", **shaping),
        "temperature": gr.Slider(0.0, 2.0, value=0.0, step=0.05, label="Temperature", buttons=[]),
        "nodes": gr.Number(tree.nodes, label="Nodes", precision=0, elem_classes=["number", "shape"]),
        "seed": gr.Number(0, label="Seed", precision=0, elem_classes="number"),
        "max_new_tokens": gr.Number(200, label="New tokens", precision=0, elem_classes="number"),
    }


def build(pair: LoadedPair) -> gr.Blocks:
    """The page. The form is shared; each screen has a Start and a Stop in the form's row and a column of its own."""
    with gr.Blocks(title="TreeRace", analytics_enabled=False, fill_width=True) as page, gr.Column(elem_id="screen"):
        about = f"{pair.title} · {pair.hardware} · {pair.dtype}"
        part("masthead", "mountHeader", {"pair": about, "prompts": PROMPTS, "screens": SCREENS})
        with gr.Row(elem_id="entry"):
            prompt = prompt_box()
            buttons = {
                screen: (
                    gr.Button("Start" if screen == "lab" else "Race", variant="primary", elem_id=f"{screen}-go", elem_classes="go"),
                    gr.Button("Stop", elem_id=f"{screen}-halt", elem_classes="halt"),
                )
                for screen in SCREENS
            }  # fmt: skip
        columns = {screen: gr.Column(elem_id=f"{screen}-screen", elem_classes="of-screen") for screen in SCREENS}
        with gr.Row(elem_id="dials"):
            form = Form(prompt, **dials())
        for screen, fill in (("race", race_screen), ("prix", prix_screen), ("lab", lab_screen)):
            with columns[screen]:
                fill(pair, form, *buttons[screen])
    return page


def prix_screen(pair: LoadedPair, form: Form, go: gr.Button, halt: gr.Button) -> None:
    """Up to eight systems on one prompt."""


def lab_screen(pair: LoadedPair, form: Form, go: gr.Button, halt: gr.Button) -> None:
    """Sweeps over shapes, a visitor's own prompts, and a setting for production."""


def race_screen(pair: LoadedPair, form: Form, go: gr.Button, halt: gr.Button) -> None:
    """Two lanes side by side, and the API of the same race."""

    def stream(systems: tuple[str, str], prompt: str, **settings: object) -> Iterator[str]:
        yield from told(lambda: events(Race(pair, Settings(prompt, systems, **settings))))

    def race_on_page(prompt, left, right, left_mix, right_mix, depth, width, nodes, temperature, max_new_tokens, seed):
        systems = (left_mix if left == MIX else left, right_mix if right == MIX else right)
        if [depth, width, nodes] == shape(systems[1]):
            depth = width = nodes = None  # nobody moved these dials: each lane keeps the shape of its own system
        yield from stream(
            systems,
            prompt,
            depth=depth,
            width=width,
            nodes=nodes,
            temperature=temperature,
            max_new_tokens=max_new_tokens,
            seed=seed,
        )

    def race(
        prompt: str,
        system: str = "tree",
        depth: int = 4,
        width: int = 4,
        temperature: float = 0.0,
        max_new_tokens: int = 200,
        seed: int = 0,
    ) -> Iterator[str]:
        """Race a system against plain decoding. Streams JSON strings; the last one carries "end" and the result."""
        yield from stream(
            ("vanilla", str(system)),
            prompt,
            depth=depth,
            width=width,
            temperature=temperature,
            max_new_tokens=max_new_tokens,
            seed=seed,
        )

    with gr.Row(elem_id="systems"):
        left, right = (
            gr.Dropdown(
                menu(first),
                value=name,
                label=f"System of the {side} lane",
                show_label=False,
                container=False,
                filterable=False,
            )
            for side, name, first in zip(("left", "right"), LANES, FIRSTS, strict=True)
        )
    cards = {"systems": {name: card(each) for name, each in SYSTEMS.items()}, "parts": parts(), "lanes": LANES}
    part("race", "mountRace", cards, server_functions=[look])
    left_mix, right_mix = (gr.Textbox(visible="hidden", elem_id=f"mix-{lane}") for lane in range(len(LANES)))
    shaping = [form.depth, form.width, form.nodes]
    running = gr.on(
        [go.click, form.prompt.submit],
        race_on_page,
        [form.prompt, left, right, left_mix, right_mix, *shaping, form.temperature, form.max_new_tokens, form.seed],
        wire("treerace"),
        js="(...inputs) => { TreeRace.view.pending(); return inputs; }",
        show_progress="hidden",
        trigger_mode="once",
        api_visibility="private",
        **ONE_AT_A_TIME,
    )
    running.failure(None, js="() => TreeRace.view.failed()", **QUIET)
    halt.click(None, js="() => TreeRace.view.stop()", cancels=[running], **QUIET)
    for lane in (left, right):
        lane.change(None, [left, right], js="(left, right) => TreeRace.view.describe([left, right])", **QUIET)
    for chosen, name in ((right.input, right), (right_mix.change, right_mix)):
        chosen(
            lambda name: shape(name) or gr.skip(),
            name,
            shaping,
            trigger_mode="always_last",
            **QUIET,
        )
    gr.api(race, api_name="race", **ONE_AT_A_TIME)


def measure(pair: LoadedPair) -> None:
    """Costs of forwards, at load and not before a race; on ZeroGPU there is no device yet, and the first race measures them."""
    for name in () if "SPACES_ZERO_GPU" in os.environ else (*LANES, *FIRSTS):
        try:
            costs_of(pair, SYSTEMS[name].drafter)
        except ValueError:
            continue  # the pair has no such drafter


def serve(port: int) -> None:
    try:
        pair = load(os.environ.get("TREERACE_PAIR", "embedded"), four_bit=os.environ.get("TREERACE_FOUR_BIT") == "1")
    except ValueError as error:
        raise SystemExit(str(error)) from None
    measure(pair)
    gr.set_static_paths([PLOTLY])
    page = build(pair)
    page.queue(max_size=16).launch(
        server_name="0.0.0.0" if "SPACE_ID" in os.environ else "127.0.0.1",
        server_port=port,
        theme=theme(),
        css=read(*STYLES) + menu_headings(),
        head=f'<script src="gradio_api/file={PLOTLY}"></script>\n<script>{read(*SCRIPTS)}</script>',
        footer_links=[],
        run_history=False,
        ssr_mode=False,
        mcp_server=False,
        quiet=True,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Serve the TreeRace page.")
    parser.add_argument("--port", type=int, default=7860)
    serve(parser.parse_args().port)
