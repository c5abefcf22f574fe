// Says when all parts of the page have come, for the styles: a rule that looked for them would be asked anew at every change of the page.
// What only later plots need is fetched from then on.

TreeRace.arrival = (() => {
  const { whenThere } = TreeRace.elements;
  const { screenRoot } = TreeRace.screens;

  const PARTS = [
    ".masthead .screens button",
    "#prompt textarea",
    "#systems input",
    "#race-halt",
    ".lane",
    '#dials input[type="range"]',
    "#dials .constraint textarea",
  ];

  function showWhenWhole() {
    whenThere(
      () => PARTS.every((part) => document.querySelector(part)),
      () => {
        screenRoot().toggleAttribute("data-arrived", true);
        document.querySelector("#plotly")?.setAttribute("rel", "prefetch"); // for the first plot; no part of the page waits for it
      },
    );
  }

  return { showWhenWhole };
})();
