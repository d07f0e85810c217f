// What the charts of learning draw, made of the points that the stream has brought. A point of a path is its time in
// milliseconds, step, tokens, loss, speed, learning rate and gradient norm.

import { data } from './follow.js';
import { colour, curves } from './model.js';
import { mean } from './runs.js';

// What curves can be drawn against: the place in a point, and by what it is divided.
export const AXES = { steps: [1, 1], tokens: [2, 1], time: [0, 1000] };

export const MOST_CURVES = 24;

// An exponential mean over about a twentieth of the curve.
export function smoothed(points) {
  if (points.length < 20) return points;
  const weight = 2 / (points.length / 20 + 1);
  let mean = points[0][1];
  return points.map(([x, y]) => [x, (mean += weight * (y - mean))]);
}

// uPlot wants x that grows.
export function rising(points) {
  let last = -Infinity;
  return points.filter(([x]) => x > last && ((last = x), true));
}

// A value of each path, arm and dense control.
export function lines(axis, column) {
  const [x, scale] = AXES[axis];
  return curves().slice(0, MOST_CURVES).map((curve, place) => {
    const points = rising(curve.points.filter((point) => point[column] > 0).map((point) => [point[x] / scale, point[column]]));
    if (curve.arm) return { label: curve.label, path: null, colour: colour(place), points };
    return { label: curve.label, path: curve.path, colour: curve.path === null ? 'var(--faint)' : colour(curve.path), dash: curve.path === null ? [6, 4] : curve.label.includes('trainer') ? [2, 3] : undefined, points };
  }).filter(({ points }) => points.length);
}

// The mean of the curves of the paths through each module.
export function byModule(m, axis) {
  const all = lines(axis, 3).filter(({ path }) => path !== null);
  const names = (m.run?.levels ?? []).flatMap(({ experts }, level) => (experts > 1 && experts <= 16 ? [...Array(experts).keys()].map((expert) => [level, expert]) : []));
  return names.slice(0, MOST_CURVES).map(([level, expert], index) => {
    const parts = all.filter(({ path }) => m.run.paths[path]?.[level] === expert);
    return { label: `module ${level}.${expert}`, colour: colour(index), dash: level % 2 ? [5, 3] : undefined, points: mean(parts.map(({ points }) => points)) };
  }).filter(({ points }) => points.length);
}

// What owners tell of the outer gradients: a value of each update, by module.
export function outer(axis, column, label, dash) {
  const names = Object.keys(data.points).filter((name) => name.startsWith('outer/')).sort((a, b) => a.localeCompare(b, 'en', { numeric: true }));
  return names.slice(0, MOST_CURVES).map((name, index) => {
    const x = (point) => (axis === 'time' ? point[0] / 1000 : point[1]);
    const points = data.points[name].filter((point) => Number.isFinite(point[column])).map((point) => [x(point), point[column]]);
    return { label: `module ${name.slice(6)}${label}`, colour: colour(index), dash, points: rising(points) };
  }).filter(({ points }) => points.length);
}
