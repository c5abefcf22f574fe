// The race that is shown, as a race file and as a link. Knows the view's systems and steps; writes no file.
window.TreeRace = window.TreeRace || {};

(function (T) {
  const DRAWN = ["t", "x", "y", "has_bonus", "sentence", "estimate"]; // what the page adds to a step
  const LONGEST_LINK = 8000; // letters; servers refuse longer ones

  function traced(step) {
    return Object.fromEntries(Object.entries(step).filter(([name]) => !DRAWN.includes(name)));
  }

  // A Record in JSON (engine/record.py). A race that was stopped holds the steps so far.
  T.raceFile = function ({ systems, lanes, recorded }) {
    const filed = systems.map(({ title, idea, guarantee, costs, trace }, index) => {
      const steps = lanes[index].steps.map(traced);
      return { title, idea, guarantee, costs, trace: { ...trace, steps } };
    });
    const today = new Date().toISOString().slice(0, 10);
    return JSON.stringify({ lanes: filed, recorded: recorded || today });
  };

  // The settings of that race, as the page's address takes them; "" when the prompt is too long for one.
  T.raceLink = function ({ systems: [left, right] }) {
    const { prompt, depth, width, nodes, temperature, max_new_tokens: tokens, seed } = right.trace;
    const settings = { left: left.name, right: right.name, depth, width, nodes, temperature, tokens, seed, prompt };
    const link = `${location.origin}${location.pathname}?${new URLSearchParams(settings)}`;
    return link.length > LONGEST_LINK ? "" : link;
  };

  // A file's name out of what the race was of.
  T.raceName = function ({ systems: [, right] }) {
    const words = `${right.name} ${right.trace.prompt}`.toLowerCase().match(/[a-z0-9]+/g) || [];
    return ["treerace", ...words].join("-").slice(0, 48).replace(/-$/, "");
  };
})(window.TreeRace);
