// Who is first, second, third. Knows speeds only.
"use strict";

TreeRace.places = (() => {
  /**
   * The place of each by its speed, the fastest first; 0 for those that have none yet. Equals share a place.
   * @param {number[]} speeds
   */
  function placesOf(speeds) {
    return speeds.map((speed) => (speed ? 1 + speeds.filter((other) => other > speed).length : 0));
  }

  return { placesOf };
})();
