// The grid of modules, the paths, and the peers.

import { badge, h, meter, table } from '../dom.js';
import { bytes, clock, count, duration, fixed, percent, short, whole } from '../format.js';
import { data } from '../follow.js';
import { colour } from '../model.js';

const MOST_ROWS = 100;
const MOST_WAITS = 20;
let wanted = '';

export function view(m, draw) {
  if (!m.run) return [services(m) ?? h('section.card', { 'data-key': 'none' }, h('p.empty', null, 'No run is shown yet.'))];
  return [services(m), waits(m), grid(m), paths(m), members(m, draw)].filter(Boolean);
}

// What this process does besides: a relay, a server.
function services(m) {
  const all = Object.entries(m.state.services ?? {});
  const columns = [
    { name: 'number', of: ({ fact }) => fact.help },
    { name: 'value', number: true, of: ({ fact }) => (fact.bytes ? bytes(fact.value) : whole(fact.value)) },
  ];
  return all.length ? h('section.card', { 'data-key': 'services' }, all.map(([name, facts]) => [h('h3', null, name), table(`What the ${name} does`, columns, facts.map((fact, index) => ({ fact, key: `${name} ${index}` })), ({ key }) => key)])) : null;
}

// What is waited for, since when, until when, and what follows.
function waits(m) {
  const rows = m.paths.filter((path) => path.wait && path.stage !== 'done');
  const others = m.own.filter((peer) => peer.waits && !peer.status.done && !Object.keys(peer.path_waits).length);
  const silent = m.own.filter((peer) => peer.silent_since);
  if (!rows.length && !others.length && !silent.length) return h('section.card', { 'data-key': 'waits' }, h('h3', null, 'Waiting'), h('p.empty', null, m.own.every((peer) => peer.status.done) ? 'Nothing: all paths here are done.' : 'Nothing: every path here trains.'));
  const now = data.at;
  const item = (key, who, wait, left) => h('li', { 'data-key': key },
    h('div', null, h('b', null, who), ' waits for ', wait.words),
    h('div.faint', null, [wait.since ? `since ${clock(wait.since)} (${duration((now - wait.since) / 1000)})` : null, left === undefined || left === null ? null : `at most ${duration(left)} more`, wait.then].filter(Boolean).join(' · ')));
  return h('section.card', { 'data-key': 'waits' }, h('h3', null, 'Waiting'), h('ul.waits', null,
    silent.slice(0, MOST_WAITS).map((peer) => h('li', { 'data-key': `silent ${peer.label}` }, h('b', null, peer.label), ` has not answered since ${clock(peer.silent_since)}: what is shown of it is from then.`)),
    others.slice(0, MOST_WAITS).map((peer) => item(peer.label, peer.label, peer.waits)),
    rows.slice(0, MOST_WAITS).map((path) => item(path.at, `${m.own.length > 1 ? `${path.label}, ` : ''}path ${path.path}${path.trainer > 1 ? `, trainer ${path.trainer}` : ''}`, path.wait, path.left))),
  beyond(silent.length, others.length, rows.length));
}

function beyond(...lengths) {
  const left = lengths.reduce((sum, length) => sum + Math.max(0, length - MOST_WAITS), 0);
  return left ? h('p.faint', null, `and ${whole(left)} more`) : null;
}

function grid(m) {
  const owners = [...new Set(m.modules.map((module) => module.owner).filter(Boolean))].sort();
  const cell = (module) => {
    const owner = module.owner;
    const state = module.differs ? badge('bad', 'differs', 'Members have another state of the same version') : module.version === null ? badge('plain', 'elsewhere', 'No peer that this page asks has it') : !owner ? badge('warning', 'no owner') : module.alone ? badge('warning', 'no replica', 'No other living peer has it') : badge('good', 'agrees', 'All that are known have the same state of the same version');
    return h('div.module', { 'data-key': module.name, style: { '--owner': owner ? colour(owners.indexOf(owner)) : 'var(--line)' } },
      h('div.row', null, h('b.mono', null, module.name), state),
      meter((module.phase ?? 0) / m.run.phases, `${module.phase ?? 0} of ${m.run.phases} rounds`),
      h('div.row', null, h('span', null, module.version === null ? '–' : `version ${whole(module.version)}`), h('span.faint', null, `${whole(module.members)} ${module.members === 1 ? 'member' : 'members'}`)),
      h('div.row', null, h('span', owner || module.version !== null ? null : { title: 'Only its members say who owns it' }, owner ? m.name(owner) : module.version === null ? '–' : 'nobody'), h('span.faint.mono', { title: module.hash }, module.hash ? module.hash.slice(0, 8) : '')));
  };
  const level = (it, index) => h('div.level', { 'data-key': `level ${index}` },
    h('h4', null, `Level ${index}`, h('span.faint', null, ` ${it.parts}`)),
    h('div.modules', null, m.modules.filter((module) => module.level === index).slice(0, 256).map(cell)),
    it.experts > 256 ? h('p.faint', null, `and ${it.experts - 256} more modules`) : null);
  return h('section.card', { 'data-key': 'grid' }, h('h3', null, 'Modules'), h('p.faint', null, 'Each level has modules that paths share. The colour is the owner, who averages the contributions of the paths that go through the module.'), m.run.levels.map(level));
}

const STAGES = { training: 'good', waiting: 'warning', done: 'plain', joining: 'plain', leaving: 'warning', skipping: 'plain', 'no trainer': 'bad' };

function paths(m) {
  const route = (path) => (m.run.paths[path.path] ?? []).map((expert, level) => `${level}.${expert}`).join(' → ');
  const newest = (path) => data.points[path.trainer > 1 ? `path/${path.path}/${path.trainer}` : `path/${path.path}`]?.at(-1);
  const score = (path) => data.points[`held-out/${path.path}`]?.at(-1)?.[2];
  const columns = [
    { name: 'path', of: (path) => `${path.path}${path.trainer > 1 ? ` · ${path.trainer}` : ''}` },
    { name: 'modules', of: (path) => h('span.mono', null, route(path) || '–') },
    { name: 'trainer', of: (path) => (path.key ? m.name(path.key) : '–') },
    { name: 'stage', of: (path) => badge(path.silent ? 'bad' : STAGES[path.stage] ?? 'plain', path.silent ? `silent ${duration(path.silent)}` : path.stage) },
    { name: 'phase', number: true, of: (path) => (path.phase === null || path.phase === undefined ? '–' : `${Math.min(path.phase + (path.stage === 'training' ? 1 : 0), m.run.phases)}/${m.run.phases}`) },
    { name: 'step', number: true, of: (path) => (path.activity ? h('span', null, meter(path.activity.step / m.run.inner_steps), ` ${whole(path.activity.step)}/${whole(m.run.inner_steps)}`) : '–') },
    { name: 'loss', number: true, of: (path) => fixed(path.own ? newest(path)?.[3] : null) },
    { name: 'bits a byte', number: true, title: 'Newest known score on held-out text', of: (path) => (score(path) ? fixed(score(path) / 1000) : '–') },
    { name: 'tokens/s', number: true, of: (path) => (path.activity ? count(path.activity.tokens_per_s) : '–') },
  ];
  const rows = m.paths.slice(0, MOST_ROWS);
  return h('section.card', { 'data-key': 'paths' }, h('h3', null, 'Paths'), table('Paths and who trains them', columns, rows, (path) => path.at), more(m.paths, rows), h('p.faint', null, 'Loss and speed are known of the peers alone that this page asks.'));
}

const more = (all, shown) => (all.length > shown.length ? h('p.faint', null, `and ${all.length - shown.length} more`) : null);

const link = (peer) => (peer.relayed === null ? '–' : peer.relayed ? badge('warning', 'relayed', 'Through a relay') : 'direct');

function members(m, draw) {
  const state = (peer) => {
    if (peer.banned) return badge('bad', 'banned', peer.banned);
    if (peer.quarantined) return badge('bad', 'quarantined', peer.quarantined);
    if (peer.own?.silent_since) return badge('bad', 'does not answer');
    if (peer.silent) return badge('warning', `silent ${duration(peer.silent)}`);
    if (peer.differs) return badge('bad', 'differs', 'Its state of a module is another one of the same version');
    return badge('good', 'lives');
  };
  const versions = (peer) => {
    const names = Object.entries(peer.modules);
    return h('span.mono', { title: names.map(([name, version]) => `${name} at ${version ?? '–'}`).join(', ') }, names.slice(0, 6).map(([name, version]) => `${name}@${version ?? '–'}`).join(' '), names.length > 6 ? ` +${names.length - 6}` : '');
  };
  const columns = [
    { name: 'peer', of: (peer) => h('span', { title: peer.key }, peer.own ? `${peer.own.label} ` : '', h('span.mono.faint', null, short(peer.key))) },
    { name: 'state', of: state },
    { name: 'paths', of: (peer) => peer.paths.filter((path) => path.stage !== 'standby').map((path) => path.path).join(', ') || '–' },
    { name: 'stands by', of: (peer) => peer.paths.filter((path) => path.stage === 'standby').map((path) => path.path).join(', ') || '–' },
    { name: 'modules', of: versions },
    { name: 'steps/s', number: true, title: 'Inner steps a second of each path, as the peer announces', of: (peer) => (peer.pace ? fixed(peer.pace / 1000, 1) : '–') },
    { name: 'device', title: 'On what a peer trains that this page asks', of: (peer) => peer.own?.status.activity.device || '–' },
    { name: 'fetches at', number: true, title: 'Bytes a second while it fetched blobs from others', of: (peer) => (peer.own?.fetched?.seconds ? `${bytes(peer.own.fetched.bytes / peer.own.fetched.seconds)}/s` : '–') },
    { name: 'link', title: 'How a peer that this page asks is connected to it', of: link },
    { name: 'round trip', number: true, title: 'The shortest to a peer that this page asks', of: (peer) => (peer.round_trip === null ? '–' : `${peer.round_trip < 10 ? fixed(peer.round_trip, 1) : whole(peer.round_trip)} ms`) },
    { name: 'reachable', title: 'Whether others can connect to it from outside', of: (peer) => peer.own?.status.activity.reachability ?? '–' },
    { name: 'device memory', number: true, of: (peer) => bytes(peer.own?.status.activity.device_memory_bytes) },
    { name: 'counted', number: true, title: 'Contributions that updates have counted', of: (peer) => whole(peer.counted) },
    { name: 'faults', number: true, of: (peer) => whole(peer.faults) },
    { name: 'why', of: (peer) => peer.banned ?? (peer.quarantined || '–') },
  ];
  const fits = m.members.filter((peer) => !wanted || peer.key.includes(wanted) || (peer.own?.label ?? '').includes(wanted));
  const rows = fits.slice(0, MOST_ROWS);
  const search = m.members.length > 20 && h('label.search', null, 'Find a peer ', h('input', { type: 'search', placeholder: 'key or name', on: { input: (event) => ((wanted = event.target.value.trim()), draw()) } }));
  return h('section.card', { 'data-key': 'members' }, h('h3', null, 'Peers'), search, table('Peers of the run that are known here', columns, rows, (peer) => peer.key), more(fits, rows));
}
