"""The page: Gradio components wired to the engine. Knows events and files of the page; holds no algorithm."""

import argparse
import html
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"

import gradio as gr

from engine.acceptance import ACCEPTANCES
from engine.breaks import BREAKS
from engine.drafters import DRAFTERS
from engine.models.loading import load
from engine.models.pairs import LoadedPair
from engine.policies import POLICIES
from engine.race import BASELINE, FIELD, LIMITS, SHAPE, Race, Settings, field
from engine.record.race_file import Record, side_by_side
from engine.rounds.timing import costs_of
from engine.screens.break_distance import measure as distance
from engine.screens.link import HOTTEST
from engine.screens.link import read as read_link
from engine.screens.own_prompts import ALLOWED
from engine.screens.own_prompts import read as prompts_of
from engine.screens.own_prompts import results as results_of
from engine.screens.serving import configurations
from engine.screens.sweep import Plan, Sweep
from engine.systems import SYSTEMS, System, find
from engine.views import page_files, standalone
from engine.views.page_files import PAGE
from engine.views.standalone import PLOTLY
from engine.views.stream import numbered
from engine.views.wire import events, replay

PROMPTS = json.loads((PAGE.parent / "prompts.json").read_text("utf-8"))
RACES = {
    path.stem: Record.from_json(path.read_text("utf-8")) for path in sorted((PAGE.parent / "races").glob("*.json"))
}
SCREENS = {"race": "Race", "prix": "Grand prix", "lab": "Lab"}  # the first one is open at the start
PROMISES = {"tokens": "same tokens", "law": "same distribution", "lossy": "changes the text"}
LANES = ("vanilla", "tree")
FIELDS = {  # of the grand prix, the first one chosen at the start
    "the seeds": ("vanilla", "chain", "nanogpt-tree", "naive", "medusa", "parallel-tree", "specblock", "dyspec"),
    "no training needed": ("vanilla", "chain", "tree", "lookup", "nanogpt-tree", "specinfer", "sequoia", "dyspec-threshold"),
    "learned drafters": ("vanilla", "medusa", "medusa-typical", "parallel-tree", "specblock", "specblock-adapt", "eagle", "auto"),
}  # fmt: skip
FIRSTS = ("vanilla", "auto")  # what each lane's menu begins with
MIX = "mix"  # the menu's entry for a system of the visitor's own; its name then comes from a hidden field
ONE_AT_A_TIME = {"concurrency_id": "race", "concurrency_limit": 1}  # a second race would disturb the clocks
ON_PAGE = {"show_progress": "hidden", "trigger_mode": "once", "api_visibility": "private", **ONE_AT_A_TIME}
QUIET = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}


def card(system: System) -> dict[str, object]:
    """What the page says about a system; with `limits` its tree only stays within depth, width and nodes."""
    return {**asdict(system), "guarantee": system.guarantee, "limits": system.reads_costs}


def parts() -> dict[str, dict[str, str]]:
    """A sentence for every part that a system can be mixed from."""
    registries = {"drafter": DRAFTERS, "policy": POLICIES, "acceptance": ACCEPTANCES}
    return {kind: {name: part.about for name, part in names.items()} for kind, names in registries.items()}


def answer(make: Callable[[], dict[str, object]]) -> dict[str, object]:
    """What was asked for, or the sentence that refuses it."""
    try:
        return make()
    except ValueError as error:
        return {"refused": str(error)}


def look(name: str) -> dict[str, object]:
    """The system of that name, or why there is none."""
    return answer(lambda: card(find(str(name))))


def shape(name: str) -> list[int] | None:
    """The tree shape that a system starts with; None if there is no such system."""
    found = look(name)
    return None if "refused" in found else [found[dial] for dial in SHAPE]


def read_prompts(file: list) -> dict[str, object]:
    """The prompts of a visitor's file, given as its name and its text, or what is wrong with it."""
    return answer(lambda: {"prompts": prompts_of(*file)})


def production(setting: list) -> dict[str, object]:
    """A setting for the engines that serve models, or why there is none; given as system, depth, width, nodes and temperature."""
    return answer(lambda: {"engines": configurations(*setting)})


def recorded(name: str) -> dict[str, object]:
    """A recorded race as an event of the page."""
    if str(name) not in RACES:
        return {"refused": f"There is no recorded race {str(name)[:60]!r}."}
    return {"event": replay(RACES[str(name)])}


def opened(text: str) -> dict[str, object]:
    """The race of a file as an event of the page, or what is wrong with the file."""
    return of_file(text, lambda record: {"event": side_by_side(record) and replay(record)})


def replay_page(text: str) -> dict[str, object]:
    """A race file as a page of its own, or what is wrong with the file."""
    return of_file(text, lambda record: {"html": standalone.html(record)})


def of_file(text: str, make: Callable[[Record], dict[str, object]]) -> dict[str, object]:
    try:
        return make(Record.from_json(str(text)))
    except ValueError as error:
        return {"refused": f"This race file cannot be read. {error}"}


def about_race(name: str, record: Record) -> dict[str, str]:
    """A recorded race in the page's menu."""
    trace, title = record.lanes[-1].trace, record.lanes[-1].title
    return {"name": name, "title": f"{title}, temperature {trace.temperature:g}", "prompt": trace.prompt}


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
    return gr.Error(html.escape(sentence, quote=False), title="Not started", print_exception=False)


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
    """A part of the page: its markup in `assets/page/`, filled by its own script's `TreeRace.<mount>(element, value, server)`."""
    return gr.HTML(
        json.dumps(value),
        html_template=page_files.markup(name),
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
        "temperature": gr.Slider(
            0.0, HOTTEST, value=0.0, step=0.05, label="Temperature", buttons=[], elem_classes="heat"
        ),
        "nodes": gr.Number(tree.nodes, label="Nodes", precision=0, elem_classes=["number", "shape"]),
        "seed": gr.Number(0, label="Seed", precision=0, elem_classes="number"),
        "max_new_tokens": gr.Number(200, label="New tokens", precision=0, elem_classes=["number", "length"]),
    }


def build(pair: LoadedPair) -> gr.Blocks:
    """The page. The form is shared; each screen has a Start and a Stop in the form's row and a column of its own."""
    with gr.Blocks(title="TreeRace", analytics_enabled=False, fill_width=True) as page, gr.Column(elem_id="screen"):
        about = f"{pair.title} · {pair.hardware} · {pair.dtype}"
        races = [about_race(*each) for each in RACES.items()]
        head = {"pair": about, "prompts": PROMPTS, "screens": SCREENS, "races": races}
        part("masthead", "mountHeader", head, server_functions=[recorded, opened, replay_page])
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
        prompt.submit(None, js="() => TreeRace.go()?.click()", **QUIET)
    return page


def runs(
    begin: gr.Button,
    halt: gr.Button,
    stream: Callable,
    inputs: list[gr.components.Component],
    channel: str,
    view: str,
    pending: str,
) -> None:
    """`begin` streams into the wire of that name, one run at a time, and `halt` cancels it; the page's `TreeRace.<view>` is told."""
    running = begin.click(stream, inputs, wire(channel), js=pending, **ON_PAGE)
    running.failure(None, js=f"() => TreeRace.{view}.failed()", **QUIET)
    halt.click(None, js=f"() => TreeRace.{view}.stop()", cancels=[running], **QUIET)


def prix_screen(pair: LoadedPair, form: Form, go: gr.Button, halt: gr.Button) -> None:
    """Up to eight systems on one prompt, and the API of the same."""

    def stream(systems: list[str], prompt: str, **settings: object) -> Iterator[str]:
        yield from told(lambda: events(Race(pair, Settings(prompt, field(systems), **settings))))

    def prix_on_page(chosen, prompt, temperature, max_new_tokens, seed):
        yield from stream(chosen.split(), prompt, temperature=temperature, max_new_tokens=max_new_tokens, seed=seed)

    def prix(
        prompt: str, systems: list[str], temperature: float = 0.0, max_new_tokens: int = 200, seed: int = 0
    ) -> Iterator[str]:
        """Race up to eight systems, plain decoding first. Streams JSON strings; the last one carries "end" and the figures."""
        yield from stream(systems, prompt, temperature=temperature, max_new_tokens=max_new_tokens, seed=seed)

    about = {name: {**card(each), "label": label(each)} for name, each in SYSTEMS.items()}
    least, most = FIELD
    limits = {"baseline": BASELINE, "least": least, "most": most}
    part("prix", "mountPrix", {"systems": about, "promises": PROMISES, "presets": FIELDS, **limits})
    asked = [gr.Textbox(visible="hidden"), form.prompt, form.temperature, form.max_new_tokens, form.seed]
    runs(go, halt, prix_on_page, asked, "prix", "prix", "(_, ...inputs) => [TreeRace.prix.pending(), ...inputs]")
    gr.api(prix, api_name="prix", **ONE_AT_A_TIME)


def lab_screen(pair: LoadedPair, form: Form, go: gr.Button, halt: gr.Button) -> None:
    """Sweeps over shapes, a visitor's own prompts, and a setting for production. Start runs what the shown view is about."""
    systems = {name: card(each) for name, each in SYSTEMS.items()}
    about = {"systems": systems, "prompts": PROMPTS, "allowed": ALLOWED}
    part("lab", "mountLab", about, server_functions=[read_prompts, production])
    go.click(None, js="() => TreeRace.lab.start()", **QUIET)

    def stream(**plan: object) -> Iterator[str]:
        yield from told(lambda: numbered(Sweep(pair, Plan(**plan)).run()))

    def sweep_on_page(order, *_):
        yield from stream(**json.loads(order))

    def sweep(
        prompts: list[str],
        system: str = Plan.system,
        grid: str = Plan.grid,
        depth: list[int] = Plan.depth,
        width: list[int] = Plan.width,
        nodes: list[int] = Plan.nodes,
        temperature: list[float] = Plan.temperature,
        max_new_tokens: int = Plan.max_new_tokens,
        seed: int = Plan.seed,
    ) -> Iterator[str]:
        """Race every cell of a grid against plain decoding: "shape" varies depth and width, "budget" nodes and temperature.

        Streams JSON strings, one with "cell" for each; the last one carries "end", all "cells" and the "summary".
        """
        yield from stream(
            prompts=prompts,
            system=str(system),
            grid=str(grid),
            depth=depth,
            width=width,
            nodes=nodes,
            temperature=temperature,
            max_new_tokens=max_new_tokens,
            seed=seed,
        )

    begin = gr.Button(visible="hidden", elem_id="sweep-start")
    asked = [gr.Textbox(visible="hidden"), form.prompt, form.temperature, form.seed]
    pending = "(_, ...form) => [TreeRace.sweep.pending(...form), ...form]"
    runs(begin, halt, sweep_on_page, asked, "treelab", "sweep", pending)
    gr.api(sweep, api_name="sweep", **ONE_AT_A_TIME)
    own_prompts(pair, form, halt)


def own_prompts(pair: LoadedPair, form: Form, halt: gr.Button) -> None:
    """The races of the lab on a visitor's own prompts, and the API of the same."""

    def prompts_on_page(order, temperature, max_new_tokens, seed):
        dialled = {"temperature": temperature, "max_new_tokens": max_new_tokens, "seed": seed}
        yield from told(lambda: numbered(results_of(pair, **json.loads(order), **dialled)))

    def prompts(
        text: str,
        name: str = "prompts.txt",
        system: str = "tree",
        temperature: float = 0.0,
        max_new_tokens: int = 200,
        seed: int = 0,
    ) -> Iterator[str]:
        """Race a system against plain decoding on every prompt of a file: text with blank lines between prompts, or .jsonl.

        Streams JSON strings, one with a "row" and the "summary" so far for every prompt; the last one carries "end".
        """
        dialled = {"temperature": temperature, "max_new_tokens": max_new_tokens, "seed": seed}
        yield from told(lambda: numbered(results_of(pair, prompts_of(name, text), str(system), **dialled)))

    begin = gr.Button(visible="hidden", elem_id="prompts-start")
    asked = [gr.Textbox(visible="hidden"), form.temperature, form.max_new_tokens, form.seed]
    pending = "(_, ...form) => [TreeRace.prompts.pending(), ...form]"
    runs(begin, halt, prompts_on_page, asked, "treeprompts", "prompts", pending)
    gr.api(prompts, api_name="prompts", **ONE_AT_A_TIME)


def race_screen(pair: LoadedPair, form: Form, go: gr.Button, halt: gr.Button) -> None:
    """Two lanes side by side, and the API of the same race."""

    def stream(systems: tuple[str, str], prompt: str, **settings: object) -> Iterator[str]:
        yield from told(lambda: events(Race(pair, Settings(prompt, systems, **settings))))

    def race_on_page(
        prompt, left, right, left_mix, right_mix, broken, depth, width, nodes, temperature, max_new_tokens, seed
    ):
        systems = (left_mix if left == MIX else left, right_mix if right == MIX else right)
        if broken:
            systems = (broken.partition("!")[0], broken)
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
    broken = gr.Textbox(visible="hidden")  # a system of the walk's that races in place of the menus' two
    shaping = [form.depth, form.width, form.nodes]
    asked = [form.prompt, left, right, left_mix, right_mix, broken]
    asked += [*shaping, form.temperature, form.max_new_tokens, form.seed]
    pending = "(...inputs) => { TreeRace.view.pending(); return inputs; }"
    runs(go, halt, race_on_page, asked, "treerace", "view", pending)
    for lane in (left, right):
        lane.change(None, [left, right], js="(left, right) => TreeRace.view.describe([left, right])", **QUIET)
    of_visitor = (
        "(name) => (TreeRace.view.lanes[1].mix.restored ? '' : name)"  # a mix out of a link brings its shape along
    )
    for chosen, name, js in ((right.input, right, None), (right_mix.change, right_mix, of_visitor)):
        chosen(
            lambda name: shape(name) or gr.skip(),
            name,
            shaping,
            js=js,
            trigger_mode="always_last",
            **QUIET,
        )
    gr.api(race, api_name="race", **ONE_AT_A_TIME)
    linked(form, {"left": left, "right": right}, {"left": left_mix, "right": right_mix})
    walk(pair, form, [left, right], broken, halt)


def linked(form: Form, menus: dict[str, gr.Dropdown], mixes: dict[str, gr.Textbox]) -> None:
    """The form takes what a link says, or what an opened race was run with; wrong values are told and leave it as it is."""
    fields = {**vars(form), **menus, **{f"{side}_mix": mix for side, mix in mixes.items()}}
    refusals = gr.Textbox(visible="hidden")

    def restore(query):
        given, refused = read_link(query)
        for side in menus:
            if "/" in given.get(side, ""):
                given |= {f"{side}_mix": given[side], side: MIX}
        return [*(given.get(name, gr.skip()) for name in fields), " ".join(refused)]

    gr.Button(visible="hidden", elem_id="take-link").click(
        restore, gr.Textbox(visible="hidden"), [*fields.values(), refusals], js="() => TreeRace.take.query", **QUIET
    ).then(None, refusals, js="(sentences) => TreeRace.take.say(sentences)", **QUIET)


def walk(pair: LoadedPair, form: Form, menus: list[gr.Dropdown], broken: gr.Textbox, halt: gr.Button) -> None:
    """The guided walk beside the race: it sets the controls, and measures how far off a system is that is broken on purpose."""

    def distances(prompt, broken, depth, width, nodes, temperature, max_new_tokens, seed):
        settings = {"depth": depth, "width": width, "nodes": nodes, "temperature": temperature}
        settings |= {"max_new_tokens": max_new_tokens, "seed": seed}
        systems = (broken.partition("!")[0], broken)
        yield from told(lambda: numbered(distance(pair, Settings(prompt, systems, **settings))))

    shaping = [form.depth, form.width, form.nodes]
    dialled = [*shaping, form.temperature, form.max_new_tokens, form.seed]
    broken_cards = {name: card(find(each.suggestion.systems[-1])) for name, each in BREAKS.items()}
    breaks = {name: {**each.to_dict(), "card": broken_cards[name]} for name, each in BREAKS.items()}
    part("walk", "mountWalk", {"prompt": PROMPTS["stories"][1]["prompt"], "breaks": breaks})
    controls = [form.prompt, *menus, *dialled, broken]
    gr.Button(visible="hidden", elem_id="walk-set").click(
        None, controls, controls, js="(...values) => TreeRace.walk.controls.take(values)", **QUIET
    ).then(None, js="() => TreeRace.walk.controls.settled()", **QUIET)
    measuring = gr.Button(visible="hidden", elem_id="walk-measure").click(
        distances,
        [form.prompt, broken, *dialled],
        wire("treebreak"),
        **ON_PAGE,
    )
    measuring.failure(None, js="() => TreeRace.walk.breaks.failed()", **QUIET)
    halt.click(None, cancels=[measuring], **QUIET)


def measure(pair: LoadedPair) -> None:
    """Costs of forwards, at load and not before a race; on ZeroGPU there is no device yet, and the first race measures them."""
    for name in () if "SPACES_ZERO_GPU" in os.environ else (*LANES, *FIRSTS):
        try:
            costs_of(pair, SYSTEMS[name].drafter)
        except ValueError:
            continue  # the pair has no such drafter


def serve(port: int) -> None:
    print("TreeRace loads its models; a first start compiles their kernels, up to a minute.", flush=True)
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
        css=page_files.styles("page") + menu_headings(),
        head=f'<script src="gradio_api/file={PLOTLY}"></script>\n<script>{page_files.scripts("page")}</script>',
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
