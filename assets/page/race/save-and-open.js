// Saves the race that is shown, and opens others: recorded ones and files. Knows the race view from outside, the form, and the server's
// answers; draws nothing itself.

TreeRace.saveAndOpen = (() => {
  const { FORM, comeBackTo, followStep, goToScreen, linkTo, screenRoot, shownScreen } = TreeRace.screens;
  const { copyButton, saveFile, savePicture } = TreeRace.downloads;
  const { findAll, finder, make, takeFiles, whenThere } = TreeRace.elements;
  const { press, pressRace } = TreeRace.form;
  const { Keepsake, kept, raceFile, raceLink, raceName } = TreeRace.raceFile;
  const { asNumber } = TreeRace.numbers;
  const { galleryMenu, popover } = TreeRace.popover;
  const { showRecorded } = TreeRace.recordedRace;
  const { ServedTraceView } = TreeRace.servedTrace;
  const { drawTree } = TreeRace.treePlot;
  const { Questions, answered } = TreeRace.presence;
  const { onRun } = TreeRace.runs;

  const LARGEST = 20_000_000; // bytes of a race file
  const NOTICE_MS = 15_000;
  /** @type {Record<string, [number, number]>} */
  const PICTURE = { tree: [1000, 620], mask: [760, 620] };

  /** @param {{ systems: RacedSystem[] }} race */
  const linkOf = (race) => raceLink(race, TreeRace.pairs.titled(race.systems[1].trace.pair)?.name);

  class SaveAndOpen {
    /**
     * @param {HTMLElement} root
     * @param {RaceEntry[]} races that were recorded
     * @param {RaceServer} server
     */
    constructor(root, races, server) {
      this.races = races;
      this.menu = finder(root)("take");
      this.servedTemplate = finder(root)("served-template");
      this.at = finder(this.menu);
      this.server = server;
      this.questions = new Questions(); // what a file or a recorded race holds
      this.goes = false; // whether the race begins when the form has them
      this.query = ""; // settings that the form is to take, as a link has them
      this.timer = 0;
      this.notice = finder(root)("notice");
      this.notice.querySelector("button").addEventListener("click", () => this.say(""));
      const [button, panel] = [this.menu.querySelector(".tool"), this.menu.querySelector(".panel")];
      this.show = popover(button);
      button.addEventListener("click", () => this.refresh());
      onRun("race", () => panel.hidden || this.refresh());
      this.listen();
    }

    /** @param {string} sentence */
    say(sentence) {
      this.notice.hidden = !sentence;
      this.notice.firstElementChild.textContent = sentence;
      clearTimeout(this.timer);
      if (sentence) this.timer = setTimeout(() => this.say(""), NOTICE_MS);
    }

    // The view, or null while it shows no race to save.
    get race() {
      const { view } = TreeRace;
      return view.run && !view.isLive && view.lanes.every((lane) => lane.steps.length) ? view : null;
    }

    // What there is to save, and a link that comes back to the step that is shown.
    refresh() {
      const { race } = this;
      const { isLive, step } = TreeRace.view;
      const link = race ? linkOf(race) : "";
      for (const button of this.menu.querySelectorAll(".take button")) button.disabled = !race;
      this.at("link").value = link && step >= 0 ? `${link}&step=${step + 1}` : link;
      this.at("link").disabled = this.at("copy").disabled = !link;
      this.at("link").placeholder = race ? "The prompt is too long for a link." : "";
      const none = isLive ? "The race can be saved when it has ended or was stopped." : "No race is shown yet.";
      const titles = race?.systems.map((system) => system.title).join(" and ");
      this.at("shown").textContent = race ? `${titles}${race.result ? "" : ", as far as it came"}` : none;
    }

    async page() {
      const { race } = this;
      if (!race) return;
      const name = raceName(race); // another may be shown by the time of the answer
      const answer = await answered(this.server.replay_page(raceFile(race)));
      if (answer.refused) return this.say(answer.refused);
      saveFile(`${name}.html`, "text/html", answer.html);
    }

    file() {
      const { race } = this;
      if (race) saveFile(`${raceName(race)}.json`, "application/json", raceFile(race));
    }

    /**
     * Drawn anew at a size of its own, on the lane's surface: what is on the page may be small, or hidden.
     * @param {string} kind
     * @param {string} format
     */
    async picture(kind, format) {
      const { race } = this;
      if (!race) return;
      const step = race.steps[Math.max(0, race.step)];
      if (!step.parents.length)
        return this.say("Another server wrote this lane, so there is no tree. Choose the other lane.");
      const [width, height] = PICTURE[kind];
      const canvas = make("div", "canvas offstage");
      Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
      race.at("plots").append(canvas);
      if (kind === "tree") drawTree(canvas, step);
      else race.stepView.drawMask(step, canvas);
      await savePicture(canvas, `${raceName(race)}-${kind}-step-${step.index + 1}.${format}`, format);
      canvas.remove();
    }

    // Shows a race that is over, and sets the form to what it was run with, so that Race runs it again.
    /** @param {RaceMessage} event */
    open(event) {
      goToScreen("race");
      showRecorded(event);
      this.say("");
      const [left, right] = event.systems;
      if (this.canName([left.name, right.name])) this.set(linkOf({ systems: [left, right] }));
    }

    // Whether the menus can say all of them.
    /** @param {string[]} names */
    canName(names) {
      const { systems, parts } = TreeRace.view.about;
      const kinds = Object.values(parts);
      /** @param {string} name */
      const isMix = (name) => name.split("/").every((part, at) => kinds[at] && part in kinds[at]);
      return names.every((name) => systems[name] || isMix(name));
    }

    /** @param {Answer<{ event: string, served?: ServedTrace }>} answer */
    async ask(answer) {
      const found = await this.questions.last(answer);
      if (!found) return;
      const { refused, event, served } = found;
      if (refused) return this.say(refused);
      if (served) return new ServedTraceView(this.servedTemplate, served);
      if (TreeRace.view.isLive) return this.say("A race is running. Stop it first, then open another.");
      this.open(JSON.parse(event));
    }

    /** @param {File} file */
    async read(file) {
      this.show(false);
      this.questions.drop();
      if (file.size > LARGEST)
        return this.say(`${file.name} has ${asNumber(file.size / 1e6, 1)} MB; at most 20 MB are read.`);
      await this.ask(file.text().then((text) => this.server.opened(text)));
    }

    /** @param {string} link whose settings the form takes; the server checks them */
    set(link) {
      if (!link) return;
      const query = new URL(link).searchParams;
      for (const [index, side] of ["left", "right"].entries()) {
        const name = query.get(side);
        if (name?.includes("/")) TreeRace.view.lanes[index].mix.restore(name);
      }
      TreeRace.pairs.choose(query.get("pair") ?? undefined);
      if (TreeRace.pairs.name) query.set("pair", TreeRace.pairs.name);
      this.query = `?${query}`;
      press("#take-link");
    }

    // What the form is to take, for the server.
    asked() {
      return { query: this.query };
    }

    /** @param {{ refusals: string }} answer */
    told({ refusals }) {
      this.say(refusals);
      if (this.goes && !refusals) shownScreen() === "prix" ? TreeRace.prix.run.start() : pressRace();
      this.goes = false;
    }

    /** @param {string} name of the right lane's system; all else stays */
    raceWith(name) {
      this.goes = true;
      this.set(linkTo({ right: name }));
    }

    // The form takes what the page's address sets. The race begins by itself where it says `go=1`, or names a step to come back to.
    /** @param {URLSearchParams} query */
    follow(query) {
      this.goes = query.get("go") === "1" || query.has("step");
      this.set(location.href);
      if (query.has("step")) comeBackTo(TreeRace.view, Number(query.get("step")) - 1);
    }

    listen() {
      this.at("page").addEventListener("click", () => this.page());
      this.at("file").addEventListener("click", () => this.file());
      copyButton(this.at("copy"), () => this.at("link").value);
      this.at("link").addEventListener("click", () => this.at("link").select());
      for (const button of findAll(this.menu, "[data-picture]"))
        button.addEventListener("click", () => this.picture(button.dataset.picture, button.dataset.format));
      const screen = screenRoot();
      takeFiles(
        screen,
        this.menu.querySelector("[type=file]"),
        (file) => this.read(file),
        (isOver) => screen.toggleAttribute("data-drop", isOver),
        ({ dataTransfer }) => shownScreen() === "race" && dataTransfer?.types.includes("Files"),
      );
    }

    /** @param {{ query: string, messages: RaceMessage[] }} before the page was loaded again */
    restore({ query, messages }) {
      this.set(linkTo(Object.fromEntries(new URLSearchParams(query))));
      for (const message of messages) TreeRace.view.race.show(message);
      if (!messages.length) return;
      if (!TreeRace.view.result) TreeRace.view.race.fail();
      TreeRace.view.skip();
    }

    /**
     * Shows the recorded race whose right lane has that title, where it is still wanted once it has come.
     * @param {string} title
     * @param {() => boolean} isWanted
     */
    async example(title, isWanted) {
      const entry = this.races.find((each) => each.title.startsWith(`${title}, temperature `)); // not a longer title
      if (!entry) return;
      const { event } = await answered(this.server.serialise_recorded_race(entry.name));
      if (event && isWanted()) showRecorded(JSON.parse(event));
    }

    // The page begins with what was there before it was loaded again, with what its address asks for, or with a recorded race, where the
    // server has one for its pair.
    /** @param {RaceEntry[]} races */
    async begin(races) {
      const before = kept();
      if (before) return this.restore(before);
      const query = new URLSearchParams(location.search);
      if (FORM.some((name) => query.has(name))) this.follow(query);
      if (!races.length) return;
      const example = races.find(({ prompt }) => prompt === query.get("prompt")) ?? races[0];
      const { event } = await answered(this.server.opening(example.name));
      if (event && !TreeRace.view.run && !this.goes && !TreeRace.view.isLive) showRecorded(JSON.parse(event));
    }
  }

  /**
   * @param {HTMLElement} root
   * @param {RaceEntry[]} races
   * @param {RaceServer} server
   */
  function mountSaveAndOpen(root, races, server) {
    const take = new SaveAndOpen(root, races, server);
    TreeRace.take = take;
    if (races.length) {
      const menu = galleryMenu("recorded", races, ({ name }) => take.ask(server.serialise_recorded_race(name)));
      finder(root)("gallery").append(menu);
    }
    whenThere(
      () => TreeRace.view && document.querySelector("#take-link"),
      () => {
        new Keepsake();
        followStep(TreeRace.view);
        take.begin(races);
      },
    );
  }

  return { SaveAndOpen, mountSaveAndOpen };
})();
