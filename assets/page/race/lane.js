// The lanes on the page: text in bursts, figures, track, card; and the thin third one, the chain with as many guesses, which takes its part
// out of a race's messages, so that all else knows two lanes. A lane knows its own steps; it is told the time to show.

TreeRace.lane = (() => {
  const { finder, make, write } = TreeRace.elements;
  const { Steps, retimed } = TreeRace.steps;
  const { SystemCard, SystemMix } = TreeRace.systemCard;
  const { markedTitle } = TreeRace.systemNames;

  const FIGURE_SPACE = "\u2007";
  const FENCE = "```"; // where code begins in a chat model's answer, which then stands in monospaced type as a whole
  const LONGEST_REST = 24; // letters of a word that are laid out before they are written
  const LANES = 3; // of a race that has a third, thin one
  const MIDDLE = 1; // its place

  // Steps and their figures: speed, tau, tokens and clock in words, and a bar.
  class TimedLane extends Steps {
    isRemote = false; // another server writes it

    /**
     * @param {HTMLElement} root
     * @param {(name: string) => any} at finds its elements
     */
    constructor(root, at) {
      super();
      this.root = root;
      this.at = at;
    }

    /**
     * @param {number} time on its clock
     * @param {number} total tokens of the whole way
     */
    showFigures(time, total) {
      const { tokens, done, speed, tau, clock } = this.figuresAt(time);
      write(this.at("speed"), speed);
      write(this.at("tau"), this.isRemote ? "–" : tau);
      write(this.at("count"), `${String(tokens).padStart(String(total).length, FIGURE_SPACE)} of ${total} tokens`);
      write(this.at("clock"), clock);
      this.fill(tokens / total);
      this.root.classList.toggle("done", done);
    }

    /** @param {number} share of the way; in every frame, so without a layout */
    fill(share) {
      this.at("fill").style.clipPath = `inset(0 ${100 - 100 * share}% 0 0 round 99px)`;
    }
  }

  class Lane extends TimedLane {
    /**
     * @param {HTMLElement} root
     * @param {number} index
     * @param {Parts} parts
     * @param {Look | undefined} look
     * @param {(step: number) => void} onPick told which burst was clicked
     */
    constructor(root, index, parts, look, onPick) {
      super(root, finder(root));
      this.card = new SystemCard(root, index, parts, look);
      this.mix = new SystemMix(this.card, look, `#mix-${index} textarea`);
      /** @type {System | Record<string, string> | undefined} what the menu names; undefined for a mix */
      this.chosen = undefined;
      this.drafts = false; // some step of it has a guess
      this.chat = false; // a chat model answers in it
      this.tail = ""; // the last letters written, of which a mark of code may be the beginning
      this.shown = 0; // steps on the page
      /** @type {HTMLElement} */
      this.text = this.at("text");
      /** @type {HTMLElement} */
      this.bursts = this.at("bursts");
      /** @type {HTMLElement} unseen: the rest of a word of which the first letters are shown, so that they stand in the right line */
      this.rest = this.at("rest");
      this.bursts.addEventListener("click", (event) => {
        const burst = /** @type {HTMLElement} */ (event.target).closest("[data-index]");
        if (burst instanceof HTMLElement) onPick(Number(burst.dataset.index));
      });
      new ResizeObserver(() => this.toEnd()).observe(this.text);
      this.reset();
    }

    /** @param {System | undefined} system what the menu names; undefined for the visitor's own mix */
    choose(system) {
      if (system && this.mix.active) this.mix.restored = null;
      if (system) this.card.show(system);
      else if (!this.mix.active) this.mix.begin(this.chosen);
      this.mix.active = !system;
      this.chosen = system;
    }

    /** @param {{ title: string, idea: string, guarantee: Guarantee }} system */
    describe(system) {
      this.isRemote = system.guarantee === "text";
      this.at("name").textContent = markedTitle(system);
      this.text.setAttribute("aria-label", `${system.title}: text`);
      this.text.dataset.idea = system.idea;
    }

    /**
     * @param {string} prompt
     * @param {boolean} chat the prompt was a message, so what follows is a reply and begins below it
     */
    reset(prompt = "", chat = false) {
      this.forget();
      this.drafts = false;
      this.shown = 0;
      this.at("prompt").textContent = chat ? `${prompt}\n\n` : prompt;
      this.bursts.replaceChildren();
      this.rest.textContent = "";
      this.text.classList.remove("scrolled");
      this.root.classList.remove("done");
      this.root.classList.toggle("idle", !prompt);
      this.chat = chat;
      this.tail = "";
      this.text.classList.toggle("code", prompt.startsWith("# Python"));
      for (const name of ["count", "clock"]) this.at(name).textContent = "";
      for (const name of ["speed", "tau"]) this.at(name).textContent = "–";
      this.fill(0);
      this.placeRival(0);
    }

    /**
     * @override
     * @param {Step} step
     */
    push(step) {
      super.push(step);
      this.drafts ||= step.parents.length > 1;
      const written = this.tail + step.pieces.join("");
      if (this.chat && written.includes(FENCE)) this.text.classList.add("code");
      this.tail = written.slice(1 - FENCE.length);
    }

    /**
     * Writes or takes back bursts until the page shows `count` steps. True if anything changed.
     * @param {number} count
     * @param {boolean} animate
     */
    show(count, animate) {
      if (count === this.shown) return false;
      while (this.shown > count) this.bursts.children[--this.shown].remove();
      const fresh = document.createDocumentFragment();
      while (this.shown < count) fresh.append(this.span(this.shown++, animate));
      this.bursts.append(fresh);
      const ahead = this.steps.slice(count, count + LONGEST_REST).flatMap(({ pieces }) => pieces);
      this.rest.textContent = ahead.join("").slice(0, LONGEST_REST).replace(/\s.*/s, ""); // some scripts have no white space
      return true;
    }

    // Scrolls to the newest burst. Makes the browser lay out the text, so it comes after everything else of a frame.
    toEnd() {
      this.text.scrollTop = this.text.scrollHeight;
      this.text.classList.toggle("scrolled", this.text.scrollTop > 2);
    }

    /**
     * The colour leaves out the leading space: at a line's end it would stand there without its word. What is said of a remote server
     * stands behind the text.
     * @param {number} index
     * @param {boolean} animate
     */
    span(index, animate) {
      const { parents, pieces, bonus_text: note } = this.steps[index];
      const text = pieces.join("");
      const ink = make("span", animate ? "ink pop" : "ink", text.trimStart());
      const burst = make("span", "burst", text.slice(0, text.length - text.trimStart().length), ink);
      if (!parents.length && note) burst.append(make("span", "note", note));
      burst.dataset.index = String(index);
      return burst;
    }

    // The burst that is looked at; its tokens can be pointed at one by one.
    /** @param {number} index */
    mark(index) {
      const [before, now] = [this.bursts.querySelector(".current"), this.bursts.children[index]];
      if (before === now) return;
      before?.classList.remove("current");
      const old = before?.querySelector(".ink");
      old?.replaceChildren(old.textContent ?? "");
      now?.classList.add("current");
      const { pieces } = this.steps[index] ?? { pieces: [] };
      const shown = pieces.map((piece, at) => {
        const leads = pieces.slice(0, at).every((each) => !each.trim()); // the colour leaves out the leading space
        const part = make("span", "", leads ? piece.trimStart() : piece);
        part.dataset.piece = String(at);
        return part;
      });
      now?.querySelector(".ink")?.replaceChildren(...shown);
    }

    /** @param {number} piece of the burst that is looked at; -1 for none */
    light(piece) {
      this.bursts.querySelector(".lit")?.classList.remove("lit");
      this.bursts.querySelector(`.current [data-piece="${piece}"]`)?.classList.add("lit");
    }

    /** @param {number} share of the way that the other lane has gone */
    placeRival(share) {
      this.at("rival").style.transform = `translateX(${100 * share}%)`;
    }
  }

  /** @type {<Each>(each: Each[]) => Each[]} without the third lane's */
  const outer = (each) => each.filter((_, lane) => lane !== MIDDLE);

  class ThirdLane extends TimedLane {
    /** @type {RacedSystem | null} null in a race of two lanes */
    system = null;

    /** @param {HTMLElement} root */
    constructor(root) {
      super(finder(root)("third"), finder(root, "third-"));
    }

    /**
     * The message without its lane.
     * @param {RaceMessage} message
     * @returns {RaceMessage}
     */
    taken(message) {
      if (message.start) this.begin(message.systems.length === LANES ? message.systems[MIDDLE] : null);
      if (!this.system) return message;
      const rest = { ...message };
      for (const [, step] of (message.steps ?? []).filter(([lane]) => lane === MIDDLE)) this.push(step);
      rest.steps = message.steps?.filter(([lane]) => lane !== MIDDLE).map(([lane, step]) => [lane && 1, step]);
      if (message.systems) rest.systems = outer(message.systems);
      if (message.lanes) rest.lanes = outer(message.lanes);
      if (message.times) {
        retimed([this], { times: [message.times[MIDDLE]] });
        rest.times = outer(message.times);
      }
      return rest;
    }

    /** @param {RacedSystem | null} system */
    begin(system) {
      this.forget();
      this.system = system;
      this.root.hidden = !system;
      if (!system) return;
      this.at("name").textContent = system.title;
      this.showFigures(0, 1);
    }

    // A race is asked for. One without a third lane has none from the press on, so that nothing jumps when it begins.
    /** @param {boolean} wanted whether it has one, or no race comes */
    expect(wanted) {
      this.root.hidden = !wanted || !this.system;
    }
  }

  return { Lane, ThirdLane };
})();
