// What a lane did, up to any time on its own clock. Knows steps as the wire sends them; nothing of the page.
window.TreeRace = window.TreeRace || {};

(function (T) {
  T.Steps = class {
    constructor() {
      this.forget();
    }

    forget() {
      this.steps = [];
      this.totals = [0]; // totals[k]: tokens after k steps
    }

    push(step) {
      this.steps.push(step);
      this.totals.push(this.totals[this.steps.length - 1] + step.burst.length);
    }

    get ended() {
      return this.steps.length > 0 && this.steps[this.steps.length - 1].end !== "";
    }

    get lastTime() {
      return this.steps.length ? this.steps[this.steps.length - 1].t : 0;
    }

    get tokens() {
      return this.totals[this.totals.length - 1];
    }

    // How many steps the lane had done at this time.
    stepsAt(time) {
      let [low, high] = [0, this.steps.length];
      while (low < high) {
        const middle = (low + high) >> 1;
        if (this.steps[middle].t <= time + 1e-9) low = middle + 1;
        else high = middle;
      }
      return low;
    }
  };

  // How far the clocks may run: no lane is shown waiting for data that is still on its way.
  T.horizon = function (lanes) {
    const open = lanes.filter((lane) => !lane.ended);
    const times = (open.length ? open : lanes).map((lane) => lane.lastTime);
    return open.length ? Math.min(...times) : Math.max(...times);
  };
})(window.TreeRace);
