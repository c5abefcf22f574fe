// Colours between colours, and which letters can be read on them. Knows colours as three channels from 0 to 255.

TreeRace.shades = (() => {
  /**
   * @param {string} hex as in "#d55e00"
   * @returns {[number, number, number]}
   */
  function channels(hex) {
    /** @param {number} at */
    const channel = (at) => Number.parseInt(hex.slice(at, at + 2), 16);
    return [channel(1), channel(3), channel(5)];
  }

  /**
   * @param {string} from
   * @param {string} to
   * @param {number} part of the way
   */
  const mixed = (from, to, part) => channels(from).map((each, index) => each + (channels(to)[index] - each) * part);

  /** @param {number[]} channel */
  function luminance(channel) {
    const linear = channel.map((each) => each / 255).map((c) => (c <= 0.04 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  }

  /**
   * Black or white, whichever is easier to read on this colour.
   * @param {number[]} channel
   */
  const readable = (channel) => (luminance(channel) > 0.179 ? "#000000" : "#ffffff");

  return { channels, mixed, readable };
})();
