// What the views need, made of the statuses of this process's peers and of what they hear of others.

import { data } from './follow.js';
import { short } from './format.js';

const PALETTE = 10;

// A colour of the style sheet for a number.
export const colour = (index) => `var(--c${index % PALETTE})`;

// Seconds since a peer of this process started.
export const uptime = (peer) => Math.max(0, (data.at - peer.status.activity.started_ms) / 1000);

let made = { frames: -1 };

// Made once for each frame, however often the page is drawn.
export function model() {
  if (made.frames !== data.frames) made = { frames: data.frames, ...make() };
  return made;
}

function make() {
  const { state } = data;
  const run = state?.run;
  const own = Object.entries(state?.peers ?? {}).filter(([, peer]) => peer.status).map(([label, peer]) => ({ label, ...peer, key: peer.status.peer }));
  const labels = new Map(own.map((peer) => [peer.key, peer.label]));
  const name = (key) => labels.get(key) ?? short(key);
  const others = Object.entries(state?.members ?? {}).filter(([key]) => !labels.has(key));
  return { run, own, name, labels, state, modules: grid(run, own, others), paths: paths(run, own, others), members: members(run, own, others, state?.members ?? {}) };
}

// Every module with what is known of it: by whom it is owned and held, and whether all hold the same.
function grid(run, own, others) {
  const modules = new Map();
  (run?.levels ?? []).forEach((level, index) => {
    for (let expert = 0; expert < Math.min(level.experts, 4096); expert++) {
      modules.set(`${index}.${expert}`, { name: `${index}.${expert}`, level: index, expert, hashes: new Map(), version: null, owner: null, members: 0, term: -1, differs: false, late: 0 });
    }
  });
  for (const peer of own) {
    for (const [name, it] of Object.entries(peer.status.modules)) {
      const module = modules.get(name);
      if (!module) continue;
      if (it.state_hash) {
        if ((module.hashes.get(it.version) ?? it.state_hash) !== it.state_hash) module.differs = true;
        module.hashes.set(it.version, it.state_hash);
      }
      module.version = Math.max(module.version ?? 0, it.version ?? 0);
      module.phase = Math.max(module.phase ?? 0, it.phase ?? 0);
      module.members = Math.max(module.members, it.members);
      module.late = Math.max(module.late, it.staleness_mean);
      module.alone = it.no_replica;
      if (it.term > module.term) Object.assign(module, { term: it.term, owner: it.owner });
    }
  }
  for (const [, member] of others) for (const it of member.differs) if (modules.has(it)) modules.get(it).differs = true;
  for (const module of modules.values()) module.hash = module.hashes.get(Math.max(...module.hashes.keys()));
  return [...modules.values()];
}

// Every trainer of every path.
function paths(run, own, others) {
  const all = [];
  const trained = new Set();
  const put = (path, entry) => {
    if (path.stage === 'standby') return;
    trained.add(path.path);
    all.push({ ...path, at: `${path.path}.${path.trainer}.${entry.key}`, ...entry });
  };
  for (const peer of own) {
    const silent = peer.silent_since ? (data.at - peer.silent_since) / 1000 : null;
    for (const [at, path] of Object.entries(peer.status.paths)) {
      const trains = !silent && peer.status.activity.path === path.path && path.stage === 'training';
      put(path, { key: peer.key, own: true, silent, label: peer.label, wait: silent ? null : peer.path_waits[at], left: path.waits_for?.left_s, activity: trains ? peer.status.activity : null });
    }
  }
  for (const [key, member] of others) for (const path of member.paths) put(path, { key, own: false, silent: member.silent_s });
  for (const path of run?.paths.keys() ?? []) {
    if (all.length < 4096 && !trained.has(path) && !run.drawn_anew) all.push({ path, trainer: 1, at: `${path}`, stage: 'no trainer', key: null });
  }
  return all.sort((a, b) => a.path - b.path || a.trainer - b.trainer);
}

const natural = new Intl.Collator('en', { numeric: true });

// Every peer, of this process or only heard of.
function members(run, own, others, heard) {
  const found = new Map();
  const of = (key) => found.get(key) ?? found.set(key, { key, modules: {}, paths: [], counted: 0, faults: 0, banned: null, quarantined: false, round_trip: null, relayed: null }).get(key);
  for (const peer of own) {
    const { status } = peer;
    const modules = Object.entries(status.modules);
    const speed = status.activity.tokens_per_s / run?.tokens_per_step;
    Object.assign(of(peer.key), { own: peer, modules: Object.fromEntries(modules.map(([name, it]) => [name, it.version])), paths: Object.values(status.paths), replicas: modules.filter(([, it]) => it.replica).length, pace: speed ? 1000 * speed : 0 });
  }
  for (const [key, member] of others) Object.assign(of(key), { modules: member.modules, paths: member.paths, replicas: member.replicas, silent: member.silent_s, pace: member.steps_per_1000_s });
  for (const [key, { counted, faults, quarantined, differs }] of Object.entries(heard)) Object.assign(of(key), { counted, faults, quarantined, differs: differs.length > 0 });
  for (const { status } of own) {
    for (const ban of status.bans) of(ban.peer).banned = ban.reason;
    connections(status.activity, found);
  }
  return [...found.values()].sort((a, b) => (b.own ? 1 : 0) - (a.own ? 1 : 0) || (a.own && b.own ? natural.compare(a.own.label, b.own.label) : a.key < b.key ? -1 : 1));
}

// How a peer of this process reaches others: the quickest way that is known. Who only visits is connected, but no member.
function connections({ round_trip_ms, relayed }, found) {
  const through = new Set(relayed ?? []);
  for (const key of through) if (found.has(key)) found.get(key).relayed ??= true;
  for (const [key, ms] of Object.entries(round_trip_ms ?? {})) {
    const it = found.get(key);
    if (!it || (it.round_trip !== null && it.round_trip <= ms)) continue;
    Object.assign(it, { round_trip: ms, relayed: through.has(key) });
  }
}

let drawn = { frames: -1 };

// Every curve of a path, with its newest point.
export function curves() {
  if (drawn.frames !== data.frames) drawn = { frames: data.frames, curves: found() };
  return drawn.curves;
}

function found() {
  return Object.entries(data.points).filter(([name, points]) => points.length && (name.startsWith('path/') || name.startsWith('arm/') || name === 'dense')).map(([name, points]) => {
    if (name.startsWith('arm/')) return { name, label: name.slice(4), path: null, arm: true, points, last: points.at(-1) };
    const [, path, trainer] = name.split('/');
    const label = name === 'dense' ? 'dense control' : trainer ? `path ${path}, trainer ${trainer}` : `path ${path}`;
    return { name, label, path: name === 'dense' ? null : Number(path), points, last: points.at(-1) };
  }).sort((a, b) => natural.compare(a.label, b.label));
}

// Seconds to the end of the run at the speed of the last ten minutes; nothing if that is not known.
export function remaining(run) {
  const total = run.phases * run.inner_steps;
  const left = curves().filter(({ path }) => path !== null).map(({ points }) => {
    const last = points.at(-1);
    const first = points.find((point) => point[0] > last[0] - 600000) ?? points[0];
    const speed = (last[1] - first[1]) / (last[0] - first[0]);
    return speed > 0 ? (total - last[1]) / speed / 1000 : NaN;
  });
  const known = left.filter(Number.isFinite);
  return known.length ? Math.max(...known) : null;
}
