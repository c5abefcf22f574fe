// The guided walk: a card beside the race that goes from page to page, sets the controls, and sees what the visitor does.
// Looks at the race once a frame; asks the server for nothing but races.
window.TreeRace = window.TreeRace || {};

(function (T) {
  const PATIENCE_MS = 1500; // for a race that may be on its way, before one is begun
  const calm = window.matchMedia("(prefers-reduced-motion: reduce)");
  const narrow = window.matchMedia("(max-width: 900px)");
  const find = (selector) => document.querySelector(selector);

  T.Walk = class {
    constructor(root, light, { prompt, breaks }) {
      this.root = root;
      this.at = (name) => root.querySelector(`[data-${name}]`);
      this.prompt = prompt;
      this.light = new T.Light(light);
      this.controls = new T.Controls("#walk-set");
      this.breaks = new T.Breaks(this.at("breaks"), this.controls, breaks, (name) => this.broke(name));
      this.done = new Set(); // pages whose task was done
      this.taus = new Map(); // of the races that were shown, by system and guesses
      this.hooked = new WeakSet(); // plots that report what is pointed at
      this.index = 0;
      this.dots = T.WALK.map((page, index) => this.dot(page, index));
      this.at("dots").append(...this.dots);
      this.listen();
    }

    dot({ title }, index) {
      const button = T.make("button");
      Object.assign(button, { type: "button", ariaLabel: `Page ${index + 1}: ${title}`, title });
      button.addEventListener("click", () => this.go(index));
      return T.make("li", "", button);
    }

    get page() {
      return T.WALK[this.index];
    }

    get isOpen() {
      return !this.root.hidden;
    }

    // ---- from page to page ----------------------------------------------------------------------------------------

    open(index = this.index) {
      T.showScreen("race");
      this.memory = {}; // what the controls were before
      this.root.hidden = false;
      this.laidOut(true);
      this.controls.set({ ...T.WALK_START, prompt: this.prompt }, this.memory);
      this.go(index);
      this.at("body").focus({ preventScroll: true });
      requestAnimationFrame(() => this.watch());
    }

    async close() {
      await this.breaks.mend();
      this.root.hidden = true;
      this.right = null;
      this.light.follow(null);
      this.laidOut(false);
      place(null);
      find("button[data-learn]").focus();
      const lanes = T.view.lanes;
      lanes.forEach((lane, index) => {
        const before = this.memory[["left", "right"][index]]?.before;
        if (!T.view.about.systems[before]) lane.chosen = lane.mix.parts; // a mix begins with these again
      });
      await this.controls.restore(this.memory);
      lanes.forEach((lane) => lane.card.open(false));
    }

    laidOut(open) {
      find("#screen").toggleAttribute("data-learn", open);
      find("button[data-learn]").setAttribute("aria-pressed", String(open));
      window.dispatchEvent(new Event("resize"));
    }

    async go(index) {
      await this.breaks.mend();
      this.index = Math.max(0, Math.min(T.WALK.length - 1, index));
      const { title, text, task, form, view } = this.page;
      this.at("place").textContent = `Learn · ${this.index + 1} of ${T.WALK.length}`;
      this.at("title").textContent = title;
      this.at("text").textContent = text;
      this.at("words").textContent = task.words;
      this.at("back").disabled = this.index === 0;
      this.at("next").textContent = this.index === T.WALK.length - 1 ? "Finish" : "Next ›";
      this.at("body").scrollTop = 0;
      this.tick();
      this.begin();
      this.breaks.show(this.page.breaks || []);
      place(this.index + 1);
      if (view) this.choose(view);
      if (narrow.matches) find(this.page.lit)?.scrollIntoView({ behavior: calm.matches ? "auto" : "smooth" });
      const shape = form.right === this.right ? {} : shapeOf(form.right);
      this.right = form.right;
      await this.controls.set({ ...form, ...shape }, this.memory);
    }

    // What the page knows of the race so far: nothing.
    begin() {
      this.since = performance.now();
      this.run = T.view.run;
      this.due = Boolean(this.page.tells); // a jump to the step that tells most
      this.asked = false;
      this.shown = null;
      this.node = null;
    }

    choose(view) {
      const choice = find(`[data-panel] [name=view][value=${view}]`);
      if (choice && !choice.checked) choice.click();
    }

    // ---- what the race shows --------------------------------------------------------------------------------------

    watch() {
      if (!this.isOpen) return;
      requestAnimationFrame(() => this.watch());
      if (this.breaks.on) this.light.follow(find("[data-lanes]"), [find("[data-verdict]")]);
      else this.light.follow(find(this.page.lit), (this.page.task.needs || []).map(find));
      this.hook("tree", ({ pointNumber }) => this.point("node", pointNumber));
      this.hook("mask", ({ y }) => this.point("row", this.order[y]));
      if (this.breaks.on) return this.breaks.part();
      this.need();
      this.jump();
      this.follow();
    }

    get fits() {
      const { run, systems, lanes } = T.view;
      if (!run || !this.page.tells || systems.some(({ name }) => name.includes("!"))) return false;
      if (this.page.fits && !this.page.fits(systems)) return false;
      return lanes[1].steps.some((step) => this.page.tells(step) > 0);
    }

    // A page that needs a tree begins a race when none is there.
    need() {
      const { run, root } = T.view;
      const patience = run ? 0 : PATIENCE_MS;
      const coming = run !== this.run || ["waiting", "racing"].includes(root.dataset.state) || performance.now() - this.since < patience;
      if (!this.page.trees || this.asked || this.fits || coming) return;
      this.asked = true;
      this.controls.set({}, this.memory).then(() => this.controls.race());
    }

    // To the step that tells most: at once in a race that was there, at its end in one that began on this page.
    jump() {
      const { view } = T;
      if (!this.due || !this.fits) return;
      const whole = view.result?.start; // it came as one event, from a file or from before a break
      const over = view.root.dataset.state === "done" || (view.result && view.run === this.run);
      if (!whole && !over) return;
      this.due = false;
      const scores = view.lanes[1].steps.map(this.page.tells);
      view.pick(1, scores.indexOf(Math.max(...scores)));
      this.show();
    }

    // Keeps the picture at the step that is shown; a step that the visitor went to counts.
    follow() {
      const { view } = T;
      const played = view.playing || this.played;
      this.played = view.playing;
      if (this.shown === this.here) return;
      if (view.run !== this.run && !this.shown?.startsWith(view.run)) this.due = Boolean(this.page.tells);
      if (this.shown !== null && !played) this.did("step");
      this.show();
    }

    get here() {
      return `${T.view.run} ${T.view.focus} ${T.view.step}`;
    }

    show() {
      this.shown = this.here;
      this.node = null;
      this.note();
      this.draw();
    }

    note() {
      const { systems, result } = T.view;
      if (!this.fits || !result) return;
      const { title, trace } = systems[1];
      this.taus.set(`${title}, ${trace.nodes - 1} guesses`, result.lanes[1].tau);
    }

    draw() {
      const { view } = T;
      const step = view.steps[view.step];
      const picture = T.WALK_PICTURES[this.page.picture];
      const home = this.at("picture");
      const held = [...home.querySelectorAll("button, [tabindex]")].indexOf(document.activeElement);
      const node = this.node ?? step?.path.at(-1) ?? 0;
      const about = { steps: view.steps, taus: this.taus, node, onNode: (at) => this.point("node", at) };
      home.replaceChildren(...(picture && step && this.fits ? picture(step, about) : []));
      if (held >= 0) home.querySelectorAll("button, [tabindex]")[held]?.focus({ preventScroll: true });
      this.mark(step);
    }

    // ---- pointing at a node ---------------------------------------------------------------------------------------

    hook(name, pointed) {
      const plot = find(`[data-${name}]`);
      if (!plot?.on || this.hooked.has(plot)) return;
      this.hooked.add(plot);
      plot.on("plotly_hover", ({ points: [point] }) => this.isOpen && pointed(point));
    }

    get order() {
      return T.ORDERS[T.view.panel.order](T.view.steps[T.view.step].parents);
    }

    point(what, node) {
      const step = T.view.steps[T.view.step];
      if (this.breaks.on || !(node < step?.parents.length)) return;
      this.did(what);
      if (what === "node") this.did("row"); // the card's own buttons go from row to row
      if (node === this.node) return;
      this.node = node;
      this.draw();
    }

    // Rings around the node, and where the mask is the point around its ancestors and its row.
    mark(step) {
      const [tree, mask] = [find("[data-tree]"), find("[data-mask]")];
      const dots = tree.data?.find(({ mode }) => mode === "markers");
      if (this.node === null || !dots || !["kin", "positions"].includes(this.page.picture)) return this.light.mark();
      const kin = this.page.picture === "kin";
      const nodes = [];
      for (let at = this.node; at >= 0 && (kin || !nodes.length); at = step.parents[at]) nodes.push(at);
      const row = kin && mask.clientWidth ? [rowOf(mask, this.order.indexOf(this.node))] : [];
      this.light.mark([tree, nodes.map((at) => [dots.x[at], dots.y[at]])], [mask, row]);
    }

    // ---- what the visitor does ------------------------------------------------------------------------------------

    did(what, detail) {
      const { on, when } = this.page.task;
      if (!this.isOpen || on !== what || (when && !when(detail)) || this.done.has(this.index)) return;
      this.done.add(this.index);
      this.tick();
    }

    tick() {
      this.at("done").textContent = this.done.has(this.index) ? "done ✓" : "";
      this.dots.forEach((dot, index) => {
        dot.classList.toggle("done", this.done.has(index));
        if (index === this.index) dot.firstChild.setAttribute("aria-current", "step");
        else dot.firstChild.removeAttribute("aria-current");
      });
    }

    broke(name) {
      this.root.toggleAttribute("data-breaking", Boolean(name));
      find("#screen").toggleAttribute("data-broken", Boolean(name));
      if (name) this.did("break");
      else this.begin();
      this.light.mark();
      this.breaks.show(this.page.breaks || []);
      this.at("breaks").querySelector(`[data-name]`)?.focus({ preventScroll: true });
    }

    listen() {
      this.at("next").addEventListener("click", () => (this.index < T.WALK.length - 1 ? this.go(this.index + 1) : this.close()));
      this.at("back").addEventListener("click", () => this.go(this.index - 1));
      this.at("close").addEventListener("click", () => this.close());
      window.addEventListener("treerace", ({ detail }) => {
        if (detail.start && !detail.recorded && !this.breaks.on) this.did("race", detail.systems);
      });
      window.addEventListener("resize", () => this.isOpen && this.light.mark());
      document.addEventListener("change", ({ target }) => target.name === "view" && this.did("view", target.value));
      document.addEventListener("click", ({ target }) => {
        if (target.closest?.("button[data-learn]")) this.called();
        const burst = target.closest?.(".lane .burst");
        if (burst) this.did("burst", burst.closest(".lane").classList.contains("right") ? 1 : 0);
      });
      document.addEventListener("keydown", (event) => this.key(event), { capture: true }); // before the stage leaves at Escape
    }

    // The button in the head: opens, comes back from another screen, or closes.
    called() {
      if (!this.isOpen) this.open();
      else if (find("#screen").dataset.screen !== "race") T.showScreen("race");
      else this.close();
    }

    key(event) {
      if (!this.isOpen || find("#screen").dataset.screen !== "race" || event.target.closest?.(T.TYPING)) return;
      const action = {
        PageDown: () => this.index < T.WALK.length - 1 && this.go(this.index + 1),
        PageUp: () => this.index > 0 && this.go(this.index - 1),
        Escape: () => this.root.contains(event.target) && !("stage" in find("#screen").dataset) && this.close(),
      }[event.key];
      if (!action) return;
      if (event.key !== "Escape") event.preventDefault();
      action();
    }
  };

  function shapeOf(name) {
    const { depth, width, nodes } = T.view.about.systems[name];
    return { depth, width, nodes };
  }

  function rowOf(mask, row) {
    const { margin, width, height } = mask.layout;
    const each = (height - margin.t - margin.b) / mask.data[0].z.length;
    return [margin.l, margin.t + row * each, width - margin.l - margin.r, each];
  }

  // The page's number in the address, so that a link leads here.
  function place(number) {
    const address = new URL(window.location);
    if (number) address.searchParams.set("learn", number);
    else address.searchParams.delete("learn");
    history.replaceState(history.state, "", address);
  }

  // `value`: the prompt that the walk begins with, and what there is to break.
  T.mountWalk = function (element, value) {
    T.walk = new T.Walk(element.querySelector("[data-walk]"), element.querySelector("[data-light]"), value);
    const wanted = Number(new URLSearchParams(window.location.search).get("learn"));
    if (!Number.isInteger(wanted) || wanted < 1) return;
    const begin = () => (T.view && find("#walk-set") ? T.walk.open(wanted - 1) : requestAnimationFrame(begin));
    begin();
  };
})(window.TreeRace);
