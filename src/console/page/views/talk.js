// Asks the swarm, and shows which path made each token and how likely it was.

import { badge, h, lazy, table } from '../dom.js';
import { fixed, percent, whole } from '../format.js';
import { headers, values } from '../follow.js';
import { colour } from '../model.js';

const MOST_TURNS = 6;
const MOST_TOKENS = 4096;
const ASK_AGAIN_MS = 10000;

// What the server says about itself: nothing before it has answered. What it said last is kept while it does not answer, and
// so is a text that somebody is writing.
let info = null;
let why = null;
let asked = 0;
// Newest first.
let turns = [];
let numbers = 0;
let running = null;
let said = '';

async function enquire(draw) {
  if (Date.now() - asked < ASK_AGAIN_MS) return;
  asked = Date.now();
  try {
    const response = await fetch('/api/talk', { headers: headers(), cache: 'no-store', credentials: 'omit' });
    if (response.ok) info = await response.json();
    why = response.ok ? info.why_not : refusal(response.status, '');
  } catch {
    why = 'The peer does not answer.';
  }
  draw();
}

function refusal(status, text) {
  if (status === 404) return 'This console cannot ask the swarm: it watches a folder, or the run is of images.';
  if (status === 401) return 'Open the link that the command printed: it carries the token.';
  if (status === 429) return 'The swarm is busy with another question. Try again in a moment.';
  return `The peer refuses (${status}). ${text.slice(0, 300)}`;
}

export function view(m, draw) {
  enquire(draw);
  if (!info && !why) return [h('p.notice', { 'data-key': 'why' }, 'Asking the peer whether it can answer …')];
  return [
    why ? h('p.notice', { 'data-key': 'why', role: 'status' }, why) : null,
    info ? box(draw) : null,
    // For screen readers: once at the end of an answer, not at every token.
    h('p.visually-hidden', { 'data-key': 'said', role: 'status' }, said),
    turns.map((turn) => lazy(`turn ${turn.number}`, `${turn.changes}`, () => answer(turn, draw))),
    !turns.length && !why ? h('p.empty', { 'data-key': 'none' }, 'Nothing has been asked yet. Every question stands alone: the swarm continues the text that it is given.') : null,
  ];
}

function box(draw) {
  const field = (label, name, attributes, note) => h('label.field', null, h('span', null, label), h('input', { type: 'number', name, inputmode: 'decimal', ...attributes }), note && h('small.faint', null, note));
  const enter = (event) => {
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    if (!running) ask(event.target.form, draw);
  };
  const submit = (event) => {
    event.preventDefault();
    if (running) running.abort.abort();
    else ask(event.target, draw);
  };
  return h('form.card.ask', { 'data-key': 'ask', hidden: Boolean(why) && !running, 'aria-label': 'Ask the swarm', on: { submit } },
    h('label', { for: 'question' }, 'Text that the swarm continues'),
    h('textarea', { id: 'question', name: 'text', rows: '3', maxlength: '20000', spellcheck: 'false', 'aria-describedby': 'keys', on: { keydown: enter } }),
    h('div.controls', null, h('button.main', { type: 'submit' }, running ? 'Stop' : 'Ask'), h('span.faint', { id: 'keys' }, 'Enter asks, Shift+Enter begins a line.')),
    h('details', { open: innerWidth > 620 }, h('summary', null, 'Choices'), h('div.fields', null,
      field('tokens', 'tokens', { value: '100', min: '1', max: '2048', step: '1' }, 'at most'),
      field('temperature', 'temperature', { value: '0.8', min: '0', max: '5', step: 'any' }, '0: the likeliest'),
      field('top-k', 'top_k', { value: '40', min: '0', step: '1' }, '0: any token'),
      field('seed', 'seed', { placeholder: 'drawn', min: '0', step: '1' }, 'empty: drawn'),
      field('route again every', 'every', { value: info.route_every ?? null, placeholder: 'never', min: '1', step: '1' }, 'tokens; empty: never'),
      field('path', 'path', { placeholder: 'routed', min: '0', max: String(Math.max(0, (info.paths ?? 1) - 1)), step: '1' }, `0 to ${Math.max(0, (info.paths ?? 1) - 1)}; empty: routed`))));
}

// What the form says, as the server wants it.
function question(form) {
  const number = (name, otherwise) => (form.elements[name].value.trim() === '' ? otherwise : Number(form.elements[name].value));
  return {
    text: form.elements.text.value, tokens: number('tokens', 100), temperature: number('temperature', 0.8), top_k: number('top_k', 40),
    seed: number('seed', Math.floor(Math.random() * 1e9)), every: number('every', null), path: number('path', null),
  };
}

async function ask(form, draw) {
  if (!form.reportValidity()) return;
  const wish = question(form);
  if (!wish.text.trim()) return void form.elements.text.focus();
  const turn = { number: numbers++, changes: 0, wish, tokens: [], path: null, state: 'asking', error: null, picked: null, listed: false, abort: new AbortController() };
  turns = [turn, ...turns].slice(0, MOST_TURNS);
  running = turn;
  const changed = () => (turn.changes++, draw());
  changed();
  try {
    const options = { method: 'POST', headers: { ...headers(), 'Content-Type': 'application/json' }, body: JSON.stringify(wish), signal: turn.abort.signal, cache: 'no-store', credentials: 'omit' };
    const response = await fetch('/api/talk', options);
    if (!response.ok) throw new Error(refusal(response.status, await response.text()));
    for await (const value of values(response)) {
      hear(turn, value);
      changed();
    }
    if (turn.state === 'asking') throw new Error('The answer was cut off.');
  } catch (error) {
    if (turn.abort.signal.aborted) turn.state = 'stopped';
    else Object.assign(turn, { state: 'failed', error: error.message });
  }
  running = null;
  said = turn.error ?? `Answered: ${turn.tokens.length} tokens, ${byPath(turn).map(([path, tokens]) => `${tokens} of path ${path}`).join(', ')}.`;
  changed();
}

function hear(turn, value) {
  if (value.error !== undefined) Object.assign(turn, { state: 'failed', error: value.error });
  else if (value.ended !== undefined) turn.state = value.ended ? 'ended' : 'cut';
  else if (value.path !== undefined) turn.path = value.path;
  else if (value.token !== undefined && turn.tokens.length < MOST_TOKENS) turn.tokens.push({ text: value.token, p: value.p ?? null, path: turn.path });
}

function byPath(turn) {
  const paths = new Map();
  for (const token of turn.tokens) paths.set(token.path, (paths.get(token.path) ?? 0) + 1);
  return [...paths];
}

const STATES = { asking: ['plain', 'answering'], ended: ['good', 'the text ends'], cut: ['plain', 'as many tokens as asked for'], stopped: ['warning', 'stopped'], failed: ['bad', 'failed'] };

// How likely a token was, in words, and as the line below it.
const likely = (p) => (p === null ? 'probability not told' : `probability ${percent(p)}`);
const line = (p) => (p === null ? 'untold' : p >= 0.5 ? 'likely' : p >= 0.1 ? 'less' : 'rare');
const tell = (token) => `“${token.text}” · path ${token.path ?? '–'} · ${likely(token.p)}`;

function answer(turn, draw) {
  const changed = () => (turn.changes++, draw());
  const pick = (index) => {
    turn.picked = Math.max(0, Math.min(turn.tokens.length - 1, index));
    changed();
  };
  const keys = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step || !turn.tokens.length) return;
    event.preventDefault();
    pick(turn.picked === null ? 0 : turn.picked + step);
  };
  const click = (event) => event.target.dataset.index && pick(Number(event.target.dataset.index));
  const { wish } = turn;
  const [tone, words] = STATES[turn.state];
  const settings = [`${whole(wish.tokens)} tokens at most`, `temperature ${wish.temperature}`, `top-k ${wish.top_k}`, `seed ${wish.seed}`, wish.every && `routed again every ${wish.every}`, wish.path !== null && `path ${wish.path} alone`];
  const picked = turn.picked === null ? null : turn.tokens[turn.picked];
  return h('section.card.turn', { 'aria-label': `Answer ${turn.number + 1}`, 'aria-busy': turn.state === 'asking' && 'true' },
    h('div.row', null, h('span.faint', null, settings.filter(Boolean).join(' · ')), badge(tone, words)),
    turn.error && h('p.wrong', { 'data-key': 'error' }, turn.error),
    h('div.spoken', { 'data-key': 'spoken', tabindex: '0', role: 'group', 'aria-label': 'Question and answer. Left and right arrow tell of each token', on: { keydown: keys, click } },
      h('span.asked', null, wish.text), segments(turn)),
    h('p.picked.faint', { 'data-key': 'picked', role: 'status' }, picked ? tell(picked) : turn.tokens.length ? 'Choose a token to see its path and probability.' : ' '),
    turn.tokens.length ? legend(turn) : null,
    turn.tokens.length ? listed(turn, changed) : null);
}

// The tokens, with the path's number wherever another path goes on.
function segments(turn) {
  let path;
  return turn.tokens.flatMap((token, index) => {
    const marked = token.path !== path;
    path = token.path;
    const shade = token.p === null ? 8 : Math.round(6 + 18 * token.p);
    const span = h('span', { class: `token ${line(token.p)}${index === turn.picked ? ' chosen' : ''}`, 'data-index': String(index), title: tell(token), style: { '--tone': colour(token.path ?? 0), '--shade': `${shade}%` } }, token.text);
    return marked ? [h('span.by', { style: { '--tone': colour(path ?? 0) } }, `path ${path ?? '–'}`), span] : [span];
  });
}

function legend(turn) {
  const mark = (kind, words) => h('li', null, h('span', { class: `token ${kind}`, style: { '--tone': 'var(--ink)', '--shade': '8%' } }, 'abc'), ` ${words}`);
  return h('ul.legend', { 'data-key': 'legend', 'aria-label': 'Legend' },
    byPath(turn).map(([path, tokens]) => h('li', null, h('i', { style: { background: colour(path ?? 0) } }), `path ${path ?? '–'}: ${whole(tokens)} tokens`)),
    mark('likely', '50 % and more'), mark('less', '10 to 50 %'), mark('rare', 'below 10 %'), turn.tokens.some((token) => token.p === null) ? mark('untold', 'not told') : null);
}

function listed(turn, changed) {
  const columns = [
    { name: 'token', of: (row) => row.number },
    { name: 'text', of: ({ token }) => h('span.mono', null, JSON.stringify(token.text)) },
    { name: 'path', number: true, of: ({ token }) => token.path },
    { name: 'probability', number: true, of: ({ token }) => (token.p === null ? '–' : percent(token.p)) },
    { name: 'bits', number: true, title: 'Minus the logarithm of the probability', of: ({ token }) => (token.p ? fixed(-Math.log2(token.p), 2) : '–') },
  ];
  const toggle = () => ((turn.listed = !turn.listed), changed());
  return h('div', { 'data-key': 'listed' }, h('button', { type: 'button', 'aria-pressed': String(turn.listed), on: { click: toggle } }, 'List tokens'),
    turn.listed ? table('Tokens of the answer', columns, turn.tokens.map((token, index) => ({ token, number: index + 1 }))) : null);
}
