// Charts on canvas (uPlot), each with its newest values as a table.

import uPlot from './vendor/uplot.js';
import { h, make, paint, render, table } from './dom.js';

const shown = new Map();

// To ask for the width of a chart makes the browser lay the page out, so it is asked for once for each width of the page.
let pageWidth = 0;
new ResizeObserver(([entry]) => (pageWidth = entry.contentRect.width)).observe(document.getElementById('view'));

const MOST_POINTS = 4000;
const COLUMNS = 800;

// The curves on one axis: uPlot wants one list of x for all of them. Many curves, each with an x of its own, would make it
// long, so they share the columns of a chart: of each curve the newest point of a column.
function aligned(series) {
  const tables = grouped(series).map((points) => [points.map((point) => point[0]), points.map((point) => point[1])]);
  return uPlot.join(tables.length ? tables : [[[], []]]);
}

function grouped(series) {
  const all = series.map(({ points }) => points);
  if (all.reduce((sum, points) => sum + points.length, 0) <= MOST_POINTS) return all;
  const from = Math.min(...all.map((points) => points[0]?.[0] ?? Infinity));
  const width = (Math.max(...all.map((points) => points.at(-1)?.[0] ?? -Infinity)) - from) / COLUMNS || 1;
  return all.map((points) => {
    const columns = new Map();
    for (const [x, y] of points) columns.set(Math.floor((x - from) / width), y);
    return [...columns].map(([column, y]) => [from + column * width, y]);
  });
}

function options(host, spec, width) {
  const grid = { stroke: paint('var(--line)'), width: 1 };
  const axis = { stroke: paint('var(--faint)'), grid, ticks: { show: false }, font: '11px system-ui', size: 44 };
  return {
    width,
    height: spec.height ?? 240,
    scales: { x: { time: spec.time ?? false }, y: spec.range ? { range: spec.range } : { range: (u, low, high) => (low === null ? [0, 1] : uPlot.rangeNum(low, high, 0.1, true)) } },
    axes: [{ ...axis, size: 34, values: spec.time ? undefined : spec.xValues }, { ...axis, size: spec.axis ?? 52, values: spec.values }],
    series: [
      { label: spec.x, value: spec.time ? undefined : (u, value) => (value === null ? '–' : (spec.xValue ?? String)(value)) },
      ...spec.series.map(({ label, colour, dash }) => ({ label, stroke: paint(colour), width: 1.75, dash, spanGaps: true, points: { show: spec.dots ?? false, size: 6 }, value: (u, value) => (value === null || value === undefined ? '–' : spec.format(value)) })),
    ],
    legend: { show: spec.series.length <= 12, live: true },
    cursor: { drag: { x: true, y: false }, points: { size: 7 } },
  };
}

// A place for a chart. `update` fills it once it is in the page.
export function chart(id, title, note) {
  return h('section.card.chart', { 'data-key': id }, h('h3', null, title), note && h('p.faint', null, note), h('div.plot', { id: `plot-${id}`, 'data-own': '' }), h('div', { id: `table-${id}`, 'data-own': '' }));
}

export function update(id, spec) {
  const host = document.getElementById(`plot-${id}`);
  if (!host) return;
  const before = shown.get(id);
  const width = before?.host === host && before.pageWidth === pageWidth ? before.width : Math.max(240, host.clientWidth);
  const key = JSON.stringify([spec.series.map(({ label, colour }) => [label, colour]), spec.x, width, document.documentElement.dataset.theme, matchMedia('(prefers-color-scheme: dark)').matches]);
  const stamp = JSON.stringify(spec.series.map(({ points }) => [points.length, points.at(-1)]));
  const empty = spec.series.every(({ points }) => points.length === 0);
  if (empty) {
    before?.plot.destroy();
    shown.delete(id);
    host.replaceChildren(make(h('p.empty', null, spec.empty ?? 'Nothing yet.')));
  } else if (!before || before.key !== key || before.host !== host) {
    before?.plot.destroy();
    host.replaceChildren();
    const plot = new uPlot(options(host, spec, width), aligned(spec.series), host);
    plot.root.querySelector('.u-legend').setAttribute('aria-label', `${spec.name ?? id}: legend`);
    shown.set(id, { key, host, stamp, plot, width, pageWidth });
  } else if (before.stamp !== stamp) {
    before.stamp = stamp;
    before.plot.setData(aligned(spec.series));
  }
  asTable(id, spec);
}

function asTable(id, spec) {
  const host = document.getElementById(`table-${id}`);
  let details = host.querySelector('details');
  if (!details) {
    details = make(h('details', { on: { toggle: () => asTable(id, details.spec) } }, h('summary', null, 'As a table'), h('div')));
    host.append(details);
  }
  details.spec = spec;
  if (!details.open) return;
  const rows = spec.series.filter(({ points }) => points.length);
  const columns = [
    { name: 'curve', of: (row) => row.label },
    { name: spec.x, number: true, of: (row) => (spec.xTable ?? spec.xValue ?? String)(row.points.at(-1)[0]) },
    { name: 'newest', number: true, of: (row) => spec.format(row.points.at(-1)[1]) },
    { name: 'first', number: true, of: (row) => spec.format(row.points[0][1]) },
    { name: 'least', number: true, of: (row) => spec.format(row.points.reduce((least, point) => Math.min(least, point[1]), Infinity)) },
    { name: 'most', number: true, of: (row) => spec.format(row.points.reduce((most, point) => Math.max(most, point[1]), -Infinity)) },
  ];
  render(details.lastChild, table(`${spec.name ?? id}: newest values`, columns, rows));
}
