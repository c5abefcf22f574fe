// What the parts of the page are to each other. For the type check alone; the browser never loads this file.

/** The figures of a lane beside its place and its title. */
interface RankedLane extends LaneFigures {
  name: string;
  title: string;
  place: number;
  [figure: string]: any;
}

/** A part of the time that a lane took, as its bars are drawn. */
interface Phase {
  name: string;
  share: "prefill_share" | "verify_share" | "draft_share" | "other_share";
  shape: string;
  colour: "faint" | "base" | "tree" | "ink";
}

/** A node of the draft tree: where it stands in the tree, and in pixels once plots/tree-layout.js has placed it. */
interface TreeNode {
  index: number;
  parent: number;
  text: string;
  q: number | null;
  p: number;
  verdict: Verdict;
  onPath: boolean;
  wanted?: boolean;
  column: number;
  row: number;
  labelled: boolean;
  mark: number;
  label: string;
  x: number;
  y: number;
  labelX: number;
  labelEnd: number;
  columnEnd: number;
  steep: boolean; // whether lines go down from its mark, because it stands on stairs
}

/** A scene of the story of a step: when it plays, in seconds, and what it says. */
interface Scene {
  name: "guess" | "check" | "choose" | "drop" | "join" | "same";
  from: number;
  to: number;
  words: string;
}

/** A part of the story's stage, in pixels. */
interface Box {
  x: number;
  y: number;
  width: number;
  height: number;
}

/** What the story's pictures are drawn of. Letters have the sentence's `size`, are at most `largest` in the tree, and `small` above pictures. */
interface StoryStage {
  svg: SVGElement;
  step: Step;
  script: ReturnType<typeof TreeRace.storyScript.scriptOf>;
  before: string; // the text so far
  causal: boolean; // its mask is broken
  size: number;
  largest: number;
  small: number;
  measure(text: string, size: number, weight?: number): number;
  animate(element: SVGElement, attribute: string, valueAt: (time: number) => string | number): unknown;
}

/**
 * How a run ended without its last message: refused or taken back before it began; afterwards failed, stopped, or with a message that
 * never arrived.
 */
type RunEnd = "refused" | "withdrawn" | "failed" | "stopped" | "lost";

/** What a run needs of its screen: what it orders, and how its messages are drawn. */
interface RunScreen<Message> {
  root: HTMLElement;
  order(form: any): Settings;
  say(words: string): void; // until it begins
  stands?(place: string): void; // among others, once it has begun
  feed(message: Message): void;
  over(how: RunEnd): void;
  rest?(): void; // Stop was pressed while no run was open
}

/** The race's controls by name. */
type Settings = Record<string, any>;

/** What controls were before they were set, and what they were set to. */
type Memory = Record<string, { before: any; given: any }>;

/** What a picture of the walk may show beside the step. */
interface AboutPicture {
  steps: Step[];
  taus: Map<string, number>;
  pairs: OfferedPair[];
  gains: Map<string, { title: string; speedup: number }>;
  node: number;
  onNode(node: number): void;
}

/** A page of the walk; learn/walk-pages.js says what each field is for. */
interface WalkPage {
  title: string;
  text: string;
  lit: string;
  view?: string;
  tells?: (step: Step) => number;
  picture?: string;
  curve?: string;
  choice?: boolean;
  breaks?: string[];
  task: { words: string; on: string; when?: (detail: any, walk: { pair: string }) => boolean; needs?: string[] };
}

type Palette = ReturnType<typeof TreeRace.plotBase.palette>;
type Round = ReturnType<typeof TreeRace.roundCosts.roundOf>;
type Costs = InstanceType<typeof TreeRace.roundCosts.Costs>;
type Lane = InstanceType<typeof TreeRace.lane.Lane>;
type SystemCard = InstanceType<typeof TreeRace.systemCard.SystemCard>;
type RaceView = InstanceType<typeof TreeRace.raceView.RaceView>;
type RaceControls = InstanceType<typeof TreeRace.form.RaceControls>;
type Walk = InstanceType<typeof TreeRace.walkView.WalkView>;
type SweepRecord = InstanceType<typeof TreeRace.sweepRecord.SweepRecord>;
type PromptFile = InstanceType<typeof TreeRace.promptFile.PromptFile>;

interface Window {
  gradio_config?: { root: string };
  Plotly?: any;
}

declare const Plotly: any;

/** The parts of the page that are mounted; each is there once Gradio has made its element. */
declare namespace TreeRace {
  let view: RaceView;
  let chat: InstanceType<typeof TreeRace.chatTurns.ChatTurns>;
  let controls: RaceControls;
  let pairs: InstanceType<typeof TreeRace.pairSwitch.PairSwitch>;
  let prix: InstanceType<typeof TreeRace.prixView.PrixView>;
  let lab: InstanceType<typeof TreeRace.labViews.LabViews>;
  let sweep: InstanceType<typeof TreeRace.sweepView.SweepView>;
  let prompts: InstanceType<typeof TreeRace.ownPrompts.PromptsView>;
  let pays: InstanceType<typeof TreeRace.paysView.PaysView>;
  let walk: InstanceType<typeof TreeRace.walkView.WalkView>;
  let take: InstanceType<typeof TreeRace.saveAndOpen.SaveAndOpen>;
}
