// Further runs over the present one: their `metrics.jsonl`, read in the browser and sent nowhere.

import { h, table } from './dom.js';
import { bytes, whole } from './format.js';

const MOST_RUNS = 8;
const MOST_BYTES = 16 << 20;
const MOST_LINES = 200000;
const LONGEST_LINE = 1 << 20;
const MOST_PATHS = 256;
const MOST_POINTS = 2000;

let runs = [];
let problems = [];

export const loaded = () => runs;

// A run: the points of its paths by step, its scores by phase, and what of it could not be read.
function parse(name, text) {
  const found = { name, lines: 0, bad: 0, left_out: 0, runs: new Set(), paths: new Map(), dense: [], scores: new Map() };
  for (let from = 0; from < text.length; ) {
    const end = text.indexOf('\n', from) < 0 ? text.length : text.indexOf('\n', from);
    const line = text.slice(from, end);
    from = end + 1;
    if (!line.trim()) continue;
    found.lines++;
    if (found.lines > MOST_LINES) found.left_out++;
    else if (line.length > LONGEST_LINE || !take(found, line)) found.bad++;
  }
  for (const points of found.paths.values()) points.sort((a, b) => a[0] - b[0]);
  return found;
}

const isNumber = Number.isFinite;

function take(found, line) {
  let it;
  try {
    it = JSON.parse(line);
  } catch {
    return false;
  }
  if (typeof it !== 'object' || it === null || !isNumber(it.at_ms)) return false;
  if (typeof it.run === 'string') found.runs.add(it.run);
  const losses = it.losses ?? [];
  const scores = it.scores ?? [];
  if (!Array.isArray(losses) || !Array.isArray(scores)) return false;
  for (const loss of losses) {
    const [path, step, mean] = Array.isArray(loss) ? loss : [];
    if (![path, step, mean].every(isNumber)) return false;
    if (!found.paths.has(path) && found.paths.size < MOST_PATHS) found.paths.set(path, []);
    found.paths.get(path)?.push([step, mean]);
  }
  for (const score of scores) {
    const [path, phase, thousandths] = [score?.path, score?.phase, score?.millibits_per_byte];
    if (![path, phase, thousandths].every(isNumber)) return false;
    if (!found.scores.has(path) && found.scores.size < MOST_PATHS) found.scores.set(path, new Map());
    found.scores.get(path)?.set(phase, thousandths / 1000);
  }
  if (it.dense !== undefined) {
    if (!Array.isArray(it.dense) || !it.dense.slice(0, 2).every(isNumber)) return false;
    found.dense.push([it.dense[0], it.dense[1]]);
  }
  return true;
}

// The mean of several curves: of each the newest value at or before each x, of those that have begun.
export function mean(curves) {
  const steps = [...new Set(curves.flatMap((points) => points.map((point) => point[0])))].sort((a, b) => a - b);
  const stride = Math.ceil(steps.length / MOST_POINTS);
  const at = curves.map(() => -1);
  return steps.filter((_, index) => index % stride === stride - 1 || index === steps.length - 1).map((x) => {
    let [sum, count] = [0, 0];
    curves.forEach((points, curve) => {
      while (at[curve] + 1 < points.length && points[at[curve] + 1][0] <= x) at[curve]++;
      if (at[curve] >= 0) [sum, count] = [sum + points[at[curve]][1], count + 1];
    });
    return [x, sum / count];
  });
}

// A name that no other loaded run has.
function named(file) {
  const taken = new Set(runs.map((run) => run.name));
  let name = file.slice(0, 60);
  for (let number = 2; taken.has(name); number++) name = `${file.slice(0, 60)} (${number})`;
  return name;
}

async function load(files, draw) {
  problems = [];
  for (const file of files) {
    if (runs.length >= MOST_RUNS) problems.push(`${file.name}: at most ${MOST_RUNS} runs are shown.`);
    else if (file.size > MOST_BYTES) problems.push(`${file.name}: ${bytes(file.size)}, and at most ${bytes(MOST_BYTES)} are read.`);
    else {
      const run = parse(named(file.name), await file.text());
      if (!run.paths.size && !run.scores.size && !run.dense.length) problems.push(`${file.name}: none of its ${whole(run.lines)} lines has a loss or a score.`);
      else {
        run.loss = mean([...run.paths.values()]);
        run.held_out = mean([...run.scores.values()].map((scores) => [...scores].sort((a, b) => a[0] - b[0])));
        runs = [...runs, { ...run, paths: run.paths.size, scores: run.scores.size }];
      }
    }
  }
  draw();
}

export function card(draw) {
  const choose = (event) => {
    const { files } = event.target;
    load([...files], draw).then(() => (event.target.value = ''));
  };
  const remove = (run) => {
    runs = runs.filter((it) => it !== run);
    draw();
  };
  const columns = [
    { name: 'file', of: (run) => run.name },
    { name: 'run', of: (run) => h('span.mono', null, [...run.runs].map((id) => id.slice(0, 8)).slice(0, 3).join(', ') || '–') },
    { name: 'paths', number: true, of: (run) => whole(Math.max(run.paths, run.scores)) },
    { name: 'steps', number: true, of: (run) => whole(run.loss.at(-1)?.[0]) },
    { name: 'lines', number: true, of: (run) => whole(run.lines) },
    { name: 'unreadable', number: true, of: (run) => whole(run.bad) },
    { name: 'left out', number: true, title: `Beyond ${whole(MOST_LINES)} lines`, of: (run) => whole(run.left_out) },
    { name: '', of: (run) => h('button', { type: 'button', 'aria-label': `Remove ${run.name}`, on: { click: () => remove(run) } }, 'Remove') },
  ];
  return h('section.card', { 'data-key': 'runs' }, h('h3', null, 'Other runs over this one'),
    h('p.faint', null, 'The file metrics.jsonl of a run’s folder. It is read here and sent nowhere. Loss against steps and held-out text show the mean of its paths, dashed.'),
    h('label.file', null, 'Add files ', h('input', { type: 'file', multiple: true, accept: '.jsonl,.1,application/jsonl', on: { change: choose } })),
    problems.length ? h('p.wrong', { role: 'status', 'data-key': 'problems' }, problems.join(' ')) : null,
    runs.length ? table('Runs that are drawn over this one', columns, runs, (run) => run.name) : null);
}
