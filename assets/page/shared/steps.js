// What a lane did, up to any time on its own clock. Knows steps as the wire sends them; nothing of the page.

TreeRace.steps = (() => {
  const { asNumber } = TreeRace.numbers;

  const LEEWAY = 1e-9; // seconds: a time that was read off a step counts as reached

  class Steps {
    /** @type {Step[]} */
    steps = [];
    totals = [0]; // totals[k]: tokens after k steps

    forget() {
      this.steps = [];
      this.totals = [0];
    }

    /** @param {Step} step */
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

    /** @param {number} time seconds on the lane's clock */
    stepsAt(time) {
      return this.steps.findLastIndex((step) => step.t <= time + LEEWAY) + 1;
    }

    // What a lane has written at this time, and its figures in words; its clock is frozen at its own finish.
    /** @param {number} time seconds on the lane's clock */
    figuresAt(time) {
      const count = this.stepsAt(time);
      const tokens = this.totals[count];
      const done = this.ended && count === this.steps.length;
      const elapsed = count ? this.steps[count - 1].t : 0;
      const clock = `${asNumber(done ? elapsed : time, 3)} s`;
      return { count, tokens, done, speed: asNumber(tokens / elapsed, 0), tau: asNumber(tokens / count, 2), clock };
    }
  }

  /**
   * Gives every step the time and the seconds that another run took, where the message holds them. Returns the message.
   * @template {{ times?: [number, Record<string, number>][][] }} Message
   * @param {{ steps: Step[] }[]} lanes
   * @param {Message} message
   */
  function retimed(lanes, message) {
    for (const [index, times] of (message.times || []).entries()) {
      for (const [at, [t, seconds]] of times.entries()) Object.assign(lanes[index].steps[at], { t, seconds });
    }
    return message;
  }

  // How far the clocks may run: no lane is shown waiting for data that is still on its way.
  /** @param {{ ended: boolean, lastTime: number }[]} lanes */
  function horizon(lanes) {
    const open = lanes.filter((lane) => !lane.ended);
    const times = (open.length ? open : lanes).map((lane) => lane.lastTime);
    return open.length ? Math.min(...times) : Math.max(...times);
  }

  // 0 for the root.
  /** @param {number[]} parents */
  function depthsOf(parents) {
    /** @type {number[]} */
    const depths = [];
    for (const parent of parents) depths.push(parent < 0 ? 0 : depths[parent] + 1);
    return depths;
  }

  return { Steps, depthsOf, horizon, retimed, LEEWAY };
})();
