// The failed requests of the chosen function: those alike together, the newest first, with what its program said of them.
import { $, add, keepFocus, setText } from './page.js';
import { pathOf, request } from './api.js';

const MOST_READ = 500; // entries of the log
const MOST_SHOWN = 5;
const MOST_LINES = 20; // of a request's output: a stack trace is among them

let wanted = '';   // the function, and how many of its requests failed
let again = false; // the output of a request may come a little later than the request

const isRequest = ({ stream }) => stream === 'request';

function grouped(entries) {
  const groups = new Map(); // the newest last
  for (const one of entries.filter(isRequest)) {
    const key = `v${one.version} ${one.text}`;
    const { count = 0 } = groups.get(key) ?? {};
    groups.delete(key);
    groups.set(key, { key, count: count + 1, last: one });
  }
  return [...groups.values()].reverse().map((group) => ({
    ...group,
    said: entries.filter((one) => !isRequest(one) && one.request_id === group.last.request_id).slice(-MOST_LINES).map(({ text }) => text),
  }));
}

function list(groups) {
  $('failures').replaceChildren();
  for (const { key, count, last, said } of groups.slice(0, MOST_SHOWN)) {
    const text = add(add($('failures'), 'li', {}), 'span', {});
    add(text, 'b', {}, key);
    const times = count > 1 ? `${count.toLocaleString('en')} times, last ` : '';
    add(text, 'small', {}, `${times}${new Date(last.ms).toLocaleString()} · request ${last.request_id}`);
    if (said.length) add(text, 'code', {}, said.join('\n'));
  }
  const more = groups.length - MOST_SHOWN;
  setText($('failures-note'), more > 0 ? `the last ${MOST_SHOWN} of ${groups.length} kinds` : '');
}

function showGroups(groups) {
  $('failures-part').hidden = !groups.length;
  keepFocus($('failures'), groups, () => list(groups));
}

async function read(name, asked) {
  const reply = await request('GET', `${pathOf(name)}/logs?errors=1&requests=1&tail=${MOST_READ}`);
  const entries = (await reply.text()).split('\n').filter(Boolean).map((line) => JSON.parse(line));
  if (asked === wanted) showGroups(grouped(entries));
}

// `failed`: how many there were since the daemon's start. The log is read when that changes, and once more after that.
export function showFailures(name, failed = 0) {
  const now = name && JSON.stringify([name, failed]);
  if (now === wanted && !again) return;
  if (name !== (wanted && JSON.parse(wanted)[0])) showGroups([]);
  again = now !== wanted;
  wanted = now;
  if (name) read(name, now).catch(() => { again = true; });
}
