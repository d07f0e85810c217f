// Curves of what is learnt.

import { badge, h, table } from '../dom.js';
import { chart, update } from '../charts.js';
import { count, fixed, percent, whole } from '../format.js';
import { data } from '../follow.js';
import { colour, curves } from '../model.js';
import { card, loaded, mean } from '../runs.js';
import { AXES, MOST_CURVES, byModule, lines, outer, rising, smoothed } from '../series.js';

const MOST_ROWS = 100;
let axis = 'steps';
let smooth = true;

export function view(m, draw) {
  const choose = (name) => h('button', { type: 'button', 'aria-pressed': String(axis === name), on: { click: () => ((axis = name), draw()) } }, name);
  return [
    h('div.controls', { 'data-key': 'controls' },
      h('div.segments', { role: 'group', 'aria-label': 'Against' }, h('span.faint', null, 'against'), Object.keys(AXES).map(choose)),
      h('label', null, h('input', { type: 'checkbox', checked: smooth, on: { change: (event) => ((smooth = event.target.checked), draw()) } }), ' smooth')),
    h('div.charts', { 'data-key': 'charts' },
      chart('loss', 'Training loss by path', 'Nats a token, of the peers that this page asks.'),
      chart('heldout', 'Held-out text by path', 'Bits a byte after each phase, as scored by standbys and at the end.'),
      chart('modules', 'Training loss by module', 'The mean of the paths that go through the module.'),
      chart('speed', 'Speed', 'Tokens a second of inner steps, by path.'),
      chart('sizes', 'Outer gradients: size', 'Norms by module, at its owner: the mean of the contributions (dashed), and their average.'),
      chart('agreement', 'Outer gradients: agreement', 'Mean cosine between two contributions to a module: 1 is the same direction, 0 none in common.'),
      chart('gradient', 'Gradient norm', 'Of the last step of each report, before clipping.'),
      chart('rate', 'Learning rate', 'By path: the schedule of the run.')),
    tokens(m),
    card(draw),
  ];
}

// What each path has been trained on, in numbers and as a share of all.
function tokens(m) {
  const found = new Map();
  for (const { path, last } of curves()) {
    if (path === null) continue;
    const before = found.get(path) ?? { path, tokens: 0, step: 0 };
    found.set(path, { path, tokens: before.tokens + last[2], step: Math.max(before.step, last[1]) });
  }
  const rows = [...found.values()].sort((a, b) => a.path - b.path);
  const all = rows.reduce((sum, row) => sum + row.tokens, 0) || 1;
  const trainers = Map.groupBy(m.paths, ({ path }) => path);
  const columns = [
    { name: 'path', of: (row) => row.path },
    { name: 'share', of: (row) => h('span.stack', { role: 'img', 'aria-label': percent(row.tokens / all) }, h('i', { style: { width: `${(100 * row.tokens) / all}%`, background: colour(row.path) } })) },
    { name: 'of all', number: true, of: (row) => percent(row.tokens / all) },
    { name: 'tokens', number: true, of: (row) => count(row.tokens) },
    { name: 'inner steps', number: true, of: (row) => whole(row.step) },
    { name: 'stage', of: (row) => (trainers.get(row.path) ?? []).slice(0, 4).map(({ stage }) => badge(stage === 'training' ? 'good' : 'plain', stage)) },
  ];
  return h('section.card', { 'data-key': 'tokens' }, h('h3', null, 'Tokens by path'), rows.length ? table('Tokens that the peers that this page asks have trained on since they started', columns, rows.slice(0, MOST_ROWS), (row) => row.path) : h('p.empty', null, 'No step has been reported yet.'),
    rows.length > MOST_ROWS ? h('p.faint', null, `and ${rows.length - MOST_ROWS} more paths`) : null);
}

const smooth_all = (series) => (smooth ? series.map((line) => ({ ...line, points: smoothed(line.points) })) : series);

// The curves of other runs and, beside them, the mean of this one.
function others(of, here) {
  const runs = loaded().filter((run) => run[of].length);
  const mine = runs.length && here.length > 1 ? [{ label: 'this run, mean', colour: 'var(--ink)', points: mean(here.map(({ points }) => points)) }] : [];
  return [...mine, ...runs.map((run, index) => ({ label: run.name, colour: colour(index + 1), dash: [7, 5], points: rising(run[of]) }))];
}

const common = () => ({
  x: axis === 'time' ? 'time' : axis === 'tokens' ? 'tokens of the curve' : 'inner steps of a path',
  time: axis === 'time',
  xValues: (u, values) => values.map(count),
  xValue: whole,
  xTable: axis === 'time' ? (value) => new Date(1000 * value).toLocaleTimeString() : whole,
  empty: 'No step has been reported yet.',
});

export function drawn(m) {
  const shared = common();
  const loss = lines(axis, 3);
  const over = axis === 'steps' ? smooth_all(others('loss', loss.filter(({ path }) => path !== null))) : [];
  const dense = axis === 'steps' ? loaded().filter((run) => run.dense.length).map((run, index) => ({ label: `${run.name}, dense control`, colour: colour(index + 1), dash: [2, 4], points: rising(run.dense) })) : [];
  update('loss', { ...shared, name: 'Training loss', series: [...smooth_all(loss), ...over, ...dense], format: (value) => fixed(value) });
  update('modules', { ...shared, name: 'Loss by module', series: smooth_all(byModule(m, axis)), format: (value) => fixed(value), empty: 'No level of this run has several modules, or no step has been reported yet.' });
  update('speed', { ...shared, name: 'Speed', series: smooth_all(lines(axis, 4)), format: count, values: (u, values) => values.map(count) });
  const own = loss.length ? { empty: 'Only the page of the peer that trains has it.' } : {};
  update('gradient', { ...shared, ...own, name: 'Gradient norm', series: smooth_all(lines(axis, 6)), format: (value) => fixed(value, 2) });
  update('rate', { ...shared, ...own, name: 'Learning rate', series: lines(axis, 5), format: (value) => value.toExponential(2), axis: 68, values: (u, values) => values.map((value) => value.toExponential(2)) });
  const versions = { ...shared, x: axis === 'time' ? 'time' : 'versions of the module', dots: true, xValues: integers, empty: 'No owner that this page asks has made an update yet.' };
  update('sizes', { ...versions, name: 'Outer gradients: size', series: [...outer(axis, 4, ', average'), ...outer(axis, 3, ', contributions', [6, 4])], format: (value) => fixed(value) });
  update('agreement', { ...versions, name: 'Outer gradients: agreement', series: outer(axis, 5, ''), range: [-1, 1], format: (value) => fixed(value, 2), empty: 'No owner that this page asks has averaged two contributions yet.' });
  const scored = Object.entries(data.points).filter(([name]) => name.startsWith('held-out/')).map(([name, points]) => {
    const path = Number(name.slice(9));
    return { label: `path ${path}`, path, colour: colour(path), points: points.map(([phase, , thousandths]) => [phase, thousandths / 1000]) };
  }).sort((a, b) => a.path - b.path).slice(0, MOST_CURVES);
  update('heldout', { ...shared, time: false, x: 'phases', name: 'Held out', xValues: integers, xTable: whole, dots: true, series: [...scored, ...others('held_out', scored)], format: (value) => fixed(value), empty: 'No path has been scored yet: standbys score while they wait, and every path is scored at the end.' });
}

const integers = (u, values) => values.map((value) => (Number.isInteger(value) ? value : ''));
