// What else the page says of a function: its program, scale and limits. How it is deleted. And how to get a first one.
import { $, bytes, pairs, setText, tell, versionsText } from './page.js';
import { api, chosenFunction, ifMatch, mayDeploy, pathOf, state } from './api.js';
import { ask } from './dialog.js';
import { authorText } from './versions.js';

// Keys of the manifest that are limits, as docs/LIMITS.md has them.
const LIMITS = [
  ['max-request-time', 'request without progress'], ['max-request-total', 'request in all'], ['max-request-cpu', 'CPU time of a request'],
  ['max-request-memory', 'memory of a request'], ['max-main-memory', 'memory of the program'], ['max-address-space', 'address space'], ['limit-request-memory', 'memory kept after a request'],
];
const isMemory = (key) => key.endsWith('memory') || key === 'max-address-space';

function limitText(key, value) {
  if (typeof value !== 'number') return String(value);
  return isMemory(key) ? `${value} MiB` : `${value} s`;
}

// Program and permissions of one version, by its manifest, and who deployed it.
function programOf({ version, manifest, bytes: size, snapshot }) {
  const { program, args = [] } = manifest.run ?? {};
  const allowed = Object.entries(manifest).filter(([key]) => key.startsWith('allow-'));
  const event = state.versions.events.find(({ action, subject }) => action === 'deploy' && subject === `v${version}`);
  return [
    ['program', program && [program, ...args].join(' ')], ['deployed by', event && authorText(event.author)],
    ['snapshot', `${bytes(size)}, ${snapshot.slice(0, 19)}…`], ...allowed.map(([key, value]) => [key, [value].flat().join(', ')]),
  ].filter(([, value]) => value);
}

// Of one version, by its manifest. What it does not set is the daemon's to choose.
function settingsOf({ manifest, ceilings }) {
  const scale = manifest.function?.scale ?? {};
  const limits = LIMITS.filter(([key]) => manifest[key] !== undefined).map(([key, name]) => [name, limitText(key, manifest[key])]);
  const machines = manifest.function?.ephemeral === false
    ? [['state', 'kept from request to request, in one machine'], ['requests at once', String(scale.concurrency ?? 32)]]
    : [
      ['kept machines', String(scale.min ?? 0)], ['most machines', String(scale.max ?? 'as the daemon has threads')],
      ['idle until stopped', String(scale.idle ?? 'as the daemon says')],
    ];
  return [
    ...machines, ['queue', `${scale.queue ?? 1024} requests`],
    ['longest wait', String(scale['queue-timeout'] ?? '30s')], ...limits,
    ...Object.entries(ceilings ?? {}).map(([key, value]) => [`ceiling ${key}`, typeof value === 'object' ? JSON.stringify(value) : String(value)]),
  ];
}

export function showSettings() {
  const versions = state.versions.details?.live_versions ?? [];
  const main = versions.reduce((most, one) => (one.percent > (most?.percent ?? 0) ? one : most), null);
  $('settings-part').hidden = !main;
  $('delete-part').hidden = !mayDeploy();
  if (!main) return;
  setText($('settings-of'), `of v${main.version}`);
  pairs($('settings'), [...programOf(main), ...settingsOf(main)]);
}

export function showFirstSteps(none) {
  $('first-steps').hidden = !none;
  tell($('first-steps-note'), mayDeploy() ? '' : `This token (${(state.caller?.scopes ?? []).join(', ')}) may not deploy.`);
  setText($('first-steps-login'), `kvmserver login ${location.origin} --name here`);
}

function askDelete() {
  const chosen = chosenFunction();
  if (!chosen) return;
  ask({
    title: `Delete ${chosen.name}?`,
    text: `Live now: ${versionsText(chosen.live) || 'nothing'}. It is lost for good: ${chosen.versions} ${chosen.versions === 1 ? 'version' : 'versions'}, routes, environment, secrets and history.`,
    yes: 'Delete',
    danger: true,
    typed: chosen.name,
    act: async () => {
      await api('DELETE', pathOf(chosen.name), { headers: ifMatch(chosen.etag) });
      return `Done: ${chosen.name} is deleted`;
    },
  });
}

$('delete').addEventListener('click', askDelete);
