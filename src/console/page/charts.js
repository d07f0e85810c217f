// Charts on canvas (uPlot), each with its newest values as a table.

import uPlot from './vendor/uplot.js';
import { h, paint, table } from './dom.js';

const shown = new Map();

// The curves on one axis: uPlot wants one list of x for all of them.
function aligned(series) {
  const tables = series.map(({ points }) => [points.map((point) => point[0]), points.map((point) => point[1])]);
  return uPlot.join(tables.length ? tables : [[[], []]]);
}

function options(host, spec, width) {
  const grid = { stroke: paint('var(--line)'), width: 1 };
  const axis = { stroke: paint('var(--faint)'), grid, ticks: { show: false }, font: '11px system-ui', size: 44 };
  return {
    width,
    height: spec.height ?? 240,
    scales: { x: { time: spec.time ?? false }, y: spec.log ? { distr: 3 } : { range: (u, low, high) => (low === null ? [0, 1] : uPlot.rangeNum(low, high, 0.1, true)) } },
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
  const width = Math.max(240, host.clientWidth);
  const key = JSON.stringify([spec.series.map(({ label, colour }) => [label, colour]), spec.x, spec.log, width, document.documentElement.dataset.theme, matchMedia('(prefers-color-scheme: dark)').matches]);
  const before = shown.get(id);
  const empty = spec.series.every(({ points }) => points.length === 0);
  if (empty) {
    before?.plot?.destroy();
    shown.delete(id);
    host.replaceChildren(h('p.empty', null, spec.empty ?? 'Nothing yet.'));
  } else if (!before || before.key !== key || before.host !== host) {
    before?.plot.destroy();
    host.replaceChildren();
    shown.set(id, { key, host, plot: new uPlot(options(host, spec, width), aligned(spec.series), host) });
  } else {
    before.plot.setData(aligned(spec.series));
  }
  asTable(id, spec);
}

function asTable(id, spec) {
  const host = document.getElementById(`table-${id}`);
  let details = host.querySelector('details');
  if (!details) {
    details = h('details', null, h('summary', null, 'As a table'), h('div'));
    host.append(details);
  }
  if (!details.open && details.lastChild.childNodes.length) return;
  const rows = spec.series.filter(({ points }) => points.length);
  const columns = [
    { name: 'curve', of: (row) => row.label },
    { name: spec.x, number: true, of: (row) => (spec.xTable ?? spec.xValue ?? String)(row.points.at(-1)[0]) },
    { name: 'newest', number: true, of: (row) => spec.format(row.points.at(-1)[1]) },
    { name: 'first', number: true, of: (row) => spec.format(row.points[0][1]) },
    { name: 'least', number: true, of: (row) => spec.format(Math.min(...row.points.map((point) => point[1]))) },
    { name: 'most', number: true, of: (row) => spec.format(Math.max(...row.points.map((point) => point[1]))) },
  ];
  details.lastChild.replaceChildren(table(`${spec.name ?? id}: newest values`, columns, rows));
}
