// What the page knows, how it asks the daemon, and what it may.

export const state = {
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

export class Problem extends Error {
  constructor(status, document) {
    const { title = `Status ${status}`, detail = '', hint = '' } = document;
    super(`${title}${detail && `: ${detail}`}${hint && `\nHint: ${hint}`}`);
    this.status = status;
    this.detail = detail;
  }
}

export async function request(method, path, { body, headers = {}, signal } = {}) {
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
export const api = async (method, path, more) => (await request(method, path, more)).json();
export const pathOf = (name) => `/v1/functions/${encodeURIComponent(name)}`;

export const mayDeploy = () => state.caller.scopes.some((scope) => scope === 'deploy' || scope === 'admin');

// After a change by this page: what it shows is read again at once.
export const changed = () => document.dispatchEvent(new Event('kvmserver-changed'));
