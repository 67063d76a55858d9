// The page of the daemon. What the API says may be hostile (names, log lines): it becomes text nodes and nothing else.
'use strict';

const PERIOD = 2000;      // ms between two readings of the counters
const KEPT = 60;          // readings: two minutes of them
const WINDOW = 60_000;    // ms that the latency histogram is of
const MOST_LINES = 1000;  // of logs on the page
const MOST_BYTES = 1 << 20; // of one log line that has no end yet

const $ = (id) => document.getElementById(id);
const state = {
  token: sessionStorage.getItem('kvmserver-token') ?? '',
  caller: null,      // of /v1/info
  functions: [],     // of /v1/functions
  live: [],          // of /v1/live
  bounds: [],        // upper ends of the latency buckets, in us; one more bucket is above the last
  readings: [],      // {at, sums by function}, oldest first
  chosen: '',        // name of a function
  versions: { etag: '', list: [], events: [] }, // of the chosen function, with its history
  timer: 0,
};

// ---- elements

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.map(String)); // strings become text nodes
  return element;
}

const add = (parent, ...what) => parent.appendChild(make(...what));

function draw(svg, tag, attributes, text = '') {
  const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.textContent = text;
  svg.append(element);
}

const setText = (element, text) => { if (element.textContent !== text) element.textContent = text; };

function tell(element, text) {
  setText(element, text);
  element.hidden = text === '';
}

// ---- values for people

const count = (value) => value.toLocaleString('en', { maximumFractionDigits: value < 10 ? 1 : 0 });
const versionsText = (live) => live.map((part) => (part.percent === 100 ? `v${part.version}` : `v${part.version} ${part.percent}%`)).join(' + ');

function bytes(value) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  for (; value >= 1000 && unit < units.length - 1; unit++) value /= 1024;
  return `${value.toFixed(value < 10 && unit ? 1 : 0)} ${units[unit]}`;
}

const duration = (us) => (us >= 1e6 ? `${us / 1e6} s` : us >= 1000 ? `${us / 1000} ms` : `${us} µs`);

// ---- the API

class Problem extends Error {
  constructor(status, document) {
    const { title = `Status ${status}`, detail = '', hint = '' } = document;
    super(`${title}${detail && `: ${detail}`}${hint && `\nHint: ${hint}`}`);
    this.status = status;
    this.detail = detail;
  }
}

async function request(method, path, { body, headers = {}, signal } = {}) {
  let reply;
  try {
    reply = await fetch(path, {
      method, signal, body: body && JSON.stringify(body), cache: 'no-store', credentials: 'omit', redirect: 'error',
      headers: { Authorization: `Bearer ${state.token}`, ...headers },
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Problem(0, { title: 'The daemon does not answer', detail: error.message, hint: 'does kvmserver serve still run? The page tries again by itself' });
  }
  if (!reply.ok) throw new Problem(reply.status, await reply.json().catch(() => ({})));
  return reply;
}
const api = async (method, path, more) => (await request(method, path, more)).json();
const pathOf = (name) => `/v1/functions/${encodeURIComponent(name)}`;

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

const stateOf = (name) => ['failing', 'starting', 'ready', 'stopping'].find((one) => liveOf(name).some((each) => each.state === one)) ?? 'idle';

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
  tell($('no-functions'), shown.length ? '' : wanted ? 'No function has this in its name.' : 'There are no functions yet: kvmserver deploy app.snap --name hello');
}

const mayDeploy = () => state.caller.scopes.some((scope) => scope === 'deploy' || scope === 'admin');

function showDetail() {
  const chosen = state.functions.find((one) => one.name === state.chosen);
  $('detail').hidden = !chosen;
  charts.show(chosen?.name ?? '');
  if (!chosen) return;
  const [now, live, recent, speed] = [sum(state.readings.at(-1), chosen.name), liveOf(chosen.name), recentLatency(chosen.name), rates(chosen.name)];
  setText($('name'), chosen.name);
  setText($('routes'), chosen.routes.join('  '));
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

// The versions that roll back could choose, as the API does without a version: ready ones before the live one.
function olderVersions() {
  const live = state.versions.list.reduce((most, one) => (one.percent > (most?.percent ?? 0) ? one : most), null);
  return live ? state.versions.list.filter((one) => one.version < live.version && one.state === 'ready') : [];
}

function showVersions() {
  $('versions').replaceChildren();
  $('roll-back').hidden = !mayDeploy() || !olderVersions().length;
  for (const one of state.versions.list) {
    const item = add($('versions'), 'li', {});
    const text = add(item, 'span', {}, `v${one.version} `);
    if (one.percent) add(text, 'span', { class: 'live' }, one.percent === 100 ? 'live ' : `live ${one.percent}% `);
    add(text, 'small', {}, `${new Date(one.created).toLocaleString()} · ${bytes(one.bytes)}${one.percent ? '' : ` · ${one.state}`}`);
    if (one.percent === 100 || one.state !== 'ready' || !mayDeploy()) continue;
    add(item, 'button', { class: 'quiet', 'data-version': one.version }, 'Make live').addEventListener('click', () => askRollBack(one.version));
  }
}

const authorText = ({ kind, name }) => (kind === 'user' ? name : `${kind} ${name}`.trim()) || 'somebody';

function changeText(event) {
  const sizes = [event.bytes, event.new_bytes].map((value, i) => value !== undefined && `${bytes(value)}${i ? ' new' : ''}`);
  return [event.change, sizes.filter(Boolean).join(', ')].filter(Boolean).join('; ');
}

function showHistory() {
  const { events, etag } = state.versions;
  $('history').replaceChildren();
  $('history').hidden = !events.length;
  $('no-history').hidden = !etag || events.length > 0;
  for (const one of events) {
    const item = add($('history'), 'li', {});
    add(item, 'span', {}, `${one.action} ${one.subject}`);
    add(item, 'small', {}, `${authorText(one.author)} · ${new Date(one.time).toLocaleString()}`);
    if (one.message) add(item, 'em', {}, one.message);
    if (changeText(one)) add(item, 'small', {}, changeText(one));
  }
}

function show() {
  if (!state.readings.length) return;
  showTiles();
  showList();
  showDetail();
}

// ---- readings

async function readVersions() {
  const chosen = state.functions.find((one) => one.name === state.chosen);
  const settled = !state.versions.list.some((one) => one.compress_later || one.warms_up); // these keep the etag
  if (!chosen || (state.versions.etag === chosen.etag && settled)) return;
  const [{ versions }, { events }] = await Promise.all(['versions', 'history'].map((part) => api('GET', `${pathOf(chosen.name)}/${part}`)));
  if (chosen.name !== state.chosen) return;
  state.versions = { etag: chosen.etag, list: versions, events };
  showVersions();
  showHistory();
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
  state.versions = { etag: '', list: [], events: [] };
  const address = name ? `#${encodeURIComponent(name)}` : location.pathname;
  if (byHand) history.pushState(null, '', address);
  else if (!followed) history.replaceState(null, '', address);
  showVersions();
  showHistory();
  show();
  follow();
  readVersions().catch((error) => tell($('trouble'), error.message));
  if (byHand && name && $('detail').getBoundingClientRect().top > innerHeight * 0.7) $('detail').scrollIntoView({ behavior: 'smooth' });
}

// ---- rolling back

const plan = { name: '', version: 0, etag: '' };

function openDialog(title, text, possible) {
  setText($('confirm-title'), title);
  tell($('confirm-text'), text);
  tell($('confirm-result'), '');
  $('confirm-yes').hidden = $('confirm-reason').hidden = !possible;
  $('confirm-message').value = '';
  $('confirm-yes').disabled = false;
  setText($('confirm-no'), possible ? 'Cancel' : 'Close');
  if (!$('confirm').open) $('confirm').showModal();
}

function report(text, trouble) {
  $('confirm-result').className = trouble ? 'trouble' : '';
  tell($('confirm-result'), text);
  $('confirm-yes').hidden = $('confirm-reason').hidden = true;
  setText($('confirm-no'), 'Close');
}

// Without a version: to the one that was live before.
async function askRollBack(version) {
  const chosen = state.functions.find((one) => one.name === state.chosen);
  if (!chosen) return;
  try {
    const change = await api('POST', `${pathOf(chosen.name)}/rollback?dry_run=1`, { body: version ? { version } : {} });
    Object.assign(plan, { name: chosen.name, version: change.live[0].version, etag: chosen.etag });
    openDialog(`Roll back ${chosen.name}?`, `Live now: ${versionsText(change.before)}. New requests go to v${plan.version}; those in flight finish where they are.`, true);
  } catch (error) {
    openDialog(`${chosen.name} cannot be rolled back`, '', false);
    report(error.message, true);
  }
}

async function rollBack() {
  $('confirm-yes').disabled = true;
  try { // not if somebody changed the function since the question was asked
    const done = await api('POST', `${pathOf(plan.name)}/rollback`, { body: { version: plan.version, message: $('confirm-message').value.trim() }, headers: { 'If-Match': `"${plan.etag}"` } });
    report(`Done: ${plan.name} ${versionsText(done.before)} → ${versionsText(done.live)}`, false);
  } catch (error) {
    report(error.message, true);
  }
  readAgain();
}

// ---- logs

let following = null; // AbortController of the stream

function addLines(lines) {
  const box = $('logs');
  const atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 30;
  for (const line of lines) {
    const row = make('div', line.stream === 'daemon' ? { class: 'daemon' } : {});
    if (line.ms) add(row, 'span', { class: 'when' }, new Date(line.ms).toLocaleTimeString('en-GB'));
    if (line.function) add(row, 'span', { class: 'who' }, `${line.function} v${line.version}`);
    row.append(String(line.text));
    box.append(row);
  }
  while (box.children.length > MOST_LINES) box.firstChild.remove();
  if (atEnd) box.scrollTop = box.scrollHeight;
}

// One stream, until it ends. Lines up to `seen` are on the page already. Returns the last one's id.
async function readLogs(path, seen, signal) {
  const reply = await request('GET', path, { signal });
  setText($('logs-state'), 'following');
  const [reader, decoder] = [reply.body.getReader(), new TextDecoder()];
  let rest = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return seen.id;
    const parts = (rest + decoder.decode(value, { stream: true })).split('\n');
    rest = parts.pop().slice(0, MOST_BYTES);
    const lines = parts.filter(Boolean).map((part) => JSON.parse(part)).filter((line) => !line.id || line.id > seen.id);
    for (const line of lines) seen.id = Math.max(seen.id, line.id ?? 0);
    addLines(lines);
  }
}

async function follow() {
  following?.abort();
  const control = following = new AbortController();
  $('logs').replaceChildren();
  setText($('logs-of'), state.chosen ? `of ${state.chosen}` : 'of all functions');
  if (!state.chosen && state.caller.prefix) return setText($('logs-state'), 'choose a function: this token is not for all');
  const path = `${state.chosen ? `${pathOf(state.chosen)}/logs` : '/v1/logs'}?follow=1&tail=200`;
  const seen = { id: 0 };
  while (!control.signal.aborted) {
    setText($('logs-state'), 'connecting');
    let text = 'the stream ended; connecting again';
    try {
      await readLogs(path, seen, control.signal);
    } catch (error) {
      if (control.signal.aborted || error.status === 401) return;
      text = error instanceof Problem ? error.message : 'the stream broke off; connecting again';
    }
    setText($('logs-state'), text);
    await new Promise((resume) => setTimeout(resume, PERIOD));
  }
}

// ---- who asks

function signOut(why) {
  clearTimeout(state.timer);
  following?.abort();
  sessionStorage.removeItem('kvmserver-token');
  Object.assign(state, { token: '', caller: null, functions: [], live: [], readings: [], chosen: '', versions: { etag: '', list: [], events: [] } });
  if ($('confirm').open) $('confirm').close();
  for (const id of ['tiles', 'functions', 'versions', 'history', 'logs', 'daemon']) $(id).replaceChildren();
  tell($('trouble'), '');
  tell($('login-trouble'), why);
  $('board').hidden = $('sign-out').hidden = true;
  charts.show('');
  $('login').hidden = false;
  $('token').value = '';
  $('token').focus();
}

function nameInAddress() {
  try { return decodeURIComponent(location.hash.slice(1)); } catch { return ''; } // no name of ours
}

async function signIn() {
  const info = await api('GET', '/v1/info');
  state.caller = info.caller;
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
$('roll-back').addEventListener('click', () => askRollBack());
$('confirm-yes').addEventListener('click', rollBack);
$('confirm-no').addEventListener('click', () => $('confirm').close());
$('logs-clear').addEventListener('click', () => $('logs').replaceChildren());
document.addEventListener('visibilitychange', () => { if (!document.hidden && state.caller) readAgain(); });
addEventListener('resize', show);
addEventListener('popstate', () => { if (state.caller) choose(nameInAddress(), false, true); }); // Back, or an edited #name
if (state.token) trySignIn();
else signOut('');
