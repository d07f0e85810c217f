// The log of events, in words.

import { badge, h, table } from '../dom.js';
import { clock } from '../format.js';
import { data } from '../follow.js';

const MOST_ROWS = 200;
const TONES = { all: () => true, 'warnings': (event) => event.tone === 'warning' || event.tone === 'bad' };
let wanted = '';
let tone = 'all';
let seen = -1;
let told = -1;
let began = false;

export const unseen = () => began && data.events.some((event) => event.id > seen && TONES.warnings(event));

export function view(m, draw) {
  seen = data.events.at(-1)?.id ?? -1;
  const choose = (name) => h('button', { type: 'button', 'aria-pressed': String(tone === name), on: { click: () => ((tone = name), draw()) } }, name);
  const rows = data.events.filter((event) => TONES[tone](event) && (!wanted || `${event.peer ?? ''} ${event.line}`.toLowerCase().includes(wanted))).reverse();
  const columns = [
    { name: 'at', of: (event) => h('span.mono', null, clock(event.at)) },
    { name: 'peer', of: (event) => event.peer ?? '–' },
    { name: 'kind', of: (event) => badge(event.tone, { plain: 'note', good: 'good', warning: 'warning', bad: 'trouble' }[event.tone]) },
    { name: 'what', of: (event) => h('span.line', null, event.line) },
  ];
  return [
    h('div.controls', { 'data-key': 'controls' }, h('div.segments', { role: 'group', 'aria-label': 'Show' }, Object.keys(TONES).map(choose)), h('label.search', null, 'Find ', h('input', { type: 'search', on: { input: (event) => ((wanted = event.target.value.trim().toLowerCase()), draw()) } }))),
    h('section.card', { 'data-key': 'log' }, rows.length ? table('Events, newest first', columns, rows.slice(0, MOST_ROWS), (event) => event.id) : h('p.empty', null, 'Nothing has happened yet.'), rows.length > MOST_ROWS ? h('p.faint', null, `and ${rows.length - MOST_ROWS} earlier ones`) : null),
  ];
}

// Tells a screen reader what is new and needs attention, and nothing else.
export function announce(region) {
  const newest = data.events.at(-1)?.id ?? -1;
  if (began) {
    const lines = data.events.filter((event) => event.id > told && TONES.warnings(event)).map((event) => `${event.peer ?? ''} ${event.line}`);
    if (lines.length) region.textContent = lines.slice(-3).join('. ');
  }
  if (!began) seen = newest;
  [told, began] = [newest, true];
}
