"""The story of one step in a real Chromium, on the replay page: before the race, on a key, scrubbed, left, and without motion."""

from dataclasses import replace

import pytest
from playwright.sync_api import expect

from helpers.page import until
from helpers.traces import bushy, made_race

STORY = "[data-story]"
WORDS = "[data-story-words]"
TELLING = "TreeRace.view.slowStart.isTelling"
SEEK = "time => TreeRace.view.slowStart.story.player.seek(time)"
TOLD = [
    (0.5, "A small model guesses ahead. Where it is unsure, it branches."),
    (2.0, "The large model checks all 5 guesses at once, in one run."),
    (3.5, "It marks the words it would have written itself, and adds one."),
    (4.3, "Wrong guesses are thrown away."),
    (5.2, "3 tokens join the text at once, from one run of the large model."),
    (6.5, "Nothing changes in the text: it only comes sooner."),
]


@pytest.fixture
def replay(replay_of):
    """Opens a made-up race, whose tree takes `step` first if one is given."""

    def opened(step=None, width=1280, height=720, **more):
        record = made_race()
        if step:
            record.lanes[1].trace.steps[0] = step
        return replay_of(record, width, height, **more)

    return opened


def test_a_race_begins_with_one_story_in_a_visit(browser, replay_file):
    """In a tab of its own, in which no time passes but what the test lets pass."""
    with browser.new_context() as context:
        tab = context.new_page()
        tab.clock.install(time=0)
        tab.clock.pause_at(1)
        tab.goto(replay_file(made_race()))
        tab.clock.run_for(500)
        expect(tab.locator(STORY)).to_be_visible()
        tab.clock.run_for(6000)
        assert tab.evaluate(f"{TELLING} && !TreeRace.view.playing")
        tab.clock.run_for(1000)
        expect(tab.locator(STORY)).to_be_hidden()
        assert tab.evaluate("TreeRace.view.playing || TreeRace.view.atEnd")
        tab.reload()
        tab.clock.run_for(500)
        assert tab.evaluate("TreeRace.view.playing || TreeRace.view.atEnd")
        expect(tab.locator(STORY)).to_be_hidden()


def test_every_scene_says_one_sentence_and_can_be_gone_to(replay):
    tab = replay()
    for time, words in TOLD:
        tab.evaluate(SEEK, time)
        expect(tab.locator(WORDS)).to_have_text(words)
    assert tab.evaluate("TreeRace.view.slowStart.story.horizon") == pytest.approx(7.0)
    tab.keyboard.press("ArrowLeft")
    expect(tab.locator(WORDS)).to_have_text(TOLD[4][1])
    tab.locator("[data-story-scrub]").fill("2")
    expect(tab.locator(WORDS)).to_have_text(TOLD[1][1])


def drawn(tab, time: float) -> dict:
    tab.evaluate(SEEK, time)
    return tab.evaluate(
        """() => {
          const stage = document.querySelector('[data-story-stage]');
          const seen = (selector) => [...stage.querySelectorAll(selector)].map((each) => Number(each.getAttribute('opacity') ?? 1));
          const box = (each) => each.getBoundingClientRect();
          const rows = [...stage.querySelectorAll('.looks')]; // a branch is a block
          return { nodes: seen('.node'), order: rows.map((each) => Number(each.dataset.node)),
                   rows: rows.map((_, node) => `.looks[data-node="${node}"] .seen`).flatMap(seen),
                   rings: seen('.ring'), tried: seen('.tried'), flyers: seen('.flyer'),
                   places: [...stage.querySelectorAll('.flyer')].map((each) => [box(each).left, box(each).bottom]),
                   said: [box(stage.querySelector('.said')).right, box(stage.querySelector('.said')).bottom] };
        }"""
    )


def test_the_pictures_tell_what_happened(replay):
    """The tree of tests/helpers/traces.py: 1 and 4 accepted, then the bonus."""
    tab = replay()
    sprouting = drawn(tab, 0.9)
    assert sprouting["order"] == [0, 1, 3, 4, 2, 5]
    assert sprouting["nodes"][0] == 1 and sprouting["nodes"][1] == 1 and sprouting["nodes"][3] < 1
    assert set(sprouting["rows"]) == {0} and set(sprouting["tried"]) == {0}
    checked = drawn(tab, 2.85)
    assert checked["nodes"][:6] == [1] * 6 and checked["rows"] == [1] * 6 and checked["tried"] == [1] * 6
    assert set(checked["rings"]) == {0} and checked["nodes"][6] == 0
    chosen = drawn(tab, 3.95)
    assert chosen["rings"] == [1] * 3 and chosen["nodes"][6] == 1  # the ghost of what it wanted
    dropped = drawn(tab, 4.7)
    assert [at for at, opacity in enumerate(dropped["nodes"]) if opacity < 0.2] == [2, 3, 5]
    assert [at for at, opacity in enumerate(dropped["rows"]) if opacity < 0.2] == [2, 3, 5]
    joined = drawn(tab, 6.4)
    assert joined["flyers"] == [1] * 3 and [at for at, opacity in enumerate(joined["tried"]) if opacity == 0] == [
        2,
        3,
        5,
    ]
    lefts = [left for left, _ in joined["places"]]
    assert lefts == sorted(lefts) and lefts[0] >= joined["said"][0]
    assert all(abs(bottom - joined["said"][1]) < 3 for _, bottom in joined["places"])


def test_a_token_without_a_letter_stays_out_of_the_sentence(replay):
    """The one that ends the text, say, whose own name may be longer than the line has room."""
    step = replace(made_race().lanes[1].trace.steps[0], pieces=[" a", " little", ""], bonus_text="<|endoftext|>")
    tab = replay(step, width=390, height=844)
    tab.evaluate(SEEK, 6.4)
    assert tab.locator("[data-story-stage] .flyer").all_text_contents() == ["a", "little"]
    assert tab.evaluate(READ)["outside"] == []


LIT = """() => {
  const lit = [...document.querySelectorAll('[data-story-stage] [data-lit]')];
  const of = (selector) => [...new Set(lit.filter((each) => each.matches(selector)).map((each) => Number(each.dataset.node)))];
  return { nodes: of('.node'), edges: of('.edge'), rows: of('.looks'), tried: of('.tried'), words: of('.flyer') };
}"""
NOTHING = {"nodes": [], "edges": [], "rows": [], "tried": [], "words": []}
FOURTH = {"nodes": [0, 1, 4], "edges": [1, 4], "rows": [4], "tried": [4], "words": [4]}


def test_pointing_in_a_story_lights_the_path_the_masks_row_the_caches_row_and_the_word(replay):
    tab = replay()
    tab.evaluate(SEEK, 6.4)
    tip = tab.locator("[data-story] > .tip")
    for part in (
        ".node[data-node='4'] .label",
        ".looks[data-node='4'] .reach",
        ".tried[data-node='4'] .row",
        ".flyer[data-node='4']",
    ):
        tab.locator(f"[data-story-stage] {part}").hover(force=True)
        assert tab.evaluate(LIT) == FOURTH, part
        expect(tip).to_contain_text("·little")
        tab.mouse.move(3, 3)
        assert tab.evaluate(LIT) == NOTHING
        expect(tip).to_be_hidden()
    for _ in range(5):
        tab.keyboard.press("ArrowDown")
    assert tab.evaluate(LIT) == FOURTH
    expect(tip).to_contain_text("draft q 0.500")
    tab.keyboard.press("ArrowUp")
    assert tab.evaluate(LIT)["rows"] == [3]
    tab.set_viewport_size({"width": 1100, "height": 700})  # it is drawn anew
    until(tab, f"({LIT})().rows.length === 1")
    tab.keyboard.press("Escape")
    expect(tip).to_be_hidden()


def test_escape_leaves_the_story_first_and_then_the_presentation(replay):
    tab = replay()
    tab.evaluate("() => { document.documentElement.requestFullscreen = () => Promise.reject(new TypeError('no')); }")
    tab.keyboard.press("Escape")
    tab.keyboard.press("f")
    tab.keyboard.press("s")
    expect(tab.locator(STORY)).to_be_visible()
    tab.keyboard.press("Escape")
    expect(tab.locator(STORY)).to_be_hidden()
    expect(tab.locator("[data-stage]")).to_have_count(1)
    tab.keyboard.press("Escape")
    expect(tab.locator("[data-stage]")).to_have_count(0)


def test_a_parallel_drafter_shoots_out_at_once(replay):
    step = made_race().lanes[1].trace.steps[0]
    step.__dict__["draft_forwards"] = 1
    tab = replay(step)
    assert len(set(drawn(tab, 0.5)["nodes"][1:6])) == 1
    tab.evaluate(SEEK, 0.5)
    expect(tab.locator(WORDS)).to_have_text("A small model guesses ahead. Where it is unsure, it branches.")


@pytest.mark.parametrize(("width", "height"), [(1280, 720), (390, 844)])
def test_a_key_and_a_button_tell_it_again_and_escape_leaves(replay, width, height):
    tab = replay(width=width, height=height)
    tab.keyboard.press("Escape")
    expect(tab.locator(STORY)).to_be_hidden()
    tab.evaluate("TreeRace.view.skip()")
    tab.keyboard.press("s")
    expect(tab.locator(STORY)).to_be_visible()
    tab.keyboard.press("Escape")
    expect(tab.locator(STORY)).to_be_hidden()
    tab.get_by_role("button", name="Tell this step as a story").click()
    expect(tab.get_by_role("button", name="Pause the story")).to_be_focused()
    tab.keyboard.press("Space")
    expect(tab.get_by_role("button", name="Play the story")).to_be_visible()
    tab.get_by_role("button", name="Skip").click()
    expect(tab.locator(STORY)).to_be_hidden()
    expect(tab.get_by_role("button", name="Tell this step as a story")).to_be_focused()


def test_another_race_takes_the_storys_place(replay):
    tab = replay()
    expect(tab.locator(STORY)).to_be_visible()
    tab.evaluate("TreeRace.view.skip()")
    expect(tab.locator(STORY)).to_be_hidden()
    assert tab.evaluate("TreeRace.view.atEnd && !document.querySelector('[data-race] [inert]')")


def test_without_motion_there_are_still_pictures_for_who_asks(replay):
    tab = replay(motion="reduce")
    expect(tab.locator(STORY)).to_be_hidden()
    assert tab.evaluate("TreeRace.view.atEnd")
    tab.keyboard.press("s")
    for _, words in TOLD:
        expect(tab.locator(WORDS)).to_have_text(words)
        before = tab.evaluate("TreeRace.view.slowStart.story.player.time")
        tab.wait_for_timeout(100)
        assert tab.evaluate("TreeRace.view.slowStart.story.player.time") == before
        tab.get_by_role("button", name="Next picture").click()
    expect(tab.locator(STORY)).to_be_hidden()


@pytest.mark.parametrize(("width", "height"), [(1280, 720), (1920, 1080), (390, 844)])
def test_all_of_it_fits_the_window(replay, width, height):
    tab = replay(bushy(24), width=width, height=height)
    tab.evaluate(SEEK, 4.0)
    for part in (WORDS, "[data-story-stage] svg", "[data-story-skip]", "[data-story-scrub]"):
        box = tab.locator(part).bounding_box()
        assert (
            box["x"] >= 0 and box["x"] + box["width"] <= width and box["y"] >= 0 and box["y"] + box["height"] <= height
        ), part
    outside = tab.evaluate(
        """([width, height]) => [...document.querySelectorAll('[data-story-stage] text')]
          .map((each) => [each.textContent, each.getBoundingClientRect()])
          .filter(([, box]) => box.left < 0 || box.right > width || box.bottom > height)
          .map(([text]) => text)""",
        [width, height],
    )
    assert outside == []


# Of the texts that can be read now: which a line runs through, which stand on another one, which leave the stage.
READ = """() => {
  const stage = document.querySelector('[data-story-stage]');
  const room = stage.getBoundingClientRect();
  const opacity = (each) => (each === stage ? 1 : Number(each.getAttribute('opacity') ?? 1) * opacity(each.parentElement));
  const seen = [...stage.querySelectorAll('text')].filter((each) => each.textContent && opacity(each) > 0.5);
  const texts = seen.map((each) => {
    const { left, right, top, bottom } = each.getBoundingClientRect();
    const rise = 0.28 * (bottom - top); // letters without tails stand between
    return { text: each.textContent, left: left + 1, right: right - 1, top: top + rise, bottom: bottom - rise };
  });
  const named = (those) => [...new Set(those.map(({ text }) => text))];
  const points = [...stage.querySelectorAll('.edge, .stem, .rooted')].flatMap((line) => {
    const matrix = line.getScreenCTM();
    const steps = Array.from({ length: Math.floor(line.getTotalLength() / 1.5) + 1 }, (_, at) => 1.5 * at);
    return steps.map((at) => line.getPointAtLength(at).matrixTransform(matrix));
  });
  const holds = ({ left, right, top, bottom }, { x, y }) => x > left && x < right && y > top && y < bottom;
  const leaves = ({ left, right, top, bottom }) => left < room.left || right > room.right || top < room.top || bottom > room.bottom;
  const meet = (a, b) => a !== b && a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
  return {
    count: texts.length,
    labels: [...stage.querySelectorAll('.label')].map((each) => each.textContent),
    crossed: named(texts.filter((box) => points.some((point) => holds(box, point)))),
    over: named(texts.filter((box) => texts.some((other) => meet(box, other)))),
    outside: named(texts.filter(leaves)),
  };
}"""


@pytest.mark.parametrize("nodes", [5, 12, 40, 64])
def test_words_of_the_accepted_path_are_whole_and_no_line_crosses_a_text(replay, nodes):
    step = bushy(nodes)
    tab = replay(step, motion="reduce")
    tab.evaluate("TreeRace.view.go(0)")
    tab.keyboard.press("s")
    wanted = [step.texts[at].strip() for at in step.path]
    for time in (1.5, 2.85, 3.95):  # the tree has grown, has been checked, has been judged
        tab.evaluate(SEEK, time)
        found = tab.evaluate(READ)
        assert [found["labels"][at] for at in step.path] == wanted
        assert found["labels"][-1].startswith("grandmother · p ")
        assert found["count"] > len(wanted)
        assert [found[name] for name in ("crossed", "over", "outside")] == [[], [], []], time


def rescued_race():
    """A race whose second step is won by the root's second branch."""
    record = made_race()
    steps = record.lanes[1].trace.steps
    told = {"path": [2, 5], "burst": [12, 15, 99], "pieces": [" the", " end", " fox"]}
    told |= {
        "tokens": [10, 21, 12, 13, 14, 15],
        "verdicts": ["root", "rejected", "accepted", "unreached", "unreached", "accepted"],
    }
    steps[1] = replace(steps[1], **told)
    return record


def test_the_best_rescue_is_told_and_the_race_comes_to_rest_on_it(replay_of):
    tab = replay_of(rescued_race(), 1280, 720)
    tab.evaluate(SEEK, 3.5)
    expect(tab.locator(WORDS)).to_have_text("Favourite “a” is wrong: a chain keeps 0 words, the second branch 2.")
    tab.evaluate("TreeRace.view.slowStart.story.leave()")
    tab.evaluate("TreeRace.view.skip()")
    assert tab.evaluate("TreeRace.view.step") == 1 and tab.evaluate("TreeRace.view.atEnd")
    expect(tab.locator("[data-sentence]")).to_contain_text(
        "Favourite “a” was wrong. A chain keeps 0 here, the second branch 2:"
    )
    expect(tab.locator("[data-runs]")).to_contain_text("Its branches won 2 of 6 tokens.")


def test_without_motion_the_race_rests_on_the_rescue_too(replay_of):
    tab = replay_of(rescued_race(), 1280, 720, "reduce")
    expect(tab.locator("[data-sentence]")).to_contain_text("the second branch 2:")


def test_a_race_without_a_rescue_says_so(replay):
    tab = replay()
    tab.evaluate("TreeRace.view.skip()")
    expect(tab.locator("[data-runs]")).to_contain_text("No branch won here")


def test_what_a_chain_has_is_marked_where_a_branch_won_and_crosses_nothing(replay_of):
    tab = replay_of(rescued_race(), 1280, 720, "reduce")
    tab.keyboard.press("s")
    for time in (1.55, 2.85, 3.95):
        tab.evaluate(SEEK, time)
        found = tab.evaluate(READ)
        assert [found[name] for name in ("crossed", "over", "outside")] == [[], [], []], time
    expect(tab.locator("[data-story-stage] .heading").filter(has_text="← a chain")).to_have_count(1)
