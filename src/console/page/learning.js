// Curves of what is learnt.

import { h } from './dom.js';
import { chart, update } from './charts.js';
import { count, fixed, whole } from './format.js';
import { data } from './follow.js';
import { colour, curves } from './model.js';

const AXES = { steps: 1, tokens: 2, time: 0 };
const MOST_CURVES = 24;
let axis = 'steps';
let smooth = true;

export function view(m, draw) {
  const choose = (name) => h('button', { type: 'button', 'aria-pressed': String(axis === name), on: { click: () => ((axis = name), draw()) } }, name);
  return [
    h('div.controls', { 'data-key': 'controls' },
      h('div.segments', { role: 'group', 'aria-label': 'Against' }, h('span.faint', null, 'against'), Object.keys(AXES).map(choose)),
      h('label', null, h('input', { type: 'checkbox', checked: smooth, on: { change: (event) => ((smooth = event.target.checked), draw()) } }), ' smooth')),
    h('div.charts', { 'data-key': 'charts' },
      chart('loss', 'Training loss by path', 'Nats a token, of the peers of this process.'),
      chart('modules', 'Training loss by module', 'The mean of the paths that go through the module.'),
      chart('heldout', 'Held-out text by path', 'Bits a byte after each phase, as scored by standbys and at the end.'),
      chart('speed', 'Speed', 'Tokens a second of inner steps, by path.'),
      chart('gradient', 'Gradient norm', 'Of the last step of each report, before clipping.'),
      chart('rate', 'Learning rate', 'By path: the schedule of the run.')),
  ];
}

// An exponential mean over about a twentieth of the curve.
function smoothed(points) {
  if (!smooth || points.length < 20) return points;
  const weight = 2 / (points.length / 20 + 1);
  let mean = points[0][1];
  return points.map(([x, y]) => [x, (mean += weight * (y - mean))]);
}

// uPlot wants x that grows.
function rising(points) {
  let last = -Infinity;
  return points.filter(([x]) => x > last && ((last = x), true));
}

function lines(column) {
  const index = AXES[axis];
  const scale = axis === 'time' ? 1000 : 1;
  return curves().slice(0, MOST_CURVES).map((curve, number) => {
    const points = rising(curve.points.filter((point) => point[column] > 0).map((point) => [point[index] / scale, point[column]]));
    return { label: curve.label, path: curve.path, colour: curve.path === null ? 'var(--faint)' : colour(curve.path), dash: curve.path === null ? [6, 4] : curve.label.includes('trainer') ? [2, 3] : undefined, points, number };
  }).filter(({ points }) => points.length);
}

// The mean of the curves of the paths through each module, at the points of the first.
function byModule(m) {
  const all = lines(3).filter(({ path }) => path !== null);
  const through = (level, expert) => all.filter(({ path }) => m.run.paths[path]?.[level] === expert);
  const names = m.run.levels.flatMap(({ experts }, level) => (experts > 1 && experts <= 16 ? [...Array(experts).keys()].map((expert) => [level, expert]) : []));
  return names.slice(0, MOST_CURVES).map(([level, expert], index) => {
    const parts = through(level, expert);
    if (!parts.length) return null;
    const at = parts.map(() => 0);
    const points = parts[0].points.map(([x]) => {
      const near = parts.map(({ points: them }, part) => {
        while (at[part] + 1 < them.length && them[at[part] + 1][0] <= x) at[part]++;
        return them[at[part]][1];
      });
      return [x, near.reduce((sum, y) => sum + y, 0) / near.length];
    });
    return { label: `module ${level}.${expert}`, colour: colour(index), dash: level % 2 ? [5, 3] : undefined, points: smoothed(points) };
  }).filter(Boolean);
}

export function drawn(m) {
  const x = axis;
  const common = {
    x: axis === 'time' ? 'time' : axis === 'tokens' ? 'tokens of the curve' : 'inner steps of a path',
    time: axis === 'time',
    xValues: (u, values) => values.map(count),
    xValue: whole,
    xTable: axis === 'time' ? (value) => new Date(1000 * value).toLocaleTimeString() : whole,
    empty: 'No step has been reported yet.',
  };
  const with_smoothing = (series) => series.map((line) => ({ ...line, points: smoothed(line.points) }));
  update('loss', { ...common, name: 'Training loss', series: with_smoothing(lines(3)), format: (value) => fixed(value) });
  update('modules', { ...common, name: 'Loss by module', series: byModule(m), format: (value) => fixed(value), empty: 'No level of this run has several modules, or no step has been reported yet.' });
  update('speed', { ...common, name: 'Speed', series: with_smoothing(lines(4)), format: count, values: (u, values) => values.map(count) });
  update('gradient', { ...common, name: 'Gradient norm', series: with_smoothing(lines(6)), format: (value) => fixed(value, 2) });
  update('rate', { ...common, name: 'Learning rate', series: lines(5), format: (value) => value.toExponential(2), axis: 64, values: (u, values) => values.map((value) => value.toExponential(1)) });
  const scored = Object.entries(data.points).filter(([name]) => name.startsWith('held-out/')).map(([name, points]) => {
    const path = Number(name.slice(9));
    return { label: `path ${path}`, colour: colour(path), points: points.map(([phase, , thousandths]) => [phase, thousandths / 1000]) };
  }).sort((a, b) => a.label.localeCompare(b.label, 'en', { numeric: true })).slice(0, MOST_CURVES);
  update('heldout', { ...common, time: false, x: 'phases', name: 'Held out', xValues: (u, values) => values.map((value) => (Number.isInteger(value) ? value : '')), xTable: whole, dots: true, series: scored, format: (value) => fixed(value), empty: 'No path has been scored yet: standbys score while they wait, and every path is scored at the end.' });
}
