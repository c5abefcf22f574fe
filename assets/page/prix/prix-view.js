// The grand prix on the page: feeds the tracks, plays them on the lanes' own clocks, ranks them. Knows the events of its
// wire; asks the server for nothing.
window.TreeRace = window.TreeRace || {};

(function (T) {
  const INVITATION = "Choose a field and press Race.";
  const CALM_MS = 500; // between two pictures where the visitor wants little motion
  const calm = window.matchMedia("(prefers-reduced-motion: reduce)");

  T.Prix = class {
    constructor(root, about) {
      this.root = root;
      this.about = about;
      this.at = (name) => root.querySelector(`[data-prix-${name}]`);
      this.pace = new T.Pace(this.at("rates"), "prix-rate", this.at("pace"));
      this.result = new T.PrixResult(root);
      this.clear();
      this.field = new T.Field(root, about, (names) => {
        this.line(names.map((name) => about.systems[name]));
        this.say(INVITATION);
      });
      this.pace.say();
      this.listen();
      requestAnimationFrame((now) => this.frame(now));
    }

    clear() {
      this.run = this.end = null;
      this.runners = [];
      this.time = 0; // seconds on the lanes' clocks
      this.drawnAt = -Infinity;
      this.playing = false;
    }

    say(words, kind = "") {
      this.at("words").textContent = words;
      this.at("words").dataset.kind = kind;
    }

    // A track for each of these systems, at the start.
    line(systems) {
      this.clear();
      this.stopped = null;
      this.runners = systems.map((system) => new T.Runner(this.at("template"), system));
      this.at("tracks").replaceChildren(...this.runners.map((runner) => runner.root));
      this.runners.forEach((runner) => runner.place(0));
      this.state("idle");
    }

    state(name) {
      this.root.dataset.state = name;
      this.at("again").hidden = name !== "done" || !this.end;
      this.field?.lock(name === "racing");
    }

    // ---- what arrives ---------------------------------------------------------------------------------------------

    // What Race sends: the names of those that race next.
    pending() {
      this.say("Warming up every system …");
      this.field.open(false);
      return { systems: this.field.names.join(" ") };
    }

    failed() {
      if (this.end) this.verdict();
      else this.say("Nothing was raced.");
    }

    stop() {
      if (this.end) {
        if (this.playing) this.skip();
        return;
      }
      this.stopped = this.run;
      this.playing = false;
      this.state("done");
      this.say(this.run ? "Stopped: all lanes are free again. Press Race to start anew." : INVITATION);
    }

    feed(message) {
      if (message.start) this.begin(message);
      if (message.run !== this.run || message.run === this.stopped) return;
      if (message.lost) return this.broken();
      for (const [lane, step] of message.steps || []) this.runners[lane].push(step);
      if (message.end) this.end = message;
      const tokens = this.runners.filter((runner) => runner.ended).map((runner) => runner.tokens);
      if (tokens.length === this.runners.length) this.total = Math.max(1, ...tokens);
    }

    broken() {
      this.stopped = this.run;
      this.playing = false;
      this.state("done");
      this.say("Part of the race was lost on its way here. Press Race again.", "different");
    }

    begin(message) {
      this.line(message.systems);
      this.run = message.run;
      this.systems = message.systems;
      this.total = message.systems[0].trace.max_new_tokens;
      this.result.clear();
      this.pace.suggest(message.slowdown);
      this.say("");
      this.playing = true;
      this.state("racing");
    }

    // ---- playback -------------------------------------------------------------------------------------------------

    frame(now) {
      const passed = this.pace.passed(now);
      if (this.playing) {
        const horizon = T.horizon(this.runners);
        this.time = Math.min(horizon, this.time + passed);
        const over = this.end !== null && this.time >= horizon - 1e-9;
        if (over || !calm.matches || now - this.drawnAt >= CALM_MS) this.draw(now);
        if (over) this.finish();
      }
      requestAnimationFrame((next) => this.frame(next));
    }

    draw(now) {
      this.drawnAt = now;
      const { time, runners } = this;
      const pacer = runners[0].totals[runners[0].stepsAt(time)];
      const places = T.places(runners.map((runner) => runner.speedAt(time)));
      runners.forEach((runner, index) => {
        runner.show(time, this.total, pacer);
        runner.place(places[index]);
      });
    }

    finish() {
      this.playing = false;
      this.state("done");
      this.result.show(this.systems, this.end.lanes);
      this.verdict();
    }

    // To the end of a race that is over but still played.
    skip() {
      this.time = T.horizon(this.runners);
      this.draw(performance.now());
      this.finish();
    }

    again() {
      this.time = 0;
      this.playing = true;
      this.say("");
      this.state("racing");
    }

    // Who won, by how much, and whether the texts are the same.
    verdict() {
      const { lanes } = this.end;
      const places = T.places(lanes.map((lane) => lane.speedup));
      const first = places.indexOf(1);
      const same = lanes.filter((lane, index) => index && lane.identical === true).length;
      const wins = first ? this.praise(first) : "Plain decoding was the fastest.";
      const wrong = lanes.some((lane) => lane.identical === false);
      const others = lanes.length - 1;
      const texts = same === others ? "All wrote the same text." : `${same} of ${others} wrote the same text.`;
      this.say(`${wins} ${texts}`, wrong ? "different" : "won");
    }

    // What is said of the fastest, which is no victory where the text is another one.
    praise(index) {
      const { speedup, identical } = this.end.lanes[index];
      const [title, ratio] = [this.systems[index].title, `${T.number(speedup, 1)}×`];
      if (identical === "lossy") return `${title} is first with ${ratio}, but lossy.`;
      if (identical === false) return `${title} is first with ${ratio}, but its text is wrong.`;
      return `${title} wins: ${ratio} plain decoding.`;
    }

    listen() {
      window.addEventListener("prix", (event) => this.feed(event.detail));
      this.at("again").addEventListener("click", () => this.again());
    }
  };

  // The place of each by its speed, the fastest first; 0 for those that have none yet. Equals share a place.
  T.places = (speeds) => speeds.map((speed) => (speed ? 1 + speeds.filter((other) => other > speed).length : 0));

  T.mountPrix = function (element, about) {
    T.prix = new T.Prix(element.querySelector("[data-prix]"), about);
  };
})(window.TreeRace);
