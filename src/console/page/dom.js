// Descriptions of elements, and a page that changes in place: focus, selection and scroll stay where they are. What is the
// same as before is compared with what it was made of, and costs nothing of the browser.

const tags = new Map();

function parts(tag) {
  if (!tags.has(tag)) {
    const [name, ...classes] = tag.split('.');
    tags.set(tag, { name: name || 'div', classes: classes.join(' ') });
  }
  return tags.get(tag);
}

const isThere = (value) => value !== null && value !== undefined && value !== false;

// What an element is to be. `data-key` tells it from its siblings; what has `data-own` looks after what is in it.
export function h(tag, attributes, ...children) {
  const nodes = [];
  add(nodes, children);
  return { tag, attributes: attributes ?? {}, key: attributes?.['data-key'], nodes };
}

function add(nodes, children) {
  for (const child of children) {
    if (Array.isArray(child)) add(nodes, child);
    else if (isThere(child)) nodes.push(typeof child === 'object' ? child : String(child));
  }
}

// A part that is described only where what it is made of (`signature`, a string) has changed.
export const lazy = (key, signature, build) => ({ key, signature, build });

const described = (node) => (node.build ? { ...node.build(), key: node.key, signature: node.signature } : node);

// An element, or a text, of a description.
export function make(node) {
  if (typeof node === 'string') return document.createTextNode(node);
  const it = described(node);
  const { name, classes } = parts(it.tag);
  const element = document.createElement(name);
  if (classes) element.className = classes;
  for (const [key, value] of Object.entries(it.attributes)) set(element, key, value);
  for (const child of it.nodes) element.append(make(child));
  element.of = it;
  return element;
}

function set(element, key, value, before) {
  if (key === 'on') for (const [event, act] of Object.entries(value)) element[`on${event}`] = act;
  // The policy of the page forbids style attributes, but not properties.
  else if (key === 'style') for (const [property, text] of Object.entries(value)) before?.[property] === text || element.style.setProperty(property, text);
  else if (isThere(value)) element.setAttribute(key, value === true ? '' : value);
  else if (isThere(before)) element.removeAttribute(key);
}

// Makes `element` what is described.
function morph(element, node) {
  if (typeof node === 'string') {
    if (element.nodeType !== Node.TEXT_NODE) element.replaceWith(make(node));
    else if (element.data !== node) element.data = node;
    return;
  }
  const before = element.of;
  if (node.build && before?.key === node.key && before?.signature === node.signature) return;
  const it = described(node);
  if (!before || before.tag !== it.tag || before.key !== it.key) {
    element.replaceWith(make(it));
    return;
  }
  for (const key of Object.keys(before.attributes)) if (!(key in it.attributes)) set(element, key, null, before.attributes[key]);
  for (const key of Object.keys(it.attributes)) {
    // What the user has opened stays open, and the other way round.
    if (key !== 'open' && before.attributes[key] !== it.attributes[key]) set(element, key, it.attributes[key], before.attributes[key]);
  }
  element.of = it;
  if (it.attributes['data-own'] === undefined) children(element, it.nodes);
}

const keyOf = (element) => element?.of?.key;

// Elements with a key stay the same ones when others come, go or change places.
function children(host, nodes) {
  let at = host.firstChild;
  let index = 0;
  for (; at && index < nodes.length && keyOf(at) === nodes[index].key; index++) {
    const element = at;
    at = at.nextSibling;
    morph(element, nodes[index]);
  }
  const rest = nodes.slice(index);
  const kept = new Map();
  for (let element = at; element; element = element.nextSibling) if (keyOf(element) !== undefined) kept.set(keyOf(element), element);
  const wanted = new Set(rest.map((node) => node.key));
  for (const node of rest) {
    while (at && keyOf(at) !== undefined && !wanted.has(keyOf(at))) at = after(at);
    const same = node.key === undefined ? (at && keyOf(at) === undefined ? at : null) : kept.get(node.key);
    if (!same) {
      host.insertBefore(make(node), at);
      continue;
    }
    kept.delete(node.key);
    // One that comes later than before is put aside until then, so that only it moves.
    if (at?.nextSibling === same) after(at);
    else if (same !== at) host.insertBefore(same, at);
    at = same.nextSibling;
    morph(same, node);
  }
  while (at) at = after(at);
}

// Removes an element. Returns the next.
function after(element) {
  const next = element.nextSibling;
  element.remove();
  return next;
}

export function render(host, ...content) {
  const nodes = [];
  add(nodes, content);
  children(host, nodes);
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
