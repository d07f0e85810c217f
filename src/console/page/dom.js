// Elements from data, and a page that changes in place: focus, selection and scroll stay where they are.

export function h(tag, attributes, ...children) {
  const [name, ...classes] = tag.split('.');
  const element = document.createElement(name || 'div');
  if (classes.length) element.className = classes.join(' ');
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key === 'on') for (const [event, act] of Object.entries(value)) element[`on${event}`] = act;
    // The policy of the page forbids style attributes, but not properties.
    else if (key === 'style') for (const [property, text] of Object.entries(value)) element.style.setProperty(property, text);
    else element.setAttribute(key, value === true ? '' : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const EVENTS = ['onclick', 'oninput', 'onchange', 'ontoggle', 'onkeydown', 'onsubmit'];

// A part of the page that is built only where what it is made of (`signature`, a string) has changed.
export function lazy(key, signature, build) {
  const stub = document.createElement('div');
  stub.dataset.key = key;
  stub.dataset.lazy = '';
  return Object.assign(stub, { signature, build });
}

function built(node) {
  if (!node.build) return node;
  const element = node.build();
  element.dataset.key = node.dataset.key;
  element.signature = node.signature;
  return element;
}

// With all that is in it, where nothing was before.
function whole(fresh) {
  const element = built(fresh);
  for (const stub of element.querySelectorAll?.('[data-lazy]') ?? []) stub.replaceWith(whole(stub));
  return element;
}

// Makes `old` like `fresh`. Elements with `data-own` look after themselves.
function morph(old, fresh) {
  if (fresh.build && old.signature === fresh.signature && old.dataset?.key === fresh.dataset.key) return;
  fresh = built(fresh);
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName || old.dataset?.key !== fresh.dataset?.key) {
    old.replaceWith(whole(fresh));
    return;
  }
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  if (old.signature !== fresh.signature) old.signature = fresh.signature;
  if (old.dataset.own !== undefined) return;
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name) && name !== 'open') old.removeAttribute(name);
  for (const { name, value } of fresh.attributes) {
    // What the user has opened stays open, and the other way round.
    if (name === 'open' || old.getAttribute(name) === value) continue;
    if (name === 'style') old.style.cssText = value;
    else old.setAttribute(name, value);
  }
  for (const event of EVENTS) if (old[event] !== fresh[event]) old[event] = fresh[event];
  children(old, [...fresh.childNodes]);
}

const keyOf = (node) => node.dataset?.key;

// Elements with a key stay the same ones when others come, go or change places.
function children(old, fresh) {
  const kept = new Map();
  for (const node of old.childNodes) if (keyOf(node) !== undefined) kept.set(keyOf(node), node);
  const wanted = new Set(fresh.map(keyOf));
  let at = old.firstChild;
  for (const child of fresh) {
    while (at && keyOf(at) !== undefined && !wanted.has(keyOf(at))) {
      const gone = at;
      at = at.nextSibling;
      gone.remove();
    }
    const same = keyOf(child) === undefined ? (at && keyOf(at) === undefined ? at : null) : kept.get(keyOf(child));
    if (!same) {
      old.insertBefore(whole(child), at);
      continue;
    }
    kept.delete(keyOf(child));
    if (same === at) at = at.nextSibling;
    else old.insertBefore(same, at);
    morph(same, child);
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  }
}

export function render(host, ...content) {
  children(host, content.flat(Infinity).filter(Boolean));
}

// A table with real headings. A column: { name, of, number, title }.
export function table(caption, columns, rows, key) {
  const head = columns.map((column) => h('th', { scope: 'col', class: column.number && 'number', title: column.title }, column.name));
  const cell = (column, row, first) => {
    const value = column.of(row);
    const attributes = { class: column.number && 'number' };
    return first ? h('th', { scope: 'row', ...attributes }, value ?? '–') : h('td', attributes, value ?? '–');
  };
  const body = rows.map((row) => h('tr', { 'data-key': key?.(row) }, columns.map((column, index) => cell(column, row, index === 0))));
  return h('div.scroll', { tabindex: '0', role: 'region', 'aria-label': caption },
    h('table', null, h('caption', null, caption), h('thead', null, h('tr', null, head)), h('tbody', null, body)));
}

// A colour of the style sheet as a canvas wants it: `light-dark()` is resolved only where a colour is used.
export function paint(colour) {
  const probe = document.getElementById('probe');
  probe.style.color = colour;
  return getComputedStyle(probe).color;
}

export const badge = (tone, text, title) => h(`span.badge.${tone}`, { title }, text);

export function meter(share, label) {
  const percent = Math.round(100 * Math.max(0, Math.min(1, share || 0)));
  return h('span.meter', { role: 'img', 'aria-label': label ?? `${percent} percent` }, h('i', { style: { width: `${percent}%` } }));
}
