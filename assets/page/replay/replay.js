// The replay page: one race, and nothing to ask. Knows the page's parts; there is no server.
(function (T) {
  const at = (name) => document.querySelector(`[data-${name}]`);
  const dark = window.matchMedia("(prefers-color-scheme: dark)").matches;
  document.body.classList.toggle("dark", dark); // unless a choice is remembered
  T.mountStage(at("stage-button"));
  T.mountDarkMode(at("theme"));
  at("keys").addEventListener("click", T.showKeys);
  T.view = new T.RaceView(at("race"), { systems: {}, parts: {} });
  T.showRecorded(JSON.parse(document.querySelector("#event").textContent));
})(window.TreeRace);
