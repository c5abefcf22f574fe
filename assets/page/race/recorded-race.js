// A race that is over, shown again: it says where and when it was run. Knows the event that holds such a race whole.
window.TreeRace = window.TreeRace || {};

(function (T) {
  const calm = window.matchMedia("(prefers-reduced-motion: reduce)");

  // Where and when a race was run, in words; "" for a live one, whose day is null.
  T.recordedWords = function (day, hardware) {
    if (day === null) return "";
    if (!day) return `recorded on ${hardware}`;
    const [year, month, date] = day.split("-").map(Number);
    return `recorded on ${hardware}, ${new Date(year, month - 1, date).toLocaleDateString("en-GB", { dateStyle: "medium" })}`;
  };

  // Plays it, or shows how it ended where motion is not wanted.
  T.showRecorded = function (event) {
    window.dispatchEvent(new CustomEvent("treerace", { detail: event }));
    if (calm.matches) T.view.skip();
  };
})(window.TreeRace);
