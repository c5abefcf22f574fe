// A race that is over, shown again: it says where and when it was run. Knows the event that holds such a race whole.
window.TreeRace = window.TreeRace || {};

(function (T) {
  const calm = window.matchMedia("(prefers-reduced-motion: reduce)");

  function when(day) {
    const [year, month, date] = day.split("-").map(Number);
    const named = new Date(year, month - 1, date).toLocaleDateString("en-GB", { dateStyle: "long" });
    return day ? `, ${named}` : "";
  }

  // Plays it, or shows how it ended where motion is not wanted.
  T.showRecorded = function (event) {
    window.dispatchEvent(new CustomEvent("treerace", { detail: event }));
    if (calm.matches) T.view.skip();
  };

  window.addEventListener("treerace", ({ detail: { start, end, systems, recorded } }) => {
    if (!start) return;
    const label = document.querySelector("[data-recorded]");
    label.textContent = end ? `recorded on ${systems[0].trace.hardware}${when(recorded)}` : "";
  });
})(window.TreeRace);
