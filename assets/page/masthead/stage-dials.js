// The three dials of a stage: nodes, depth and temperature, large, each with two keys. Knows what the form can hold; sets it from outside.

TreeRace.stageDials = (() => {
  const { button, make } = TreeRace.elements;
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

  return { mountStageDials, nextOf };
})();
