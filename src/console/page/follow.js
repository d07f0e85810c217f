// Follows the stream of frames: first the whole state, then what changes. A frame that is lost brings the whole state again.

const MOST_POINTS = 2000;
const MOST_EVENTS = 400;
const MOST_SPANS = 2000;

// The token stays in this variable alone: not in a cookie, not in storage, and no longer in the address.
let token = null;
const link = new URLSearchParams(location.hash.slice(1)).get('token');
if (link) {
  token = link;
  history.replaceState(null, '', location.pathname);
}

// `frames` counts what has been heard: what is made of the data is made anew when it has changed.
export const data = { state: null, events: [], points: {}, spans: new Map(), at: 0, frames: 0 };

// RFC 7396.
function patch(target, change) {
  for (const [key, value] of Object.entries(change)) {
    if (value === null) delete target[key];
    else if (typeof value === 'object' && !Array.isArray(value) && typeof target[key] === 'object' && target[key] !== null) patch(target[key], value);
    else target[key] = value;
  }
}

// Half of the points, so that a page that is open all day stays small.
function thin(points) {
  if (points.length > MOST_POINTS) points.splice(0, points.length, ...points.filter((_, index) => index % 2 === 1 || index === 0));
}

// Takes over a frame.
export function take(frame) {
  data.at = frame.at;
  data.frames++;
  if (frame.state) {
    Object.assign(data, { state: frame.state, events: frame.events, points: frame.points });
    data.spans = new Map(frame.spans.map((span) => [span.id, span]));
    return;
  }
  if (frame.patch) patch(data.state, frame.patch);
  data.events.push(...frame.events);
  data.events.splice(0, data.events.length - MOST_EVENTS);
  for (const [name, points] of Object.entries(frame.points)) thin((data.points[name] ??= []).push(...points) && data.points[name]);
  for (const span of frame.spans) data.spans.set(span.id, span);
  for (const id of data.spans.keys()) {
    if (data.spans.size <= MOST_SPANS) break;
    data.spans.delete(id);
  }
}

export const headers = () => (token ? { Authorization: `Bearer ${token}` } : {});

// The values of server-sent events, one after the other.
export async function* values(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      text += value;
      for (let end = text.indexOf('\n\n'); end >= 0; end = text.indexOf('\n\n')) {
        const lines = text.slice(0, end).split('\n').filter((line) => line.startsWith('data:'));
        text = text.slice(end + 2);
        if (lines.length) yield JSON.parse(lines.map((line) => line.slice(5).trimStart()).join('\n'));
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

async function once(changed, told) {
  const response = await fetch('/api/stream', { headers: headers(), cache: 'no-store', credentials: 'omit' });
  if (response.status === 401) return told('locked', 'open the link that the command printed: it carries the token');
  if (!response.ok) throw new Error(await response.text());
  told('live', 'live');
  for await (const frame of values(response)) {
    take(frame);
    changed();
  }
  return undefined;
}

export async function follow(changed, told) {
  let wait = 1000;
  for (;;) {
    const began = Date.now();
    try {
      await once(changed, told);
    } catch (error) {
      console.info(error);
    }
    if (document.querySelector('.link.locked')) return;
    if (Date.now() - began > 10000) wait = 1000;
    told('lost', 'the peer does not answer; trying again');
    await new Promise((resolve) => setTimeout(resolve, wait));
    wait = Math.min(2 * wait, 15000);
  }
}
