// What the views need, made of the statuses of this process's peers and of what they hear of others.

import { data } from './follow.js';
import { short } from './format.js';

const PALETTE = 10;

// A colour of the style sheet for a number.
export const colour = (index) => `var(--c${index % PALETTE})`;

export function model() {
  const { state } = data;
  const run = state?.run;
  const own = Object.entries(state?.peers ?? {}).filter(([, peer]) => peer.status).map(([label, peer]) => ({ label, ...peer, key: peer.status.peer }));
  const labels = new Map(own.map((peer) => [peer.key, peer.label]));
  const name = (key) => labels.get(key) ?? short(key);
  return { run, own, name, labels, state, ...grid(run, own), paths: paths(run, own), members: members(own) };
}

// Every module with what is known of it: by whom it is owned and held, and whether all hold the same.
function grid(run, own) {
  const modules = new Map();
  (run?.levels ?? []).forEach((level, index) => {
    for (let expert = 0; expert < Math.min(level.experts, 4096); expert++) {
      modules.set(`${index}.${expert}`, { name: `${index}.${expert}`, level: index, expert, holders: [], version: null, owner: null, members: 0, term: -1, differs: false, unowned: false, late: 0 });
    }
  });
  for (const peer of own) {
    for (const it of peer.status.modules) {
      const module = modules.get(it.module);
      if (!module) continue;
      module.holders.push({ who: peer.key, version: it.version, hash: it.state_hash });
      module.version = Math.max(module.version ?? 0, it.version ?? 0);
      module.phase = Math.max(module.phase ?? 0, it.phase ?? 0);
      module.members = Math.max(module.members, it.members);
      module.late = Math.max(module.late, it.staleness_mean);
      module.alone = it.no_replica;
      if (it.term > module.term) Object.assign(module, { term: it.term, owner: it.owner });
    }
    for (const [key, member] of Object.entries(peer.status.members ?? {})) {
      for (const [it, version] of Object.entries(member.modules)) {
        const module = modules.get(it);
        if (module && !module.holders.some((holder) => holder.who === key)) module.holders.push({ who: key, version });
      }
      for (const it of member.differs) if (modules.has(it)) modules.get(it).differs = true;
    }
  }
  for (const module of modules.values()) {
    const hashes = new Map();
    for (const { version, hash } of module.holders) {
      if (hash && hashes.has(version) && hashes.get(version) !== hash) module.differs = true;
      if (hash) hashes.set(version, hash);
    }
    module.hash = [...hashes.entries()].sort((a, b) => b[0] - a[0])[0]?.[1];
  }
  return { modules: [...modules.values()] };
}

// Every trainer of every path.
function paths(run, own) {
  const found = new Map();
  const put = (path, entry) => {
    const at = `${path.path}.${path.trainer}.${entry.key}`;
    if (!found.has(at) || entry.own) found.set(at, { ...path, at, ...entry });
  };
  for (const peer of own) {
    for (const path of peer.status.paths) {
      const trains = peer.status.activity.path === path.path && path.stage === 'training';
      put(path, { key: peer.key, own: true, label: peer.label, wait: peer.path_waits[`${path.path}.${path.trainer}`], left: path.waits_for?.left_s, activity: trains ? peer.status.activity : null, answered: !peer.silent_since });
    }
    for (const [key, member] of Object.entries(peer.status.members ?? {})) {
      for (const path of member.paths) put(path, { key, own: false, silent: member.silent_s });
    }
  }
  const all = [...found.values()].filter((path) => path.stage !== 'standby');
  for (const path of run?.paths.keys() ?? []) {
    if (all.length < 4096 && !all.some((it) => it.path === path) && !run.drawn_anew) all.push({ path, trainer: 1, at: `${path}`, stage: 'no trainer', key: null });
  }
  return all.sort((a, b) => a.path - b.path || a.trainer - b.trainer);
}

// Every peer, of this process or only heard of.
function members(own) {
  const found = new Map();
  const of = (key) => found.get(key) ?? found.set(key, { key, modules: {}, paths: [], counted: 0, faults: 0, banned: null, quarantined: false }).get(key);
  for (const peer of own) {
    Object.assign(of(peer.key), { own: peer, modules: Object.fromEntries(peer.status.modules.map((it) => [it.module, it.version])), paths: peer.status.paths, replicas: peer.status.modules.filter((it) => it.replica).length });
    for (const [key, member] of Object.entries(peer.status.members ?? {})) {
      const it = of(key);
      if (!it.own) Object.assign(it, { modules: { ...it.modules, ...member.modules }, paths: member.paths, replicas: member.replicas, silent: member.silent_s });
      it.pace = member.steps_per_1000_s || it.pace;
      it.differs = it.differs || member.differs.length > 0;
    }
    for (const score of peer.status.peer_scores) {
      const it = of(score.peer);
      it.counted = Math.max(it.counted, score.counted);
      it.faults = Math.max(it.faults, Object.values(score.faults).reduce((sum, faults) => sum + faults, 0));
      if (score.quarantined) it.quarantined = score.reason ?? 'faulty contributions';
    }
    for (const ban of peer.status.bans) of(ban.peer).banned = ban.reason;
  }
  return [...found.values()].sort((a, b) => (b.own ? 1 : 0) - (a.own ? 1 : 0) || (a.own?.label ?? '').localeCompare(b.own?.label ?? '', 'en', { numeric: true }) || a.key.localeCompare(b.key));
}

// The newest point of each curve of a path.
export function curves() {
  return Object.entries(data.points).filter(([name, points]) => points.length && (name.startsWith('path/') || name === 'dense')).map(([name, points]) => {
    const [, path, trainer] = name.split('/');
    const label = name === 'dense' ? 'dense control' : trainer ? `path ${path}, trainer ${trainer}` : `path ${path}`;
    return { name, label, path: name === 'dense' ? null : Number(path), points, last: points.at(-1) };
  }).sort((a, b) => a.label.localeCompare(b.label, 'en', { numeric: true }));
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
