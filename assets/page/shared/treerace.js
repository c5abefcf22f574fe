// The page's only global. Every script hangs what it offers on it, under its own name; the manifest's order is the order of needs.
// The page joins its scripts into one, so that this one makes all of them strict.
"use strict";

// biome-ignore lint/correctness/noUnusedVariables: the other scripts use it
var TreeRace = {};
