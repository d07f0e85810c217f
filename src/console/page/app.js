// The page: which view is shown, and what is in the summary.

import { bytes, clock, count, duration, fixed, percent, whole } from './format.js';
import { data, follow } from './follow.js';
import { curves, model, remaining } from './model.js';
import { h, lazy, meter, render } from './dom.js';
import * as swarm from './views/swarm.js';
import * as learning from './views/learning.js';
import * as time from './views/time.js';
import * as people from './views/people.js';
import * as talk from './views/talk.js';
import * as events from './views/events.js';

const VIEWS = [['swarm', 'Swarm', swarm], ['learning', 'Learning', learning], ['time', 'Bytes and time', time], ['people', 'Contributions', people], ['talk', 'Talk', talk], ['events', 'Events', events]];

let current = VIEWS.find(([id]) => `#${id}` === location.hash) ?? VIEWS[0];
let queued = false;
const at = (id) => document.getElementById(id);

function tabs() {
  render(at('tabs'), VIEWS.map((view) => h('li', null, h('a', { href: `#${view[0]}`, 'aria-current': view === current ? 'page' : null }, view[1], view[0] === 'events' && events.unseen() ? h('span.dot', { title: 'new' }) : null))));
}

// On a phone not all tabs fit.
function toTab() {
  at('tabs').querySelector('[aria-current]')?.scrollIntoView({ block: 'nearest', inline: 'center' });
}

function show() {
  queued = false;
  if (document.hidden) return;
  tabs();
  const m = model();
  at('run-name').textContent = m.run?.name ?? 'pathswarm';
  at('run-id').textContent = m.own[0]?.status.run.slice(0, 8) ?? '';
  document.title = m.run ? `${m.run.name} · pathswarm` : 'pathswarm';
  render(at('summary'), m.state ? lazy('summary', `${data.frames}`, () => h('div', null, summary(m))) : []);
  if (!m.state) return;
  const host = at('view');
  if (host.dataset.view !== current[0]) {
    host.replaceChildren();
    host.dataset.view = current[0];
  }
  render(host, h('h2', null, current[1]), current[2].view(m, draw));
  current[2].drawn?.(m);
  at('foot').textContent = `pathswarm ${m.state.program} · this process since ${clock(m.state.began)}`;
}

export function draw() {
  if (queued) return;
  queued = true;
  requestAnimationFrame(show);
}

const tile = (label, value, note, share) => h('div.tile', null, h('div.label', null, label), h('div.value', null, value), h('div.note', null, share === undefined ? note ?? ' ' : meter(share), share === undefined ? null : h('span', null, ` ${note}`)));

function summary(m) {
  const { stage } = m.state;
  const busy = stage && h('p.notice', null, h('span', null, `Preparing: ${stage.name}`), meter(stage.done / stage.total), h('span.mono', null, `${whole(stage.done)} of ${whole(stage.total)}`));
  if (!m.own.length && (Object.keys(m.state.services ?? {}).length || curves().length)) return [busy].filter(Boolean);
  if (!m.own.length) return [busy ?? h('p.notice', null, 'No peer is there yet.')];
  // Not of paths that others have taken over.
  const here = new Set(m.paths.filter((path) => path.own).map((path) => path.path));
  const lines = curves().filter((curve) => here.has(curve.path));
  const mean = (values) => (values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null);
  const all = m.run.phases * m.run.inner_steps;
  const steps = lines.map((curve) => curve.last[1]);
  const share = steps.length ? mean(steps) / all : mean(m.modules.map((module) => (module.phase ?? 0) / m.run.phases)) ?? 0;
  const done = m.own.every((peer) => peer.status.done);
  const left = done ? null : remaining(m.run);
  const sum = (of) => m.own.reduce((total, peer) => total + (of(peer) ?? 0), 0);
  const training = m.own.filter((peer) => peer.doing?.kind === 'training' && !peer.silent_since);
  const waiting = m.paths.filter((path) => path.wait);
  const scores = Object.entries(data.points).filter(([name]) => name.startsWith('held-out/')).map(([, points]) => points.at(-1)[2] / 1000);
  return [
    busy,
    h('div.tiles', null,
      tile('Progress', percent(done ? 1 : share), done ? 'all paths here are done' : left === null ? `${whole(m.run.phases)} phases` : `about ${duration(left)} left`, done ? 1 : share),
      tile('Training loss', fixed(mean(lines.map((curve) => curve.last[3]))), `nats a token, mean of ${lines.length} ${lines.length === 1 ? 'path' : 'paths'} here`),
      tile('Held out', fixed(mean(scores)), scores.length ? `bits a byte, ${scores.length} paths` : 'no path is scored yet'),
      tile('Speed', count(training.reduce((total, peer) => total + (peer.status.activity.tokens_per_s ?? 0), 0)), `tokens/s; ${count(sum((peer) => peer.status.activity.tokens))} tokens in all`),
      tile('Peers', whole(m.members.length), m.own.length > 1 ? `${m.own.length} asked here` : `${m.own[0].status.activity.connections} connected`),
      tile('Exchanged', bytes(sum((peer) => peer.status.traffic.blob_bytes_sent + peer.status.traffic.message_bytes_sent)), `sent; ${bytes(sum((peer) => peer.status.traffic.blob_bytes_received + peer.status.traffic.message_bytes_received))} received`),
      tile('Now', done ? 'done' : training.length ? 'training' : waiting.length ? 'waiting' : 'starting', `${training.length} of ${m.own.length} ${m.own.length === 1 ? 'peer' : 'peers'} training, ${waiting.length} ${waiting.length === 1 ? 'path waits' : 'paths wait'}`),
    ),
  ].filter(Boolean);
}

function theme() {
  const names = ['auto', 'light', 'dark'];
  const button = at('theme');
  let chosen = 'auto';
  try {
    chosen = localStorage.getItem('theme') ?? 'auto';
  } catch { /* storage may be off */ }
  const set = () => {
    if (chosen === 'auto') delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = chosen;
    button.textContent = chosen;
    button.setAttribute('aria-label', `Colours: ${chosen === 'auto' ? 'as the system' : chosen}. Change`);
    draw();
  };
  button.onclick = () => {
    chosen = names[(names.indexOf(chosen) + 1) % names.length];
    try {
      localStorage.setItem('theme', chosen);
    } catch { /* storage may be off */ }
    set();
  };
  set();
}

addEventListener('hashchange', () => {
  current = VIEWS.find(([id]) => `#${id}` === location.hash) ?? current;
  draw();
  requestAnimationFrame(toTab);
});
addEventListener('resize', draw);
document.addEventListener('visibilitychange', draw);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
theme();
follow(() => {
  events.announce(at('announce'));
  draw();
}, (kind, words) => {
  const link = at('link');
  link.className = `link ${kind}`;
  link.textContent = words;
});
