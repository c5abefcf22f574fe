// What the page is told: messages of the wire, answers of the server, values that parts are mounted with. For the type check alone; the
// browser never loads this file.

type Verdict = "root" | "accepted" | "bonus" | "rejected" | "unreached";
type Guarantee = "tokens" | "law" | "lossy" | "text" | "refused";
type Identical = boolean | "law" | "lossy" | "text" | "other text" | "failed";

/** What every message of a run carries: engine/page/views/wire.py. `seq` has no gaps; the last message carries `end`. */
interface RunMessage {
  run: string;
  seq: number;
  start?: boolean;
  end?: boolean;
  again?: boolean; // the result is there, and the run goes on, unseen
}

/** Where a run stands among others, between its messages. */
interface Place {
  run: string;
  place: string;
}

/** A run of which nothing more comes: it was refused, or it has failed. */
interface Failure {
  run: string;
  failed: true;
}

/** A step as engine/page/views/wire.py sends it: engine/record/trace.py's Step, its clock, and whether its bonus is kept.
 * Another server's step has no node, and in `bonus_text` a sentence about the server. */
interface Step {
  index: number;
  position: number;
  tokens: number[];
  parents: number[];
  texts: string[];
  score: number[];
  q: number[];
  p: number[];
  verdicts: Verdict[];
  path: number[];
  favourites: number[]; // the path of the drafter's favourites, root excluded
  silence: string; // why a system that guesses had no guess, "" otherwise
  unused: string; // why its tree has fewer nodes than it may, "" otherwise
  bonus: number;
  bonus_text: string;
  bonus_p: number;
  draft_forwards: number;
  replayed: number;
  burst: number[];
  pieces: string[];
  end: string;
  seconds: Record<string, number>;
  t: number;
  has_bonus: boolean;
}

/** Milliseconds by the nodes of one forward, and of drafting: engine/record/costs.py. */
interface MeasuredCosts {
  verify_ms: Record<number, number>;
  first_ms: number;
  level_ms: number;
  promised?: Record<string, number>;
  shapes?: Record<string, Shaped>;
}

/** Tokens that a round of a shape yields, and what it costs in rounds of plain decoding. */
interface Shaped {
  tau: number;
  cost: number;
}

/** A request and the answer to it, before a chat's prompt. */
type Turn = [request: string, answer: string];

interface Trace {
  prompt: string;
  chat: boolean;
  pair: string;
  hardware: string;
  dtype: string;
  depth: number;
  width: number;
  nodes: number;
  temperature: number;
  max_new_tokens: number;
  seed: number;
  constraint?: string; // what the text had to be; "" or missing for anything
  turns?: Turn[]; // missing where there are none
}

/** What the page says about a system before it races. */
interface System {
  name: string;
  title: string;
  label?: string;
  idea: string;
  cost: string;
  source: string;
  guarantee: Guarantee;
  limits?: boolean;
  guesses?: boolean;
  drafter: string;
  policy: string;
  acceptance: string;
  depth: number;
  width: number;
  nodes: number;
  [part: string]: any;
}

/** A system that races in a lane. */
interface RacedSystem {
  name: string;
  title: string;
  idea: string;
  guarantee: Guarantee;
  costs: MeasuredCosts;
  trace: Trace;
}

interface LaneFigures {
  tokens: number;
  tau: number;
  branch_tokens: number | null; // null, as the next two, for another server's lane
  favourites_tau: number | null;
  deeper_steps: number | null;
  repeats: boolean; // the text repeats itself
  seconds: number;
  tokens_per_s: number;
  speedup: number;
  least: number;
  most: number;
  identical: Identical;
  forwards: number;
  draft_forwards: number;
  draft_share: number;
  verify_share: number;
  prefill_share: number;
  other_share: number;
}

/** Where two texts part. `words` is "" unless rounding explains it; `margin` is in log-probability. */
interface Divergence {
  index: number;
  left: string;
  right: string;
  margin?: number | null;
  words?: string;
}

/** An event of a race; the first carries `start`, the last `end` with the result. One with `again` has the first run's result while the
 * race runs again, unseen. `runs` holds the seconds of every lane by run, `times` those of every step where another run is shown. */
interface RaceMessage extends RunMessage {
  systems: RacedSystem[];
  slowdown: number;
  recorded: string | null;
  steps?: [number, Step][];
  again?: boolean;
  times?: [number, Record<string, number>][][];
  lanes: LaneFigures[];
  runs: number[][];
  busy: boolean;
  disturbed: string;
  speedup: number;
  least: number;
  most: number;
  identical: Identical;
  finished?: boolean;
  divergence: Divergence | null;
}

/** A cell of a sweep: a race against plain decoding, or why there is none. */
interface Cell {
  x: number;
  y: number;
  depth: number;
  width: number;
  nodes: number;
  temperature: number;
  speedup: number;
  tau: number;
  mean_nodes: number;
  ms_per_token: number;
  draft_share: number;
  verify_share: number;
  disturbed: string;
  refused?: string;
  [figure: string]: any;
}

interface Accepted {
  depth?: number;
  rank?: number;
  reached: number;
  accepted: number;
  levels?: number;
  [place: string]: any;
}

interface SweepSummary {
  best: Cell[];
  sentence: string;
  by_depth: Accepted[];
  by_rank: Accepted[];
  verify_ms: Record<number, number>;
}

interface SweepAxis {
  name: string;
  values: number[];
}

type Grid = "shape" | "budget";

/** What follows the first message of a sweep. The last one has all cells. */
interface SweepNews {
  start?: false;
  cell?: Cell;
  cells?: Cell[];
  summary?: SweepSummary;
  done: number;
  left?: number;
}

type SweepMessage = RunMessage & (SweepNews | ({ start: true } & SweepStart));

interface SweepStart {
  cells: number;
  system: System;
  grid: Grid;
  x: SweepAxis;
  y: SweepAxis;
  fixed: Record<string, number>;
  costs: MeasuredCosts;
  prompts: string[];
  max_new_tokens: number;
  seed: number;
}

/** A race on one of a visitor's prompts. */
interface PromptRow {
  index: number;
  prompt: string;
  tokens: number;
  speedup: number;
  tau: number;
  draft_share: number;
  verify_share: number;
  identical: Identical;
  disturbed: string;
  refused?: string;
  [figure: string]: any;
}

interface PromptsSummary {
  raced: number;
  refused: number;
  speedup: number;
  speedup_total: number;
  tau: number;
  tokens: number;
  draft_share: number;
  verify_share: number;
  identical: number;
  disturbed: string;
}

/** A system in its best setting over a visitor's prompts: a row of engine/measure/report.py. */
interface PaysSystem {
  name: string;
  setting: string;
  guarantee: Guarantee;
  speedup: number;
  interval: [number, number];
  vs_generate: number;
  vs_generate_interval: [number, number];
  gaining: number;
  tau: number;
  time: Record<string, number>;
  acceptance: { depth: number; rounds: number; accepted: number }[];
  identical: Identical;
}

/** A draft tree as engine/page/screens/pays.py takes it. */
interface WhatIf {
  acceptance: number;
  depth: number;
  width: number;
  draft: number;
  batch: number;
}

interface MeasuredPoint extends WhatIf {
  expected: number | null;
  decoding: number;
  speedup: number;
}

interface PaysReport {
  answer: "yes" | "no" | "only";
  verdict: string;
  best: string;
  pair: string;
  machine: string;
  temperature: number;
  tokens: number;
  constraint: string; // what every text had to be; "" for anything
  plain: { tokens_per_s: number; vs_generate: number; time: Record<string, number> };
  systems: PaysSystem[];
  prompts: { index: number; prompt: string; speedup: number }[];
  refused: { index: number; prompt: string; why: string }[];
  titles: Record<string, string>;
  costs: MeasuredCosts;
  point: MeasuredPoint;
}

type PromptsMessage = RunMessage & { title: string } & (
    | { at: number; tokens: number }
    | { row: PromptRow; summary: PromptsSummary }
  );
type PaysMessage = RunMessage & ({ done: number; of: number; doing: string } | PaysReport);
type BreakMessage = RunMessage & { break: string } & ({ done: number } | BreakDistance);

/** How far off a broken system's tokens are: engine/page/screens/break_distance.py. */
interface BreakDistance {
  wrong: number;
  right: number;
  floor?: number | null;
  rows?: { token: string; right: number; wrong: number }[];
  after?: string;
  sentence: string;
  temperature: number;
}

/** Something to break on purpose, with the cards of the systems that are broken so. */
interface Break {
  name: string;
  title: string;
  wrong: string;
  effect: string;
  suggestion: {
    systems: string[];
    prompt: string;
    temperature: number;
    seed: number;
    max_new_tokens: number;
    [setting: string]: any;
  };
  cards: Record<string, System>; // by the system that is broken
}

/** What the walk begins with: what there is to break, and what it shows a tree by: the first that the pair can race. */
interface WalkAbout {
  breaks: Record<string, Break>;
  taught: string[];
}

interface RaceEntry {
  name: string;
  title: string;
  prompt: string;
}

/** What a grand prix may race, and how many at once. */
interface FieldAbout {
  systems: Record<string, System>;
  promises: Record<string, string>;
  presets: Record<string, string[]>;
  standIns: string[];
  baseline: string;
  least: number;
  most: number;
}

type Gallery = Record<string, { title: string; prompt: string }[]>;
/** What every drafter, policy and acceptance rule says about itself, by kind and name. */
type Parts = Record<string, Record<string, { title: string; about: string; source: string }>>;
type Answer<Value> = Promise<Value & { refused?: string }>;

/** What a serving engine told of one request: engine/record/served_trace.py. */
interface ServedTrace {
  drafted: number[];
  accepted: number[];
  model: string;
  text: string;
  passes: number | null;
  tau: number;
  by_position: { depth: number; reached: number; accepted: number }[];
}

interface RaceServer {
  opening(name: string): Answer<{ event?: string }>;
  serialise_recorded_race(name: string): Answer<{ event: string }>;
  opened(text: string): Answer<{ event: string; served?: ServedTrace }>;
  replay_page(text: string): Answer<{ html: string }>;
}

interface LabAbout {
  systems: Record<string, System>;
  allowed: string;
  pays: string;
}

/** A recorded run that a screen begins with. */
interface Example {
  messages: any[];
  recorded: string;
  hardware: string;
  pair: string;
  command: string;
}

interface PrixServer {
  load_recorded_run(name: string): Answer<Example>;
}

interface WalkServer {
  load_recorded_curve(name: string): Answer<{ curve: Curve }>;
}

/** A point of a curve: engine/measure/curves/curves.py. A batch's has both sides' tokens a second. */
interface CurvePoint {
  x: number;
  tau: number;
  speedup: number;
  identical: Identical;
  disturbed: string;
  [figure: string]: any;
}

/** A curve that was measured; a recorded one has its day and its command. */
interface Curve {
  curve: string;
  axis: string;
  lines: { title: string; text: string; points: CurvePoint[] }[];
  finding: string;
  trees: { title: string; nodes: number; step: Step }[];
  pair: string;
  hardware: string;
  recorded: string;
  command: string;
}

type CurveMessage = RunMessage & Curve & { point?: CurvePoint; line: number; done: number };

interface LabServer {
  parse_prompts_of_upload(name: string, text: string): Answer<{ prompts: string[] }>;
  load_recorded_run(name: string): Answer<Example>;
}

type Look = (name: string, pair: string) => Answer<System>;

/** What a part or a system needs and a pair has not: engine/contracts.py. */
interface Lack {
  needs: string;
  refusal: string;
}

/** What a pair lacks, by name: for "systems", and for each kind of parts of a mix. */
type Lacks = Record<string, Record<string, Lack>>;

/** A pair that a visitor may choose: engine/page/screens/cards.py. `verify_ms` is empty until it was measured. */
interface OfferedPair {
  chat: boolean;
  memory: string;
  name: string;
  size: string;
  title: string;
  own: boolean;
  pair: string;
  way: string;
  lacks: Lacks;
  verify_ms: Record<number, number>;
}

/** What the page's head says of its own pair, and the pairs to choose from. */
interface OwnPair {
  chat: boolean;
  title: string;
  pair: string;
  way: string;
  lacks: Lacks;
  pairs: OfferedPair[];
}

interface HeadAbout extends OwnPair {
  prompts: Gallery;
  examples: Gallery;
  screens: Record<string, string>;
  races: RaceEntry[];
}

/**
 * How far the engine is: what it does in words, whether the live page is there, and whether nothing is left to make ready.
 * A live page's server also says which pair it races now, and which forward runs.
 */
interface Readiness extends Partial<OwnPair> {
  words: string;
  live: boolean;
  ready: boolean;
}
