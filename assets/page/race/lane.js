// One lane on the page: its text in bursts, its figures, its track, its card. Knows its own steps; is told the time to show.
window.TreeRace = window.TreeRace || {};

(function (T) {
  T.Lane = class extends T.Steps {
    constructor(root, index, parts, look, onPick) {
      super();
      this.root = root;
      this.card = new T.Card(root, index, parts);
      this.mix = new T.Mix(this.card, look, `#mix-${index} textarea`);
      this.at = (name) => root.querySelector(`[data-${name}]`);
      this.text = this.at("text");
      this.bursts = this.at("bursts");
      this.bursts.addEventListener("click", (event) => {
        const burst = event.target.closest("[data-index]");
        if (burst) onPick(Number(burst.dataset.index));
      });
      new ResizeObserver(() => this.toEnd()).observe(this.text);
      this.reset();
    }

    // What the menu names; without a system it is the visitor's own mix.
    choose(system) {
      if (system && this.mix.active) this.mix.restored = null;
      if (system) this.card.show(system);
      else if (!this.mix.active) this.mix.begin(this.chosen);
      this.mix.active = !system;
      this.chosen = system;
    }

    describe(system) {
      this.at("name").textContent = T.markedTitle(system);
      this.text.setAttribute("aria-label", `${system.title}: text`);
      this.text.dataset.idea = system.idea;
    }

    reset(prompt = "") {
      this.forget();
      this.drafts = false; // some step of it has a guess
      this.shown = 0; // steps on the page
      this.at("prompt").textContent = prompt;
      this.bursts.replaceChildren();
      this.text.classList.remove("scrolled");
      this.root.classList.remove("done");
      this.root.classList.toggle("idle", !prompt);
      this.text.classList.toggle("code", prompt.startsWith("# Python"));
      for (const name of ["count", "clock"]) this.at(name).textContent = "";
      for (const name of ["speed", "tau"]) this.at(name).textContent = "–";
      this.track(0, 0);
    }

    push(step) {
      super.push(step);
      this.drafts ||= step.parents.length > 1;
    }

    // Writes or takes back bursts until the page shows `count` steps. True if anything changed.
    show(count, animate) {
      if (count === this.shown) return false;
      while (this.shown > count) this.bursts.children[--this.shown].remove();
      const fresh = document.createDocumentFragment();
      while (this.shown < count) fresh.append(this.span(this.shown++, animate));
      this.bursts.append(fresh);
      return true;
    }

    // Scrolls to the newest burst. Makes the browser lay out the text, so it comes after everything else of a frame.
    toEnd() {
      this.text.scrollTop = this.text.scrollHeight;
      this.text.classList.toggle("scrolled", this.text.scrollTop > 2);
    }

    // The colour leaves out the leading space: at a line's end it would stand there without its word.
    span(index, animate) {
      const text = this.steps[index].pieces.join("");
      const burst = document.createElement("span");
      burst.className = "burst";
      burst.dataset.index = index;
      const ink = document.createElement("span");
      ink.className = animate ? "ink pop" : "ink";
      ink.textContent = text.trimStart();
      burst.append(text.slice(0, text.length - ink.textContent.length), ink);
      return burst;
    }

    mark(index) {
      this.bursts.querySelector(".current")?.classList.remove("current");
      const burst = this.bursts.children[index];
      if (burst) burst.classList.add("current");
    }

    // The figures after `count` steps; the clock is frozen at the lane's own finish.
    figures(count, time, total, rivalTokens) {
      const tokens = this.totals[count];
      const done = this.ended && count === this.steps.length;
      const elapsed = count ? this.steps[count - 1].t : 0;
      this.write("speed", count ? T.number(tokens / elapsed, 0) : "–");
      this.write("tau", count ? T.number(tokens / count, 2) : "–");
      this.write("count", `${String(tokens).padStart(String(total).length, "\u2007")} of ${total} tokens`);
      this.write("clock", `${T.number(done ? elapsed : time, 3)} s`);
      this.track(tokens / total, rivalTokens / total);
      this.root.classList.toggle("done", done);
    }

    // In every frame: what stays the same costs nothing.
    write(name, text) {
      const place = this.at(name);
      if (place.textContent !== text) place.textContent = text;
    }

    // Shares of the way: this lane's and its rival's.
    track(own, rival) {
      this.at("fill").style.width = `${100 * own}%`;
      this.at("rival").style.transform = `translateX(${100 * rival}%)`;
    }
  };
})(window.TreeRace);
