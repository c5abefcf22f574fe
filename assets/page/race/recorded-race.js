// A race that is over, shown again: it says where and when it was run. Knows the event that holds such a race whole.

TreeRace.recordedRace = (() => {
  const { isCalm } = TreeRace.elements;

  const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

  /**
   * Where and when a race was run, in words.
   * @param {string | null} day null for a live race, which gets no words
   * @param {string} hardware
   */
  function recordedWords(day, hardware) {
    if (day === null) return "";
    if (!day) return `recorded on ${hardware}`;
    const [year, month, date] = day.split("-").map(Number);
    return `recorded on ${hardware}, ${date} ${MONTHS[month - 1]} ${year}`;
  }

  /**
   * On which model a race was run, and where and when it was recorded. A live race names its model where visitors choose one; a
   * recorded one always does, for it may be another than the page's.
   * @param {string | null} day null for a live race
   * @param {{ pair: string, hardware: string }} trace
   */
  function originWords(day, { pair, hardware }) {
    const size = TreeRace.pairs?.titled(pair)?.size;
    const model = size ? `${size} model` : day === null ? "" : pair;
    return [model, recordedWords(day, hardware)].filter(Boolean).join(", ");
  }

  /**
   * Plays it, or shows how it ended where motion is not wanted.
   * @param {RaceMessage} event
   */
  function showRecorded(event) {
    TreeRace.view.race.show(event);
    if (isCalm()) TreeRace.view.skip();
  }

  return { originWords, recordedWords, showRecorded };
})();
