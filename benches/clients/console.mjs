// The time of the browser's main thread while it follows a swarm of 1,000 peers on each view of the console.
//
//     cargo bench --bench console --profile release -- serve many 127.0.0.1:7777
//     npm install playwright-core && node benches/clients/console.mjs http://127.0.0.1:7777/ /usr/bin/chromium [SECONDS]
//
// Needs Chromium. Of each view: the share of a core that tasks of the main thread take, scripts among them, the time of
// tasks longer than 50 ms, the longest, and the longest time between two animation frames.

import { createRequire } from 'node:module';

// From where it is run, not from here.
const { chromium } = createRequire(`${process.cwd()}/`)('playwright-core');
const [url, executablePath, seconds = '10'] = process.argv.slice(2);
const VIEWS = ['swarm', 'learning', 'time', 'people', 'talk', 'events'];

const browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-gpu'] });
const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
await page.addInitScript(() => {
  globalThis.long = [];
  new PerformanceObserver((list) => globalThis.long.push(...list.getEntries().map(({ duration }) => duration))).observe({ type: 'longtask' });
  globalThis.gap = 0;
  let before = performance.now();
  const frame = (now) => {
    globalThis.gap = Math.max(globalThis.gap, now - before);
    before = now;
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
});
await page.goto(url);
await page.waitForSelector('.tiles', { timeout: 120000 });
const session = await page.context().newCDPSession(page);
// Time of the thread, not of the clock: other work on the machine does not count.
await session.send('Performance.enable', { timeDomain: 'threadTicks' });
const metrics = async () => Object.fromEntries((await session.send('Performance.getMetrics')).metrics.map(({ name, value }) => [name, value]));

console.log(`${browser.browserType().name()} ${browser.version()}, ${seconds} s a view`);
console.log('| view | main thread | scripts | long tasks | longest task | longest gap | heap |');
console.log('|---|---|---|---|---|---|---|');
for (const view of VIEWS) {
  await page.evaluate((to) => (location.hash = to), view);
  // The view is built once; what follows is what a frame costs.
  await page.waitForTimeout(3000);
  const before = await metrics();
  await page.evaluate(() => ([globalThis.long.length, globalThis.gap] = [0, 0]));
  await page.waitForTimeout(1000 * Number(seconds));
  const after = await metrics();
  const { long, gap } = await page.evaluate(() => ({ long: globalThis.long, gap: globalThis.gap }));
  const share = (name) => `${((100 * (after[name] - before[name])) / (after.Timestamp - before.Timestamp)).toFixed(1)}%`;
  const sum = long.reduce((all, one) => all + one, 0);
  console.log(`| ${view} | ${share('TaskDuration')} | ${share('ScriptDuration')} | ${long.length}, ${sum.toFixed(0)} ms | ${Math.max(0, ...long).toFixed(0)} ms | ${gap.toFixed(0)} ms | ${(after.JSHeapUsedSize / 1e6).toFixed(0)} MB |`);
}
await browser.close();
