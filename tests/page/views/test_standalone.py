"""The replay page: one file that holds everything, asks for nothing and runs no text as a script."""

import json

import pytest

from engine.page.views import page_files, standalone
from engine.page.web import page as live_page
from helpers.commands import run
from helpers.traces import made_race


def test_the_replay_page_holds_everything_and_asks_for_nothing():
    page = standalone.render_replay_page(made_race())
    assert "{{" not in page.replace("{{x}}", "").split('id="event"')[0]
    outside = page.split("<script")[0] + page.split("</script>")[-1]
    assert "http://" not in outside and "https://" not in outside and "src=" not in outside
    assert "default-src 'none'" in page
    event = page.split('id="event">', 1)[1].split("</script>", 1)[0]
    assert json.loads(event)["recorded"] == "2026-01-31"


def test_hostile_texts_end_no_script():
    hostile = "</script><script>window.__hostile=1</script><!-- {{race}} ${1} \u2028"
    record = made_race()
    for lane in record.lanes:
        lane.trace.prompt = lane.title = hostile
    calm, page = standalone.render_replay_page(made_race()), standalone.render_replay_page(record)
    assert page.count("<script") == calm.count("<script") and page.count("</script") == calm.count("</script")
    assert page.count("data-lane-template") == calm.count("data-lane-template")
    event = page.split('id="event">', 1)[1].split("</script>", 1)[0]
    assert json.loads(event)["systems"][0]["trace"]["prompt"] == hostile


def test_the_replay_page_is_made_from_a_file(capsys, tmp_path):
    file = tmp_path / "race.json"
    file.write_text(made_race().to_json(), "utf-8")
    run("replay", file)
    assert len((tmp_path / "race.html").read_text("utf-8")) == len(standalone.render_replay_page(made_race()))
    assert "race.html: " in capsys.readouterr().out
    file.write_text("{}", "utf-8")
    with pytest.raises(SystemExit):
        run("replay", file, "-o", tmp_path / "other.html")
    assert "missing 'lanes', 'recorded'" in capsys.readouterr().err and not (tmp_path / "other.html").exists()


def test_the_replay_page_wears_the_servers_colours():
    theme, styles = live_page.build_theme(), page_files.read_page_file("replay/replay.css")
    light, dark = styles.split(".dark.gradio-container", 1)
    for name in (
        "body_background_fill",
        "body_text_color",
        "body_text_color_subdued",
        "block_background_fill",
        "border_color_primary",
    ):
        variable = f"--{name.replace('_', '-')}: "
        assert f"{variable}{getattr(theme, name)};" in light
        assert f"{variable}{getattr(theme, f'{name}_dark')};" in dark


def test_a_static_space_is_written_by_one_command(capsys, tmp_path):
    file, folder = tmp_path / "race.json", tmp_path / "space"
    file.write_text(made_race().to_json(), "utf-8")
    run("replay", file, "--space", folder)
    front = (folder / "README.md").read_text("utf-8").split("---")[1]
    assert "sdk: static\napp_file: index.html" in front and "license: apache-2.0" in front
    assert len((folder / "index.html").read_text("utf-8")) == len(standalone.render_replay_page(made_race()))
    assert sorted(each.name for each in folder.iterdir()) == ["README.md", "index.html"]
