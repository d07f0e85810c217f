// What each peer has contributed, so that credit can be given.

import { h, table } from '../dom.js';
import { bytes, count, duration, short, whole } from '../format.js';
import { data } from '../follow.js';
import { uptime } from '../model.js';

const MOST_ROWS = 100;
const KEPT_MS = 10000;

// Rows that change places every second cannot be read: they keep them for a while.
let places = new Map();
let sorted = 0;

function rowsOf(m) {
  if (Math.abs(data.at - sorted) > KEPT_MS) {
    const most = m.members.toSorted((a, b) => b.counted - a.counted || (b.own?.status.activity.tokens ?? 0) - (a.own?.status.activity.tokens ?? 0));
    [places, sorted] = [new Map(most.map((peer, place) => [peer.key, place])), data.at];
  }
  const place = (peer) => places.get(peer.key) ?? places.size;
  return m.members.toSorted((a, b) => place(a) - place(b));
}

export function view(m) {
  const served = (peer) => peer.own && peer.own.status.traffic.blob_bytes_sent + peer.own.status.traffic.blob_bytes_forwarded;
  const rows = rowsOf(m);
  const all = rows.reduce((sum, peer) => sum + peer.counted, 0) || 1;
  const columns = [
    { name: 'peer', of: (peer) => h('span', { title: peer.key }, peer.own ? `${peer.own.label} ` : '', h('span.mono.faint', null, short(peer.key))) },
    { name: 'contributions counted', number: true, title: 'By signed updates that a peer which this page asks has applied', of: (peer) => whole(peer.counted) },
    { name: 'share', of: (peer) => h('span.stack', { role: 'img', 'aria-label': `${Math.round((100 * peer.counted) / all)} percent` }, h('i', { style: { width: `${(100 * peer.counted) / all}%`, background: 'var(--train)' } })) },
    { name: 'faults', number: true, of: (peer) => whole(peer.faults) },
    { name: 'tokens trained', number: true, of: (peer) => (peer.own ? count(peer.own.status.activity.tokens) : '–') },
    { name: 'phases', number: true, of: (peer) => (peer.own ? whole(peer.own.status.phases_trained) : '–') },
    { name: 'bytes served', number: true, of: (peer) => (peer.own ? bytes(served(peer)) : '–') },
    { name: 'updates audited', number: true, of: (peer) => (peer.own ? whole(peer.own.status.audited) : '–') },
    { name: 'up for', number: true, of: (peer) => (peer.own ? duration(uptime(peer.own)) : '–') },
    { name: 'paths', of: (peer) => peer.paths.filter((path) => path.stage !== 'standby').map((path) => path.path).join(', ') || '–' },
  ];
  return [
    h('section.card', { 'data-key': 'credit' }, h('h3', null, 'Who has contributed what'),
      h('p.faint', null, 'Counted contributions come from updates that their owners have signed and that the peers that this page asks have applied since they started. Tokens, bytes and times are known of these peers alone.'),
      table('Contributions by peer', columns, rows.slice(0, MOST_ROWS), (peer) => peer.key),
      rows.length > MOST_ROWS ? h('p.faint', null, `and ${rows.length - MOST_ROWS} more`) : null),
    joining(m),
  ];
}

function joining(m) {
  const address = m.own.flatMap((peer) => peer.status.addresses)[0];
  return address && h('section.card', { 'data-key': 'join' }, h('h3', null, 'Take part'), h('p', null, 'Another machine joins with'), h('pre', { tabindex: '0' }, `pathswarm join ${address}`));
}
