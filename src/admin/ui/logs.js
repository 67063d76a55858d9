// The log lines of the chosen function, or of all.
import { $, add, make, setText } from './page.js';
import { Problem, pathOf, request, state } from './api.js';

const MOST_LINES = 1000;    // on the page
const MOST_BYTES = 1 << 20; // of one line that has no end yet
const PAUSE = 2000;         // ms before it connects again

let following = null; // AbortController of the stream
let asked = '';       // the query of what is on the page
let goesOn = true;    // whether it follows

const kindOf = ({ stream, status }) => (stream !== 'request' ? stream : status === 0 || status >= 500 ? 'request failed' : 'request');

function addLines(lines) {
  const box = $('logs');
  const atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 30;
  for (const line of lines) {
    const row = make('div', { class: kindOf(line) });
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
  setText($('logs-state'), goesOn ? 'following' : 'reading');
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

export const stopFollowing = () => following?.abort();

// What is searched for. A search by time shows more of the past than a look at the end.
function query() {
  const [grep, since] = [$('logs-grep').value, $('logs-since').value];
  const wanted = new URLSearchParams({ tail: since || grep ? MOST_LINES : 200 });
  if (grep) wanted.set('grep', grep);
  if (since) wanted.set('since', since);
  for (const name of ['errors', 'requests']) if ($(`logs-${name}`).checked) wanted.set(name, 1);
  return String(wanted);
}

// Reads the lines anew, and follows unless that is stopped.
export async function follow() {
  stopFollowing();
  const control = following = new AbortController();
  $('logs').replaceChildren();
  asked = query();
  setText($('logs-of'), state.chosen ? `of ${state.chosen}` : 'of all functions');
  setText($('logs-follow'), goesOn ? 'Stop' : 'Follow');
  if (!state.chosen && state.caller.prefix) return setText($('logs-state'), 'choose a function: this token is not for all');
  const path = `${state.chosen ? `${pathOf(state.chosen)}/logs` : '/v1/logs'}?${asked}${goesOn ? '&follow=1' : ''}`;
  const seen = { id: 0 };
  while (!control.signal.aborted) {
    setText($('logs-state'), 'connecting');
    let text = 'the stream ended; connecting again';
    try {
      await readLogs(path, seen, control.signal);
      if (!goesOn) return setText($('logs-state'), stoppedText());
    } catch (error) {
      if (control.signal.aborted || error.status === 401) return;
      text = error instanceof Problem ? error.message : 'the stream broke off; connecting again';
    }
    setText($('logs-state'), text);
    await new Promise((resume) => setTimeout(resume, PAUSE));
  }
}

function stoppedText() {
  const lines = $('logs').children.length;
  return `stopped; ${lines === 1 ? '1 line' : `${lines} lines`}`;
}

// Stopping keeps the lines. Going on reads them anew.
function stopOrGo() {
  goesOn = !goesOn;
  if (goesOn) return follow();
  stopFollowing();
  setText($('logs-follow'), 'Follow');
  setText($('logs-state'), stoppedText());
}

function search(event) {
  event.preventDefault();
  if (state.caller && query() !== asked) follow();
}

for (const name of ['submit', 'change', 'search']) $('logs-form').addEventListener(name, search);
$('logs-follow').addEventListener('click', stopOrGo);
$('logs-clear').addEventListener('click', () => $('logs').replaceChildren());
