// The page of the daemon. What the API says may be hostile (names, log lines): it becomes text nodes and nothing else.
import { $, add, bytes, count, draw, duration, focusOn, make, setText, tell, versionsText } from './page.js';
import { api, chosenFunction, pathOf, state, unread } from './api.js';
import { closeDialog } from './dialog.js';
import { showHistory, showVersions } from './versions.js';
import { showInvoke } from './invoke.js';
import { showTraffic } from './traffic.js';
import { showValues } from './values.js';
import { showFirstSteps, showSettings } from './about.js';
import { showCharts } from './charts.js';
import { showAddresses } from './addresses.js';
import { showFailures } from './failures.js';
import { follow, stopFollowing } from './logs.js';

const PERIOD = 2000;      // ms between two readings of the counters
const KEPT = 60;          // readings: two minutes of them
const WINDOW = 60_000;    // ms that the latency histogram is of

// ---- counters: each reading holds sums since the daemon began, so two of them give a rate

const nothing = () => ({ requests: 0, failed: 0, cold_starts: 0, latency: new Array(state.bounds.length + 1).fill(0) });
const sum = (reading, name = '') => reading?.sums.get(name) ?? nothing(); // '': of all functions

function keep(counted) {
  const reading = { at: performance.now(), sums: new Map([['', nothing()]]) };
  for (const one of counted) {
    if (!reading.sums.has(one.function)) reading.sums.set(one.function, nothing());
    for (const into of [reading.sums.get(''), reading.sums.get(one.function)]) {
      for (const key of ['requests', 'failed', 'cold_starts']) into[key] += one[key];
      one.latency.forEach((value, i) => { into.latency[i] += value; });
    }
  }
  const last = state.readings.at(-1);
  if (sum(reading).requests < sum(last).requests) state.readings = []; // it is another daemon
  else if (last && reading.at - last.at < PERIOD / 2) state.readings.pop(); // too near for a rate
  state.readings.push(reading);
  if (state.readings.length > KEPT) state.readings.shift();
}

// Requests a second from each of the newest readings to the next.
function rates(name, most = KEPT) {
  const some = state.readings.slice(-most);
  const rate = (now, before) => (sum(now, name).requests - sum(before, name).requests) / ((now.at - before.at) / 1000);
  return some.slice(1).map((now, i) => Math.max(0, rate(now, some[i])));
}
const rateNow = (name) => rates(name, 2).at(-1) ?? 0;

function recentLatency(name) {
  const last = state.readings.at(-1);
  const first = state.readings.find((reading) => last.at - reading.at <= WINDOW);
  const [now, before] = [sum(last, name).latency, sum(first, name).latency];
  return now.map((value, i) => Math.max(0, value - before[i]));
}

// Of the requests of the last minute, the part that failed; NaN without a request.
function recentErrors(name) {
  const last = state.readings.at(-1);
  const first = state.readings.find((reading) => last.at - reading.at <= WINDOW);
  const [now, before] = [sum(last, name), sum(first, name)];
  return (now.failed - before.failed) / (now.requests - before.requests);
}
const percent = (part) => (Number.isNaN(part) ? '–' : part > 0 && part < 0.01 ? '< 1%' : `${Math.round(part * 100)}%`);
const isBad = (name) => stateOf(name) === 'failing' || recentErrors(name) >= 0.01;

// "≤ 5 ms": the upper end of the bucket that so large a part of the requests has been answered by.
function percentile(buckets, part) {
  const wanted = buckets.reduce((a, b) => a + b, 0) * part;
  if (!wanted) return '–';
  let seen = 0;
  const at = buckets.findIndex((value) => (seen += value) >= wanted);
  return at < state.bounds.length ? `≤ ${duration(state.bounds[at])}` : `> ${duration(state.bounds.at(-1))}`;
}

const liveOf = (name) => state.live.filter((one) => !name || one.function === name);
const total = (list, key) => list.reduce((all, one) => all + one[key], 0);

// ---- charts

function begin(svg) {
  const [width, height] = [Math.max(svg.clientWidth, 120), 130];
  svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
  svg.replaceChildren();
  return [width, height];
}

function drawRate(svg, values) {
  const [width, height] = begin(svg);
  const [top, bottom] = [14, height - 4];
  const most = Math.max(1, ...values);
  draw(svg, 'line', { class: 'axis', x1: 0, x2: width, y1: bottom, y2: bottom });
  draw(svg, 'text', { x: 0, y: 10 }, `${count(most)}/s`);
  if (!values.length) return;
  const x = (i) => width - ((values.length - 1 - i) * width) / (KEPT - 2);
  const points = values.map((value, i) => `${x(i).toFixed(1)} ${(bottom - (value / most) * (bottom - top)).toFixed(1)}`);
  draw(svg, 'path', { class: 'area', d: `M${x(0)} ${bottom}L${points.join('L')}L${x(values.length - 1)} ${bottom}Z` });
  draw(svg, 'path', { class: 'line', d: `M${points.join('L')}` });
}

function drawLatency(svg, buckets) {
  const [width, height] = begin(svg);
  const bottom = height - 16;
  draw(svg, 'line', { class: 'axis', x1: 0, x2: width, y1: bottom, y2: bottom });
  const first = buckets.findIndex((value) => value > 0);
  if (first < 0) return draw(svg, 'text', { x: 0, y: 20 }, 'no request in the last minute');
  const from = Math.max(0, first - 1);
  const to = Math.min(buckets.length - 1, Math.max(buckets.findLastIndex((value) => value > 0) + 1, from + 5));
  const [step, most] = [width / (to - from + 1), Math.max(...buckets)];
  for (let i = from; i <= to; i++) {
    const [x, tall] = [(i - from) * step, (buckets[i] / most) * (bottom - 16)];
    draw(svg, 'rect', { class: 'column', x: x + 2, width: step - 4, y: bottom - tall, height: tall, rx: 2 });
    if (buckets[i]) draw(svg, 'text', { x: x + step / 2, y: bottom - tall - 3, 'text-anchor': 'middle' }, count(buckets[i]));
    if (step >= 34 || (i - from) % 2 === 0) {
      const label = i < state.bounds.length ? duration(state.bounds[i]) : 'more';
      draw(svg, 'text', { x: x + step / 2, y: height - 3, 'text-anchor': 'middle' }, label);
    }
  }
}

// ---- what is on the page

function facts(target, pairs, tag, first, second) {
  while (target.children.length < pairs.length) {
    const box = add(target, 'div', { class: tag });
    add(box, first, {});
    add(box, second, {});
  }
  pairs.forEach(([name, value], i) => {
    setText(target.children[i].querySelector(first), tag ? value : name);
    setText(target.children[i].querySelector(second), tag ? name : value);
  });
}

function showTiles() {
  const [now, recent, live] = [sum(state.readings.at(-1)), recentLatency(), liveOf()];
  facts($('tiles'), [
    ['requests a second', count(rateNow())],
    ['latency, median', percentile(recent, 0.5)],
    ['latency, 99%', percentile(recent, 0.99)],
    ['requests', count(now.requests)],
    ['failed', count(now.failed)],
    ['cold starts', count(now.cold_starts)],
    ['machines', count(total(live, 'machines'))],
    ['memory', bytes(total(live, 'memory_bytes'))],
  ], 'tile', 'b', 'span');
}

const stateOf = (name) => ['failing', 'unsaved', 'starting', 'ready', 'stopping', 'suspended'].find((one) => liveOf(name).some((each) => each.state === one)) ?? 'idle';

function makeRow() {
  const item = make('li');
  const row = add(item, 'button', { class: 'row' });
  const name = add(row, 'span', {});
  add(name, 'i', { class: 'dot' });
  add(name, 'b', {});
  add(name, 'small', {});
  for (let i = 0; i < 3; i++) add(row, 'span', {});
  row.addEventListener('click', () => choose(item.name === state.chosen ? '' : item.name, true));
  return item;
}

function showList() {
  const wanted = $('filter').value.trim().toLowerCase();
  const found = state.functions.filter((one) => one.name.toLowerCase().includes(wanted));
  const shown = [...found.filter((one) => isBad(one.name)), ...found.filter((one) => !isBad(one.name))];
  const list = $('functions');
  while (list.children.length > shown.length) list.lastChild.remove();
  while (list.children.length < shown.length) list.append(makeRow());
  shown.forEach((one, i) => {
    const item = list.children[i];
    const [name, rate, errors, memory] = item.firstChild.children;
    const [doing, failed] = [stateOf(one.name), recentErrors(one.name)];
    item.firstChild.classList.toggle('bad', isBad(one.name));
    item.name = one.name;
    item.firstChild.setAttribute('aria-current', String(one.name === state.chosen));
    name.children[0].className = `dot ${doing}`;
    setText(name.children[1], one.name);
    setText(name.children[2], `${versionsText(one.live) || 'nothing live'} · ${doing}`);
    setText(rate, count(rateNow(one.name)));
    setText(errors, percent(failed));
    errors.classList.toggle('errors', failed > 0);
    setText(memory, bytes(total(liveOf(one.name), 'memory_bytes')));
  });
  $('list-card').querySelector('.head').hidden = !shown.length;
  tell($('no-functions'), shown.length || !state.functions.length ? '' : 'No function has this in its name.');
  showFirstSteps(!state.functions.length);
}

function showDetail() {
  const chosen = chosenFunction();
  const hadFocus = $('detail').contains(document.activeElement);
  $('detail').hidden = !chosen;
  showCharts(chosen?.name ?? '');
  showFailures(chosen?.name ?? '', chosen && sum(state.readings.at(-1), chosen.name).failed);
  if (!chosen && hadFocus) focusOn(null);
  if (!chosen) return;
  const [now, live, recent, speed] = [sum(state.readings.at(-1), chosen.name), liveOf(chosen.name), recentLatency(chosen.name), rates(chosen.name)];
  setText($('name'), chosen.name);
  showAddresses(chosen);
  tell($('failure'), live.map((one) => one.last_failure && `v${one.version}: ${one.last_failure}`).filter(Boolean).join('\n'));
  facts($('facts'), [
    ['live', versionsText(chosen.live)], ['requests', count(now.requests)], ['failed', count(now.failed)],
    ['cold starts', count(now.cold_starts)], ['busy', `${total(live, 'busy')} of ${total(live, 'machines')}`],
    ['waiting', count(total(live, 'queued'))], ['memory', bytes(total(live, 'memory_bytes'))],
  ], '', 'dt', 'dd');
  setText($('rate-note'), `now ${count(speed.at(-1) ?? 0)}; last two minutes`);
  setText($('latency-note'), `median ${percentile(recent, 0.5)}, 99% ${percentile(recent, 0.99)}; last minute`);
  drawRate($('rate'), speed);
  drawLatency($('latency'), recent);
}

export function show() {
  if (!state.readings.length) return;
  showTiles();
  showList();
  showDetail();
}

// What changes with the function's ETag. `fresh`: another function was chosen, so forms are empty again.
function showParts(fresh) {
  for (const part of [showVersions, showHistory, showTraffic, showInvoke, showValues, showSettings]) part(fresh);
}

// ---- readings

async function readVersions() {
  const chosen = chosenFunction();
  const settled = !state.versions.list.some((one) => one.compress_later || one.warms_up); // these keep the etag
  if (!chosen || (state.versions.etag === chosen.etag && settled)) return;
  const parts = ['', '/versions', '/history', '/secrets'].map((part) => api('GET', pathOf(chosen.name) + part));
  const [details, { versions }, { events }, { secrets }] = await Promise.all(parts);
  if (chosen.name !== state.chosen) return;
  state.versions = { etag: chosen.etag, list: versions, events, details, secrets };
  showParts(false);
}

async function read() {
  const [functions, live] = await Promise.all([api('GET', '/v1/functions'), api('GET', '/v1/live')]);
  state.functions = functions.functions;
  state.live = live.live;
  state.bounds = live.bounds_us;
  keep(live.counted);
  if (state.chosen && !state.functions.some((one) => one.name === state.chosen)) choose('');
  await readVersions();
  show();
}

async function readAgain() {
  clearTimeout(state.timer);
  const token = state.token;
  try {
    if (!document.hidden) await read();
    tell($('trouble'), '');
  } catch (error) {
    if (token !== state.token) return;
    if (error.status === 401) return signOut(error.detail || error.message);
    tell($('trouble'), error.message);
  }
  if (token !== state.token) return;
  clearTimeout(state.timer); // of another that ended meanwhile
  state.timer = setTimeout(readAgain, PERIOD);
}

// A choice by hand is a place to go back to. One that follows the address leaves it alone.
function choose(name, byHand = false, followed = false) {
  if (name === state.chosen) return;
  state.chosen = name;
  state.versions = unread();
  const address = name ? `#${encodeURIComponent(name)}` : location.pathname;
  if (byHand) history.pushState(null, '', address);
  else if (!followed) history.replaceState(null, '', address);
  showParts(true);
  show();
  follow();
  readVersions().catch((error) => tell($('trouble'), error.message));
  if (byHand && name && $('detail').getBoundingClientRect().top > innerHeight * 0.7) $('detail').scrollIntoView({ behavior: 'smooth' });
}

// ---- who asks

function signOut(why) {
  clearTimeout(state.timer);
  stopFollowing();
  sessionStorage.removeItem('kvmserver-token');
  Object.assign(state, { token: '', caller: null, daemon: null, functions: [], live: [], readings: [], chosen: '', versions: unread() });
  closeDialog();
  showParts(true); // nothing that was typed or answered is left for who comes next
  for (const id of ['tiles', 'functions', 'history', 'logs', 'daemon']) $(id).replaceChildren();
  tell($('trouble'), '');
  tell($('login-trouble'), why);
  $('board').hidden = $('sign-out').hidden = true;
  showCharts('');
  showFailures('');
  $('login').hidden = false;
  $('token').value = '';
  $('token').focus();
}

function nameInAddress() {
  try { return decodeURIComponent(location.hash.slice(1)); } catch { return ''; } // no name of ours
}

async function signIn() {
  const info = await api('GET', '/v1/info');
  Object.assign(state, { caller: info.caller, daemon: info.daemon ?? null });
  sessionStorage.setItem('kvmserver-token', state.token);
  const parts = [`version ${info.version}`, `signed in as ${info.caller.name} (${info.caller.scopes.join(', ')})`];
  if (info.daemon) parts.splice(1, 0, `serving ${info.daemon.address} since ${new Date(info.daemon.started).toLocaleString()}`);
  setText($('daemon'), parts.join(' · '));
  $('login').hidden = true;
  $('board').hidden = $('sign-out').hidden = false;
  state.chosen = nameInAddress();
  await readAgain();
  if (state.caller) follow();
}

async function trySignIn() {
  tell($('login-trouble'), '');
  try {
    await signIn();
  } catch (error) {
    signOut(error.status === 401 ? `This token is not accepted: ${error.detail}.` : error.message);
  }
}

$('login-form').addEventListener('submit', (event) => {
  event.preventDefault();
  const token = $('token').value.trim();
  if (!/^[\x21-\x7e]+$/.test(token)) return tell($('login-trouble'), 'This is not a token: tokens look like kvs_0123…');
  state.token = token;
  trySignIn();
});
$('sign-out').addEventListener('click', () => signOut(''));
$('filter').addEventListener('input', show);
document.addEventListener('visibilitychange', () => { if (!document.hidden && state.caller) readAgain(); });
document.addEventListener('kvmserver-changed', readAgain);
addEventListener('resize', show);
addEventListener('popstate', () => { if (state.caller) choose(nameInAddress(), false, true); }); // Back, or an edited #name
if (state.token) trySignIn();
else signOut('');
