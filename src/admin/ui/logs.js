// The log lines of the chosen function, or of all.
import { $, add, make, setText } from './page.js';
import { Problem, pathOf, request, state } from './api.js';

const MOST_LINES = 1000;    // on the page
const MOST_BYTES = 1 << 20; // of one line that has no end yet
const PAUSE = 2000;         // ms before it connects again

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

export const stopFollowing = () => following?.abort();

export async function follow() {
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
    await new Promise((resume) => setTimeout(resume, PAUSE));
  }
}

$('logs-clear').addEventListener('click', () => $('logs').replaceChildren());
