// Numbers, sizes and times for people.

const grouped = new Intl.NumberFormat('en');

export const whole = (value) => (value === null || value === undefined ? '–' : grouped.format(Math.round(value)));

export function fixed(value, digits = 3) {
  return value === null || value === undefined || !Number.isFinite(value) ? '–' : value.toFixed(digits);
}

export function count(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return '–';
  if (value < 10000) return whole(value);
  const units = ['k', 'M', 'G', 'T'];
  let unit = -1;
  while (value >= 1000 && unit < 3) [value, unit] = [value / 1000, unit + 1];
  return `${value.toFixed(value < 100 ? 1 : 0)} ${units[unit]}`;
}

export function bytes(value) {
  if (value === null || value === undefined) return '–';
  if (value < 1000) return `${Math.round(value)} B`;
  const units = ['kB', 'MB', 'GB', 'TB'];
  let unit = -1;
  while (value >= 1000 && unit < 3) [value, unit] = [value / 1000, unit + 1];
  return `${value.toFixed(value < 100 ? 1 : 0)} ${units[unit]}`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return '–';
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s / 60) % 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s / 3600) % 24)} h`;
}

const time = new Intl.DateTimeFormat([], { hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23' });

export const clock = (ms) => time.format(ms);

export const percent = (share) => (Number.isFinite(share) ? `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %` : '–');

export const short = (key) => (key ? `…${key.slice(0, 8)}` : '–');
