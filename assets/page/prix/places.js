// Who is first, second, third, and who won. Knows speeds and titles. Whoever is apart by less than clocks can tell is level.

TreeRace.places = (() => {
  const { asNumber, isLevel } = TreeRace.numbers;

  /**
   * The place of each by its speed: behind all that are clearly faster. 0 for those that have no speed yet.
   * @param {number[]} speeds
   */
  function placesOf(speeds) {
    const isAhead = (/** @type {number} */ other, /** @type {number} */ speed) =>
      other > speed && !isLevel(other / speed);
    return speeds.map((speed) => (speed ? 1 + speeds.filter((other) => isAhead(other, speed)).length : 0));
  }

  /**
   * Who won, by how much; or who is level.
   * @param {string[]} titles
   * @param {LaneFigures[]} lanes the first one is plain decoding
   */
  function winnerWords(titles, lanes) {
    const speeds = lanes.map((lane) => lane.speedup);
    const most = Math.max(...speeds);
    const leaders = placesOf(speeds).flatMap((place, lane) => (place === 1 ? [lane] : []));
    const names = leaders.map((lane) => titles[lane]);
    if (leaders.length > 1) {
      const pure = leaders.every((lane) => lane === 0 || !/^(lossy|false)$/.test(String(lanes[lane].identical)));
      const but = pure ? "" : " Not all of them wrote the right text.";
      return `${names.slice(0, -1).join(", ")} and ${names[names.length - 1]} are level: up to ${asNumber(most, 1)}× plain decoding.${but}`;
    }
    const [first = 0] = leaders;
    return first ? praise(titles[first], lanes[first]) : "Plain decoding was the fastest.";
  }

  /**
   * What is said of the fastest, which is no victory where the text is another one.
   * @param {string} title
   * @param {LaneFigures} lane
   */
  function praise(title, { speedup, identical }) {
    const ratio = `${asNumber(speedup, 1)}×`;
    if (identical === "lossy") return `${title} is first with ${ratio}, but lossy.`;
    if (identical === false) return `${title} is first with ${ratio}, but its text is wrong.`;
    return `${title} wins: ${ratio} plain decoding.`;
  }

  return { placesOf, winnerWords };
})();
