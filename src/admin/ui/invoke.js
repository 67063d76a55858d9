// Sends the chosen function a request, and shows its reply.
import { $, add, bytes, focusWrong, keepValue, pairs, setText, tell, wrong } from './page.js';
import { Problem, mayInvoke, pathOf, send, state } from './api.js';

const MOST_SHOWN = 256 * 1024; // characters of a body on the page
let sending = null;            // AbortController

// What is wrong with each field; '' if it is right.
function pathTrouble(path) {
  if (!path.startsWith('/')) return 'A path begins with /.';
  return /[\x00-\x20\x7f#]/.test(path) ? 'Write spaces as %20; # is not sent.' : '';
}

const headerLines = () => $('invoke-headers').value.split('\n').map((line) => line.trim()).filter(Boolean);

function headersTrouble(lines) {
  const bad = lines.find((line) => !/^[-!#$%&'*+.^_`|~0-9A-Za-z]+:/.test(line));
  return bad === undefined ? '' : `“${bad.slice(0, 60)}” is not Name: value.`;
}

// Browsers take only ASCII in a header of ours.
const ascii = (text) => text.replace(/[\x7f-\uffff]/g, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, '0')}`);

function timingText(value) {
  const ms = Number(value);
  return ms >= 1000 ? `${(ms / 1000).toFixed(2)} s` : `${ms.toFixed(ms < 10 ? 2 : 0)} ms`;
}

function replyFacts(reply, text, version) {
  const parts = (reply.headers.get('Server-Timing') ?? '').matchAll(/(\w+);dur=([\d.]+)/g);
  const times = Object.fromEntries([...parts].map(([, name, value]) => [name, timingText(value)]));
  return [
    ['status', text], ['version', version && `v${version}`],
    ['total', times.total], ['queue', times.queue], ['restore', times.restore], ['execution', times.exec],
    ['cold start', times.total && (reply.headers.get('Kvmserver-Cold') ? 'yes' : 'no')],
    ['request id', reply.headers.get('Kvmserver-Request-Id')],
  ].filter(([, value]) => value);
}

// Text, or how much of what else it is.
function bodyText({ body, encoding, body_bytes: size, cut, headers }) {
  if (!size) return '(empty)';
  if (encoding !== 'text' || body.includes('\0')) {
    const type = headers.find(([name]) => name.toLowerCase() === 'content-type')?.[1];
    return `${count(size)} bytes${type ? ` of ${type}` : ''}, not text`;
  }
  return cut || body.length > MOST_SHOWN ? `${body.slice(0, MOST_SHOWN)}\n… cut off here: ${bytes(size)} in all` : body;
}

const count = (value) => value.toLocaleString('en');
async function showReply(reply) {
  const answer = await reply.json().catch(() => ({}));
  if (!reply.ok) {
    pairs($('invoke-facts'), replyFacts(reply, `${reply.status} ${reply.statusText}`.trim()));
    throw new Problem(reply.status, answer);
  }
  pairs($('invoke-facts'), replyFacts(reply, `${answer.status} ${answer.reason}`.trim(), answer.version));
  setText($('invoke-reply-headers'), answer.headers.map((pair) => pair.join(': ')).join('\n') || '(none)');
  setText($('invoke-reply-body'), bodyText(answer));
  $('invoke-reply-parts').hidden = false;
  setText($('invoke-said'), `Status ${answer.status}, ${bytes(answer.body_bytes)}`);
}

function clearReply() {
  pairs($('invoke-facts'), []);
  $('invoke-reply-parts').hidden = true;
  for (const id of ['invoke-reply-body', 'invoke-reply-headers']) setText($(id), '');
  tell($('invoke-trouble'), '');
  setText($('invoke-said'), '');
}

async function submit(event) {
  event.preventDefault();
  if (sending) return;
  const [path, lines] = [$('invoke-path').value.trim(), headerLines()];
  const bad = [wrong('invoke-path', pathTrouble(path)), wrong('invoke-headers', headersTrouble(lines))];
  if (bad.includes(true)) return focusWrong($('invoke-form'));
  const query = new URLSearchParams({ method: $('invoke-method').value, path, reply: 'json' }); // nothing of it acts on this origin
  if ($('invoke-version').value) query.set('version', $('invoke-version').value);
  clearReply();
  setText($('invoke-said'), 'sending');
  setText($('invoke-send'), 'Cancel');
  const control = sending = new AbortController();
  try {
    const headers = lines.length ? { 'Kvmserver-Headers': ascii(JSON.stringify(lines)) } : {};
    const body = $('invoke-body').value || undefined;
    await showReply(await send('POST', `${pathOf(state.chosen)}/invoke?${query}`, { body, headers, signal: control.signal }));
  } catch (error) {
    if (control === sending) { // otherwise another function was chosen
      tell($('invoke-trouble'), control.signal.aborted ? 'Given up: the function may go on with it.' : error.message);
      setText($('invoke-said'), '');
    }
  }
  if (control === sending) settle();
}

function settle() {
  sending = null;
  setText($('invoke-send'), 'Send');
}

export function showInvoke(fresh) {
  $('invoke-part').hidden = !mayInvoke();
  keepValue($('invoke-version'), () => {
    $('invoke-version').replaceChildren();
    add($('invoke-version'), 'option', { value: '' }, 'as traffic goes');
    for (const { version } of state.versions.list.filter((one) => one.state === 'ready')) add($('invoke-version'), 'option', { value: version }, `v${version}`);
  });
  if (!fresh) return;
  const before = sending;
  settle();
  before?.abort();
  $('invoke-form').reset();
  for (const id of ['invoke-path', 'invoke-headers']) wrong(id, '');
  clearReply();
}

$('invoke-form').addEventListener('submit', submit);
$('invoke-send').addEventListener('click', (event) => {
  if (!sending) return; // it submits the form
  event.preventDefault();
  sending.abort();
});
