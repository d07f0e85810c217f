// Bytes by kind, and what each peer did when.

import { h, make, paint, table } from '../dom.js';
import { bytes, clock, duration, fixed, percent } from '../format.js';
import { data } from '../follow.js';
import { uptime } from '../model.js';

const WINDOWS = { '2 min': 120, '10 min': 600, '1 h': 3600, all: Infinity };
const MOST_ROWS = 100;
let span = '10 min';

// What a wait is called in the legend, and its colour.
const WAITS = {
  contributions: ['contributions missing', '--w1'], arriving: ['contributions arrive', '--w1'], collecting: ['collecting', '--w1'], owner: ['the owner', '--w2'], unowned: ['no owner', '--w4'], applying: ['applying an update', '--w3'], combining: ['averaging', '--w3'], turn: ['its turn', '--w5'],
  directory: ['joining', '--w6'], nobody: ['joining', '--w6'], modules: ['joining', '--w6'], text: ['joining', '--w6'], trainer: ['joining', '--w6'], return: ['joining', '--w6'], settling: ['a new owner', '--w2'], skipping: ['a skipped round', '--w5'], disk: ['the disk', '--w4'],
};
const named = (kind) => WAITS[kind] ?? [kind, '--w6'];

export function view(m, draw) {
  const choose = (name) => h('button', { type: 'button', 'aria-pressed': String(span === name), on: { click: () => ((span = name), draw()) } }, name);
  return [
    exchanged(m),
    shares(m),
    h('section.card', { 'data-key': 'gantt' }, h('h3', null, 'What each peer did when'), h('div.controls', null, h('div.segments', { role: 'group', 'aria-label': 'Window' }, h('span.faint', null, 'the last'), Object.keys(WINDOWS).map(choose))), legend(), h('div', { id: 'gantt', 'data-own': '' }), m.own.length > PAGE ? h('p.faint', null, `The first ${PAGE} of ${m.own.length} peers.`) : null, newest(m)),
  ];
}

function exchanged(m) {
  const total = (of) => m.own.reduce((sum, peer) => sum + of(peer.status), 0);
  const rate = (bytes, parameters) => (parameters ? (8 * bytes) / parameters : NaN);
  const up = rate(total((it) => it.synced.contribution_bytes), total((it) => it.synced.contribution_parameters));
  const down = rate(total((it) => it.synced.average_bytes), total((it) => it.synced.average_parameters));
  const columns = [
    { name: 'peer', of: (peer) => peer.label },
    { name: 'blobs sent', number: true, of: (peer) => bytes(peer.status.traffic.blob_bytes_sent) },
    { name: 'blobs received', number: true, of: (peer) => bytes(peer.status.traffic.blob_bytes_received) },
    { name: 'forwarded', number: true, of: (peer) => bytes(peer.status.traffic.blob_bytes_forwarded) },
    { name: 'messages sent', number: true, of: (peer) => bytes(peer.status.traffic.message_bytes_sent) },
    { name: 'messages received', number: true, of: (peer) => bytes(peer.status.traffic.message_bytes_received) },
    { name: 'contributions', number: true, title: 'Compressed outer gradients fetched as owner', of: (peer) => bytes(peer.status.synced.contribution_bytes) },
    { name: 'averages', number: true, title: 'Compressed averages fetched as member', of: (peer) => bytes(peer.status.synced.average_bytes) },
    { name: 'a fetch took', number: true, title: 'On average', of: (peer) => (peer.fetched.blobs ? `${fixed(peer.fetched.seconds / peer.fetched.blobs, 2)} s` : '–') },
    { name: 'on disk', number: true, of: (peer) => bytes(peer.status.activity.disk_bytes) },
  ];
  return h('section.card', { 'data-key': 'bytes' }, h('h3', null, 'Bytes'),
    h('p', null, 'A parameter costs ', h('b.mono', null, Number.isFinite(up) ? fixed(up, 2) : '–'), ' bits up and ', h('b.mono', null, Number.isFinite(down) ? fixed(down, 2) : '–'), ' bits down in an exchange, as the peers that this page asks received them from others.'),
    table('Payload since each peer started', columns, m.own.slice(0, MOST_ROWS), (peer) => peer.label), more(m));
}

function shares(m) {
  const rows = m.own.slice(0, MOST_ROWS).map((peer) => {
    const trained = peer.status.activity.trained_s;
    const waits = Object.entries(peer.waited_s);
    const waited = waits.reduce((sum, [, seconds]) => sum + seconds, 0);
    const other = Math.max(0, uptime(peer) - trained - waited);
    return { peer, trained, waits, waited, other, all: trained + waited + other || 1 };
  });
  const bar = ({ trained, waits, all }) => h('span.stack', { role: 'img', 'aria-label': `${percent(trained / all)} trained` },
    h('i', { style: { width: `${(100 * trained) / all}%`, background: 'var(--train)' } }),
    waits.map(([kind, seconds]) => h('i', { title: named(kind)[0], style: { width: `${(100 * seconds) / all}%`, background: `var(${named(kind)[1]})` } })));
  const columns = [
    { name: 'peer', of: (row) => row.peer.label },
    { name: 'share of its time', of: bar },
    { name: 'trained', number: true, of: (row) => percent(row.trained / row.all) },
    { name: 'waited', number: true, of: (row) => percent(row.waited / row.all) },
    { name: 'other', number: true, title: 'Waiting for the device, starting, scoring, or done', of: (row) => percent(row.other / row.all) },
    { name: 'longest wait for', of: (row) => { const most = row.waits.toSorted((a, b) => b[1] - a[1])[0]; return most ? `${named(most[0])[0]} (${duration(most[1])})` : '–'; } },
    { name: 'up for', number: true, of: (row) => duration(uptime(row.peer)) },
  ];
  return h('section.card', { 'data-key': 'shares' }, h('h3', null, 'Time'), table('Share of time since each peer started', columns, rows, (row) => row.peer.label), more(m));
}

const more = (m) => (m.own.length > MOST_ROWS ? h('p.faint', null, `and ${m.own.length - MOST_ROWS} more peers`) : null);

function legend() {
  const kinds = new Set([...data.spans.values()].map((it) => it.kind).filter((kind) => kind !== 'training'));
  // Waits of a family have a colour.
  const families = new Map();
  for (const [words, token] of [...kinds].map(named)) families.set(token, (families.get(token) ?? new Set()).add(words));
  return h('ul.legend', { 'data-key': 'legend' }, h('li', null, h('i', { style: { background: 'var(--train)' } }), 'training (shade: phase)'), [...families].map(([token, words]) => h('li', null, h('i', { style: { background: `var(${token})` } }), [...words].join(', '))));
}

// A table of the newest spans: what the picture shows, for those who do not see it.
function newest(m) {
  const rows = [...data.spans.values()].slice(-40).reverse();
  const columns = [
    { name: 'peer', of: (it) => it.peer },
    { name: 'did', of: (it) => (it.kind === 'training' ? `trained path ${it.path}, phase ${it.phase + 1}` : `waited for ${it.words}`) },
    { name: 'from', number: true, of: (it) => clock(it.from) },
    { name: 'took', number: true, of: (it) => duration(((it.to ?? data.at) - it.from) / 1000) },
  ];
  return h('details', { 'data-key': 'newest' }, h('summary', null, 'As a table'), table('The newest 40 parts', columns, rows, (it) => it.id));
}

const LANE = 22;
const LEFT = 84;
const PAGE = 64;

export function drawn(m) {
  const host = document.getElementById('gantt');
  if (!host) return;
  const lanes = m.own.map((peer) => peer.label).slice(0, PAGE);
  const until = data.at;
  const spans = [...data.spans.values()];
  const first = spans.length ? spans[0].from : until;
  const from = Math.max(first, until - 1000 * WINDOWS[span]);
  const width = Math.max(240, host.clientWidth);
  const height = lanes.length * LANE + 24;
  let canvas = host.querySelector('canvas');
  if (!canvas) {
    canvas = make(h('canvas', { role: 'img', 'aria-label': 'What each peer did when; the table below says the same' }));
    host.replaceChildren(canvas, make(h('div.tip', { hidden: true })));
  }
  const scale = devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    [canvas.width, canvas.height] = [Math.round(width * scale), Math.round(height * scale)];
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  drawSpans(canvas.getContext('2d'), { lanes, spans, from, until, width, height, scale });
  canvas.onmousemove = (event) => tip(host, event, { lanes, spans, from, until, width });
  canvas.onmouseleave = () => (host.querySelector('.tip').hidden = true);
}

function drawSpans(context, { lanes, spans, from, until, width, height, scale }) {
  const known = new Map();
  const token = (name) => known.get(name) ?? known.set(name, paint(`var(${name})`)).get(name);
  const x = (at) => LEFT + ((at - from) / Math.max(1, until - from)) * (width - LEFT - 4);
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = '12px system-ui';
  context.textBaseline = 'middle';
  lanes.forEach((lane, index) => {
    context.fillStyle = token('--ink');
    context.fillText(lane, 0, index * LANE + LANE / 2, LEFT - 8);
    context.fillStyle = token('--line');
    context.fillRect(LEFT, index * LANE + LANE - 1, width - LEFT, 1);
  });
  for (const it of spans) {
    const lane = lanes.indexOf(it.peer);
    const end = it.to ?? until;
    if (lane < 0 || end < from) continue;
    const [left, right] = [x(Math.max(it.from, from)), x(end)];
    context.fillStyle = token(it.kind === 'training' ? (it.phase % 2 ? '--train-odd' : '--train') : named(it.kind)[1]);
    context.fillRect(left, lane * LANE + 3, Math.max(0.6, right - left - (right - left > 3 ? 0.5 : 0)), LANE - 7);
    if (it.kind === 'training' && right - left > 46) {
      context.fillStyle = token('--on-train');
      context.fillText(`${it.path} · ${it.phase + 1}`, left + 5, lane * LANE + LANE / 2 - 1, right - left - 8);
    }
  }
  context.fillStyle = token('--faint');
  const ticks = Math.max(2, Math.min(6, Math.floor((width - LEFT) / 110)));
  for (let tick = 0; tick <= ticks; tick++) {
    const at = from + ((until - from) * tick) / ticks;
    context.textAlign = tick === 0 ? 'left' : tick === ticks ? 'right' : 'center';
    context.fillText(clock(at), x(at), height - 10);
  }
  context.textAlign = 'left';
}

function tip(host, event, { lanes, spans, from, until, width }) {
  const box = event.target.getBoundingClientRect();
  const lane = lanes[Math.floor((event.clientY - box.top) / LANE)];
  const at = from + ((event.clientX - box.left - LEFT) / (width - LEFT - 4)) * (until - from);
  const it = spans.findLast((one) => one.peer === lane && one.from <= at && (one.to ?? until) >= at);
  const element = host.querySelector('.tip');
  element.hidden = !it;
  if (!it) return;
  const what = it.kind === 'training' ? `path ${it.path}, phase ${it.phase + 1}` : `waits for ${it.words}`;
  element.textContent = `${it.peer}: ${what} · ${clock(it.from)}, ${duration(((it.to ?? until) - it.from) / 1000)}`;
  element.style.left = `${Math.max(0, Math.min(event.clientX - box.left, width - 260))}px`;
  element.style.top = `${Math.floor((event.clientY - box.top) / LANE) * LANE + LANE}px`;
}
