// Letters on colours.
"use strict";

const assert = require("node:assert/strict");
const test = require("node:test");
const { load } = require("./load.js");

const { channels, readable } = load("plots/shades.js").shades;

const linear = (each) => (each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4);
const light = (colour) => {
  const [red, green, blue] = colour.map((each) => linear(each / 255));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
};

test("letters can be read on every colour", () => {
  const steps = Array.from({ length: 18 }, (_, at) => 15 * at);
  for (const red of steps) {
    for (const green of steps) {
      for (const blue of steps) {
        const ground = [red, green, blue];
        const [low, high] = [light(ground), light(channels(readable(ground)))].sort((a, b) => a - b);
        assert.ok((high + 0.05) / (low + 0.05) >= 4.5, `${readable(ground)} on ${ground}`);
      }
    }
  }
});
