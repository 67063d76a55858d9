// What the page knows, how it asks the daemon, and what it may.

export const unread = () => ({ etag: '', list: [], events: [], details: null, secrets: [] });
export const state = {
  token: sessionStorage.getItem('kvmserver-token') ?? '',
  caller: null,      // of /v1/info
  daemon: null,      // of /v1/info
  functions: [],     // of /v1/functions
  live: [],          // of /v1/live
  bounds: [],        // upper ends of the latency buckets, in us; one more bucket is above the last
  readings: [],      // {at, sums by function}, oldest first
  chosen: '',        // name of a function
  versions: unread(), // of the chosen function, and the rest that changes with its ETag
  timer: 0,
};

export class Problem extends Error {
  constructor(status, document) {
    const { title = `Status ${status}`, detail = '', hint = '' } = document;
    super(`${title}${detail && `: ${detail}`}${hint && `\nHint: ${hint}`}`);
    this.status = status;
    this.detail = detail;
  }
}

// The reply, whatever its status.
export async function send(method, path, { headers = {}, signal, ...more }) {
  try {
    return await fetch(path, {
      method, signal, cache: 'no-store', credentials: 'omit', redirect: 'error', ...more,
      headers: { Authorization: `Bearer ${state.token}`, ...headers },
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Problem(0, { title: 'The daemon does not answer', detail: error.message, hint: 'does kvmserver serve still run? The page tries again by itself' });
  }
}

export async function request(method, path, { body, ...more } = {}) {
  const reply = await send(method, path, { body: body && JSON.stringify(body), ...more });
  if (!reply.ok) throw new Problem(reply.status, await reply.json().catch(() => ({})));
  return reply;
}
export const api = async (method, path, more) => (await request(method, path, more)).json();
export const pathOf = (name) => `/v1/functions/${encodeURIComponent(name)}`;

export const chosenFunction = () => state.functions.find((one) => one.name === state.chosen);
export const ifMatch = (etag) => ({ 'If-Match': `"${etag}"` }); // not if somebody changed the function meanwhile

const may = (what) => state.caller?.scopes.some((scope) => scope === what || scope === 'admin') ?? false;
export const mayInvoke = () => may('invoke');
export const mayDeploy = () => may('deploy');

// After a change by this page: what it shows is read again at once.
export const changed = () => document.dispatchEvent(new Event('kvmserver-changed'));
