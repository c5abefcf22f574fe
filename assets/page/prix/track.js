// One track of the grand prix: place, name, course, figures. Knows its own steps; is told the time and its place.
window.TreeRace = window.TreeRace || {};

(function (T) {
  T.Runner = class extends T.Steps {
    // `system`: {title, idea, guarantee}.
    constructor(template, system) {
      super();
      this.root = template.content.firstElementChild.cloneNode(true);
      this.at = (name) => this.root.querySelector(`[data-of=${name}]`);
      this.root.dataset.guarantee = system.guarantee;
      this.at("name").textContent = system.title;
      this.at("mark").textContent = T.needsMark(system) ? "lossy" : "";
      this.root.title = system.idea;
      this.show(0, 1, 0);
    }

    // Tokens a second up to this time, its own finish at most.
    speedAt(time) {
      const count = this.stepsAt(time);
      const until = this.ended && count === this.steps.length ? this.lastTime : time;
      return count ? this.totals[count] / until : 0;
    }

    // What stands on the track at this time, with as many tokens as `pacer`, the baseline, has then.
    show(time, total, pacer) {
      const count = this.stepsAt(time);
      const tokens = this.totals[count];
      const done = this.ended && count === this.steps.length;
      const elapsed = count ? this.steps[count - 1].t : 0;
      this.at("run").style.width = `${(100 * tokens) / total}%`;
      this.at("pacer").style.left = `${(100 * pacer) / total}%`;
      this.at("speed").textContent = count ? T.number(tokens / elapsed, 0) : "–";
      this.at("tau").textContent = count ? T.number(tokens / count, 2) : "–";
      this.at("clock").textContent = count ? `${done ? "⚑ " : ""}${T.number(done ? elapsed : time, 3)} s` : "–";
      this.root.classList.toggle("done", done);
    }

    place(place) {
      this.at("place").textContent = place || "–";
      this.root.classList.toggle("leads", place === 1);
    }
  };
})(window.TreeRace);
