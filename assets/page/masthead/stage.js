// What somebody on a stage has in place of the form: three large dials, and keys that race again, the next prompt, another system. Knows
// what the form can hold, and the race from outside.

TreeRace.stage = (() => {
  const { button, make } = TreeRace.elements;
  const { pressRace, promptBox, takePrompt } = TreeRace.form;
  const { addKeys } = TreeRace.keys;

  /** @typedef {{ name: string, title: string, keys: [string, string], values: number[] }} Dial */
  /** @param {number} most @param {number} unit */
  const every = (most, unit) =>
    Array.from({ length: Math.round(most / unit) + 1 }, (_, index) => Number((index * unit).toFixed(1)));
  /** @type {Dial[]} */
  const DIALS = [
    { name: "nodes", title: "Nodes", keys: ["u", "i"], values: [2, 4, 6, 8, 12, 16, 24, 32, 48, 64] },
    { name: "depth", title: "Depth", keys: ["j", "k"], values: every(12, 1).slice(1) },
    { name: "temperature", title: "Temperature", keys: ["o", "p"], values: every(2, 0.2) },
  ];

  /**
   * The next of the values from `now` on, upwards or downwards; the last one where there is none.
   * @param {number[]} values
   * @param {number} now
   * @param {number} by 1 or -1
   */
  function nextOf(values, now, by) {
    const beyond = values.filter((value) => (by > 0 ? value > now + 1e-9 : value < now - 1e-9));
    return (by > 0 ? beyond[0] : beyond[beyond.length - 1]) ?? now;
  }

  /**
   * @param {HTMLElement} root
   * @param {HTMLElement} screen says by `data-stage` when the dials are seen
   */
  function mountStageDials(root, screen) {
    /** @type {Record<string, HTMLElement>} */
    const shown = {};
    /** @param {Settings} now */
    const show = (now) => {
      for (const { name } of DIALS) shown[name].textContent = String(now[name]);
    };
    /** @param {Dial} dial @param {number} by */
    const turn = ({ name, values }, by) =>
      TreeRace.controls.change((now) => {
        const value = nextOf(values, Number(now[name]), by);
        show({ ...now, [name]: value });
        return { [name]: value, ...(name === "temperature" ? {} : { untouched: "" }) };
      });
    for (const dial of DIALS) {
      const [fewer, more] = [-1, 1].map((by) => button("", () => turn(dial, by), by < 0 ? "−" : "+"));
      fewer.ariaLabel = `Less: ${dial.title}`;
      more.ariaLabel = `More: ${dial.title}`;
      shown[dial.name] = make("b");
      shown[dial.name].setAttribute("role", "status");
      root.append(make("span", "stage-dial", make("small", "", dial.title), fewer, shown[dial.name], more));
      const [low, high] = dial.keys;
      addKeys(
        dial.keys.map((key) => key.toUpperCase()),
        `${dial.title.toLowerCase()} down or up, for the next race`,
        { [low]: () => turn(dial, -1), [high]: () => turn(dial, 1) },
        "race",
      );
    }
    const look = () => {
      if (!screen.hasAttribute("data-stage")) return;
      TreeRace.controls?.change((now) => {
        show(now);
        return {};
      });
    };
    new MutationObserver(look).observe(screen, { attributeFilter: ["data-stage"] });
  }

  /** @param {() => { prompt: string }[]} prepared the prompts that suit the pair, in the order in which they come */
  function addStageKeys(prepared) {
    const next = () => {
      if (TreeRace.view.isLive) return;
      const prompts = prepared();
      const at = prompts.findIndex(({ prompt }) => prompt === promptBox().value);
      takePrompt(prompts[(at + 1) % prompts.length].prompt);
      requestAnimationFrame(pressRace); // the form has the prompt by then
    };

    /** @param {number} by how many places on, among the systems that guess */
    const other = (by) => {
      const { view, take } = TreeRace;
      if (view.isLive) return;
      const names = Object.values(view.about.systems)
        .filter(({ guesses }) => guesses)
        .map(({ name }) => name);
      const at = names.indexOf(view.lanes[1].card.shown);
      take.raceWith(names[(at + by + names.length) % names.length]);
    };

    addKeys(["R", "Enter"], "race again", { r: pressRace, Enter: pressRace }, "race");
    addKeys(["N"], "race the next prepared prompt", { n: next }, "race");
    addKeys(
      ["↑", "↓"],
      "race another system on the right",
      { ArrowUp: () => other(-1), ArrowDown: () => other(1) },
      "race",
    );
  }

  return { addStageKeys, mountStageDials, nextOf };
})();
