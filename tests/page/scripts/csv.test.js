// Tables as files, by RFC 4180.
"use strict";

const assert = require("node:assert/strict");
const test = require("node:test");
const { load } = require("./load.js");

const { asCsv } = load(
  "shared/elements.js",
  "shared/form.js",
  "shared/popover.js",
  "plots/plot-base.js",
  "shared/downloads.js",
).downloads;

test("every line ends in CRLF, the last one too", () => {
  assert.equal(
    asCsv([
      ["a", "b"],
      [1, 2],
    ]),
    "a,b\r\n1,2\r\n",
  );
});

test("commas, quotes and line breaks are quoted, and nothing else is", () => {
  assert.equal(
    asCsv([["a,b", 'say "hi"', "two\nlines", "two\rlines", " plain; text "]]),
    '"a,b","say ""hi""","two\nlines","two\rlines", plain; text \r\n',
  );
});

test("what is missing is empty, and zero and false are not missing", () => {
  assert.equal(asCsv([[null, undefined, 0, false, ""]]), ",,0,false,\r\n");
});

test("no rows, no text", () => {
  assert.equal(asCsv([]), "");
});

test("no text begins a formula, and a negative number stays one", () => {
  assert.equal(
    asCsv([["=1+1", "+1", "-1", "@SUM(A1)", "\tx", "\r=1", -1.5, "a=1"]]),
    `'=1+1,'+1,'-1,'@SUM(A1),'\tx,"'\r=1",-1.5,a=1\r\n`,
  );
});
