// Saves the race that is shown, and opens others: recorded ones and files. Knows the race view from outside, the form, and the server's
// answers; draws nothing itself.
window.TreeRace = window.TreeRace || {};

(function (T) {
  const LARGEST = 20_000_000; // bytes of a race file
  const NOTICE_MS = 15_000;
  const PICTURE = { tree: [1000, 620], mask: [760, 620] };
  const LINKED = ["prompt", "left", "right", "depth", "width", "nodes", "temperature", "tokens", "seed"];

  T.Take = class {
    constructor(root, server) {
      this.menu = root.querySelector("[data-take]");
      this.at = (name) => this.menu.querySelector(`[data-${name}]`);
      this.server = server;
      this.notice = root.querySelector("[data-notice]");
      this.notice.querySelector("button").addEventListener("click", () => this.say(""));
      const [button, panel] = [this.menu.querySelector(".tool"), this.menu.querySelector(".panel")];
      this.show = T.popover(this.menu, button, panel);
      button.addEventListener("click", () => this.refresh());
      window.addEventListener("treerace", () => panel.hidden || this.refresh());
      this.listen();
    }

    say(sentence) {
      this.notice.hidden = !sentence;
      this.notice.firstElementChild.textContent = sentence;
      clearTimeout(this.timer);
      if (sentence) this.timer = setTimeout(() => this.say(""), NOTICE_MS);
    }

    // ---- the race that is shown ------------------------------------------------------------------------------------

    // Its systems, lanes and day; null while there is none to save.
    get race() {
      const { run, systems, lanes, recorded } = T.view;
      return run && !this.live && lanes.every((lane) => lane.steps.length) ? { systems, lanes, recorded } : null;
    }

    // Steps are still on their way.
    get live() {
      const { run, result, stopped } = T.view;
      return run !== null && result === null && stopped !== run;
    }

    refresh() {
      const { race } = this;
      this.menu.querySelectorAll(".take button").forEach((button) => (button.disabled = !race));
      this.at("link").value = (race && T.raceLink(race)) || "";
      this.at("link").disabled = this.at("copy").disabled = !this.at("link").value;
      this.at("link").placeholder = race ? "The prompt is too long for a link." : "";
      const titles = race?.systems.map((system) => system.title).join(" and ");
      this.at("shown").textContent = race
        ? `${titles}${T.view.result ? "" : ", as far as it came"}`
        : this.live
          ? "The race can be saved when it has ended or was stopped."
          : "No race is shown yet.";
    }

    async page() {
      const { race } = this;
      const answer = await T.answered(this.server.replay_page(T.raceFile(race)));
      if (answer.refused) return this.say(answer.refused);
      T.saveFile(`${T.raceName(race)}.html`, "text/html", answer.html);
    }

    file() {
      T.saveFile(`${T.raceName(this.race)}.json`, "application/json", T.raceFile(this.race));
    }

    // Drawn anew at a size of its own, on the lane's surface: what is on the page may be small, or hidden.
    async picture(kind, format) {
      const { view } = T;
      const [width, height] = PICTURE[kind];
      const canvas = document.createElement("div");
      canvas.className = "canvas offstage";
      Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
      view.at("plots").append(canvas);
      const step = view.steps[Math.max(0, view.step)];
      if (kind === "tree") T.drawTree(canvas, step);
      else view.panel.drawMask(step, canvas);
      await T.savePicture(canvas, `${T.raceName(this.race)}-${kind}-step-${step.index + 1}.${format}`, format);
      Plotly.purge(canvas);
      canvas.remove();
    }

    async copy() {
      const copied = await T.copy(this.at("link").value);
      this.at("copy").textContent = copied ? "Copied" : "Copy it here";
      setTimeout(() => (this.at("copy").textContent = "Copy link"), 2000);
      this.at("link").focus();
      this.at("link").select();
    }

    // ---- other races -----------------------------------------------------------------------------------------------

    // Shows a race that is over, and sets the form to what it was run with, so that Race runs it again.
    open(event) {
      T.view.pace.chosen = false; // its own pace
      T.showScreen("race");
      T.showRecorded(event);
      this.say("");
      const [left, right] = event.systems;
      if (this.menus([left.name, right.name])) this.set(T.raceLink({ systems: [left, right] }));
    }

    // Whether the menus can say all of them.
    menus(names) {
      const { systems, parts } = T.view.about;
      const kinds = Object.values(parts);
      return names.every((name) => systems[name] || name.split("/").every((part, at) => kinds[at] && part in kinds[at]));
    }

    async ask(answer) {
      const { refused, event } = await T.answered(answer);
      if (refused) return this.say(refused);
      if (this.live) return this.say("A race is running. Stop it first, then open another.");
      this.open(JSON.parse(event));
    }

    async read(file) {
      this.show(false);
      if (file.size > LARGEST) return this.say(`${file.name} has ${T.number(file.size / 1e6, 1)} MB; at most 20 MB are read.`);
      await this.ask(this.server.opened(await file.text()));
    }

    // The form takes what a link sets; the server checks it.
    set(link) {
      if (!link) return;
      const query = new URL(link).searchParams;
      [query.get("left"), query.get("right")].forEach((name, index) => {
        if (name?.includes("/")) T.view.lanes[index].mix.restore(name);
      });
      this.query = `?${query}`;
      document.querySelector("#take-link").click();
    }

    asked() {
      return { query: this.query };
    }

    told({ refusals }) {
      this.say(refusals);
    }

    // ---- what the visitor does --------------------------------------------------------------------------------------

    listen() {
      const on = (name, act) => this.at(name).addEventListener("click", act);
      on("page", () => this.page());
      on("file", () => this.file());
      on("copy", () => this.copy());
      on("link", (event) => event.target.select());
      this.menu.querySelectorAll("[data-picture]").forEach((button) => {
        button.addEventListener("click", () => this.picture(button.dataset.picture, button.dataset.format));
      });
      const chosen = this.menu.querySelector("[type=file]");
      chosen.addEventListener("change", () => {
        if (chosen.files[0]) this.read(chosen.files[0]);
        chosen.value = "";
      });
      this.drop(document.querySelector("#screen"));
    }

    drop(screen) {
      const carries = (event) => screen.dataset.screen === "race" && event.dataTransfer?.types.includes("Files");
      const over = (on) => screen.toggleAttribute("data-drop", on);
      screen.addEventListener("dragover", (event) => {
        if (!carries(event)) return;
        event.preventDefault();
        over(true);
      });
      screen.addEventListener("dragleave", (event) => screen.contains(event.relatedTarget) || over(false));
      screen.addEventListener("drop", (event) => {
        over(false);
        if (!carries(event)) return;
        event.preventDefault();
        this.read(event.dataTransfer.files[0]);
      });
    }

    // The page begins with what its address asks for, else with the first recorded race.
    begin(races) {
      const query = new URLSearchParams(location.search);
      if (LINKED.some((name) => query.has(name))) this.set(location.href);
      else if (races.length) {
        T.answered(this.server.recorded(races[0].name)).then(({ event }) => event && !T.view.run && T.showRecorded(JSON.parse(event)));
      }
    }
  };

  T.mountTake = function (root, races, server) {
    T.take = new T.Take(root, server);
    const opening = ({ name }) => T.take.ask(server.recorded(name));
    if (races.length) root.querySelector("[data-gallery]").append(T.galleryMenu("recorded", races, opening));
    const begin = () => {
      const there = T.view && document.querySelector("#take-link"); // other parts of the page may come later
      if (there) T.take.begin(races);
      else requestAnimationFrame(begin);
    };
    begin();
  };
})(window.TreeRace);
