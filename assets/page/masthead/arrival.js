// Says when all parts of the page have come, for the styles: a rule that looked for them would be asked anew at every change of the page.
"use strict";

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
      () => screenRoot().toggleAttribute("data-arrived", true),
    );
  }

  return { showWhenWhole };
})();
