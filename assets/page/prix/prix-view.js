// The grand prix on the page: feeds the tracks, has them played on the lanes' own clocks, ranks them. Knows the events of its
// wire; asks the server for nothing.

TreeRace.prixView = (() => {
  const { linkTo, read, shownScreen, write } = TreeRace.screens;
  const { copyButton } = TreeRace.downloads;
  const { finder, isCalm } = TreeRace.elements;
  const { Field } = TreeRace.field;
  const { Track, placesOf, winnerWords } = TreeRace.track;
  const { Player, Speeds } = TreeRace.player;
  const { showExample } = TreeRace.recordedRace;
  const { ResultTable } = TreeRace.resultTable;
  const { horizon, retimed } = TreeRace.steps;
  const { runsOf } = TreeRace.raceStrip;
  const { Run } = TreeRace.runs;

  const INVITATION = "Choose a field and press Race.";
  /** @type {Record<RunEnd, [words: string, kind?: string]>} */
  const ENDS = {
    refused: ["Nothing was raced."],
    withdrawn: [INVITATION],
    failed: ["The race ended early.", "early"],
    stopped: ["Stopped: all lanes are free again. Press Race to start anew."],
    lost: ["Part of the race was lost on its way here. Press Race again.", "early"],
  };
  const CALM_MS = 500; // between two pictures where the visitor wants little motion

  class PrixView {
    /** @type {RaceMessage | null} the last event */
    end = null;
    /** @type {RaceMessage | null} the first event */
    start = null;
    /** @type {RacedSystem[]} */
    systems = [];
    /** @type {InstanceType<typeof Track>[]} */
    tracks = [];
    begun = false; // with a recorded race
    total = 1; // tokens of the whole way
    drawnAt = -Infinity;

    /**
     * @param {HTMLElement} element
     * @param {FieldAbout} about
     * @param {PrixServer} server
     */
    constructor(element, about, server) {
      const root = /** @type {HTMLElement} */ (element.querySelector("[data-prix]"));
      this.server = server;
      this.root = root;
      this.about = about;
      this.at = finder(root, "prix-");
      this.speeds = new Speeds(this.at("rates"), "prix-rate", this.at("pace"));
      this.player = new Player(this.speeds, this);
      this.result = new ResultTable(root, (lane) => this.open(lane));
      this.field = new Field(root, about, (names) => {
        this.line(names.map((name) => about.systems[name]));
        this.result.clear();
        this.say([INVITATION, this.field?.leftOut].filter(Boolean).join(" "));
      });
      const named = read("systems")?.split(",") ?? [];
      if (named.length >= about.least && named.length <= about.most && named.every((name) => name in about.systems))
        this.field.own([about.baseline, ...named.filter((name) => name !== about.baseline)]);
      this.speeds.say();
      this.run = new Run("prix", this);
      this.at("again").addEventListener("click", () => this.again());
      window.addEventListener("resize", () => this.beginOnce()); // the screen may be shown
      copyButton(this.at("link"), () => this.link());
    }

    // The screen begins with a recorded race, as it ended.
    async beginOnce() {
      if (this.begun || shownScreen() !== "prix") return;
      this.begun = true;
      if (read("systems")) return; // a link has its own field
      const words = await showExample(this.run, this.server.load_recorded_run, "prix");
      if (!words) return;
      this.player.skip();
      const said = [`An example, ${words}.`, this.at("words").textContent, this.field.leftOut];
      this.say(said.filter(Boolean).join(" "), "won");
    }

    /**
     * @param {string} words
     * @param {string} kind
     */
    say(words, kind = "") {
      this.at("words").textContent = words;
      this.at("words").dataset.kind = kind;
    }

    /** @param {{ title: string, idea: string, guarantee: Guarantee }[]} systems that get tracks, at the start */
    line(systems) {
      this.end = null;
      this.drawnAt = -Infinity;
      this.player.reset();
      this.tracks = systems.map((system) => new Track(this.at("template"), system));
      this.at("tracks").replaceChildren(...this.tracks.map((track) => track.root));
      for (const track of this.tracks) track.place(0);
      this.state("idle");
    }

    /** @param {"idle" | "racing" | "done"} name */
    state(name) {
      this.root.dataset.state = name;
      this.at("again").hidden = name !== "done" || !this.end;
      this.field?.lock(name === "racing");
    }

    /** @param {Settings} form; nothing is left of the race before */
    order({ prompt, temperature, max_new_tokens, seed }) {
      this.field.open(false);
      this.field.settle();
      this.line(this.field.names.map((name) => this.about.systems[name]));
      this.result.clear();
      write({ screen: "prix", systems: this.field.names.join(",") });
      return { systems: this.field.names, prompt, temperature, max_new_tokens, seed };
    }

    /** @param {string} place where a race that has begun stands among others, "" when the device is all its own */
    stands(place) {
      if (!this.end) this.say(place);
    }

    /** @param {RunEnd} how */
    over(how) {
      if (this.end && this.player.playing) {
        if (how !== "failed") this.player.skip();
        return;
      }
      this.player.pause();
      if (this.root.dataset.state === "racing") this.state("done");
      if (this.end) this.verdict();
      else this.say(...ENDS[how]);
    }

    // Stop was pressed after the race.
    rest() {
      if (this.player.playing) this.player.skip();
    }

    /** @param {RaceMessage} message */
    feed(message) {
      if (message.start) this.begin(message);
      for (const [lane, step] of message.steps || []) this.tracks[lane].push(step);
      if (message.again || message.end) this.end = retimed(this.tracks, message);
      const tokens = this.tracks.filter((track) => track.ended).map((track) => track.tokens);
      if (tokens.length === this.tracks.length) this.total = Math.max(1, ...tokens);
      if (message.end && this.root.dataset.state === "done") this.ended();
    }

    /** @param {RaceMessage} message */
    begin(message) {
      this.line(message.systems);
      this.start = message;
      this.systems = message.systems;
      this.total = message.systems[0].trace.max_new_tokens;
      this.result.clear();
      this.speeds.suggest(message.slowdown);
      this.say("");
      this.state("racing");
      this.player.play();
    }

    get horizon() {
      return horizon(this.tracks);
    }

    get isOver() {
      return this.end !== null;
    }

    // The player plays or pauses: nothing here says so.
    changed() {}

    /**
     * @param {boolean} animate
     * @param {number} now
     */
    show(animate, now) {
      if (animate && isCalm() && !this.player.atEnd && now - this.drawnAt < CALM_MS) return;
      this.draw(now);
    }

    /** @param {number} now */
    draw(now) {
      this.drawnAt = now;
      const { tracks, total } = this;
      const { time } = this.player;
      const pacer = tracks[0].totals[tracks[0].stepsAt(time)];
      const places = placesOf(tracks.map((track) => track.speedAt(time)));
      for (const [index, track] of tracks.entries()) {
        track.show(time, total, pacer);
        track.place(places[index]);
      }
    }

    ended() {
      this.player.pause();
      this.state("done");
      if (!this.end) return;
      this.result.show(this.systems, this.end);
      const places = placesOf(this.end.lanes.map((lane) => lane.speedup)); // by the headline's ratios
      for (const [index, track] of this.tracks.entries()) track.place(places[index]);
      this.verdict();
    }

    /** @param {number} lane that becomes a race of two with the baseline, with every step, to save, replay and share */
    open(lane) {
      const { end, start } = this;
      if (!start || !end) return;
      const two = [0, lane];
      const { speedup, least, most, identical } = end.lanes[lane];
      const steps = two.flatMap((at, side) => this.tracks[at].steps.map((step) => [side, step]));
      const event = {
        ...start,
        ...end,
        run: `${start.run}-${lane}`,
        seq: 1,
        start: true,
        end: true,
        again: false,
        times: [],
        recorded: start.recorded ?? "",
        systems: two.map((at) => this.systems[at]),
        lanes: two.map((at) => end.lanes[at]),
        runs: end.runs.map((/** @type {number[]} */ run) => two.map((at) => run[at])),
        steps: steps.sort(([, one], [, other]) => /** @type {Step} */ (one).t - /** @type {Step} */ (other).t),
        speedup,
        least,
        most,
        identical,
        divergence: identical === true ? null : end.divergence,
      };
      TreeRace.take.open(/** @type {any} */ (event));
    }

    // The address of this field with the settings of its race, which begins by itself.
    link() {
      const { prompt, temperature, seed, max_new_tokens: tokens } = this.systems[0].trace;
      const systems = this.systems.map(({ name }) => name).join(",");
      return linkTo({ screen: "prix", systems, temperature, tokens, seed, go: 1, prompt });
    }

    again() {
      this.say("");
      this.state("racing");
      this.player.again();
    }

    // Who won, by how much, and whether the texts are the same.
    verdict() {
      if (!this.end) return;
      const { lanes } = this.end;
      const speeds = lanes.map((lane) => lane.speedup);
      const titles = this.systems.map((system) => system.title);
      const wins = winnerWords(titles, lanes);
      const same = lanes.filter((lane, index) => index && lane.identical === true).length;
      const wrong = lanes.some((lane) => lane.identical === false);
      const others = lanes.length - 1;
      const texts = same === others ? "All wrote the same text." : `${same} of ${others} wrote the same text.`;
      const runs = runsOf({ ...this.end, ...lanes[speeds.indexOf(Math.max(...speeds))] });
      const size = TreeRace.pairs.titled(this.systems[0].trace.pair)?.size;
      const model = size ? `Raced on the ${size} model.` : "";
      this.say([wins, runs, texts, model].filter(Boolean).join(" "), wrong ? "different" : "won");
    }
  }

  /** @param {ConstructorParameters<typeof PrixView>} given */
  function mountPrix(...given) {
    TreeRace.prix = new PrixView(...given);
  }

  return { PrixView, mountPrix };
})();
