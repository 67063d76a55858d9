// The versions of the chosen function, its history, and rolling back.
import { $, add, bytes, keepFocus, versionsText } from './page.js';
import { api, chosenFunction, ifMatch, mayDeploy, pathOf, state } from './api.js';
import { ask, refuse } from './dialog.js';

// The versions that roll back could choose, as the API does without a version: ready ones before the live one.
function olderVersions() {
  const live = state.versions.list.reduce((most, one) => (one.percent > (most?.percent ?? 0) ? one : most), null);
  return live ? state.versions.list.filter((one) => one.version < live.version && one.state === 'ready') : [];
}

export function showVersions() {
  keepFocus($('versions'), [state.chosen, state.versions.list, mayDeploy()], listVersions);
}

function listVersions() {
  $('versions').replaceChildren();
  $('roll-back').hidden = !mayDeploy() || !olderVersions().length;
  for (const one of state.versions.list) {
    const item = add($('versions'), 'li', {});
    const text = add(item, 'span', {}, `v${one.version} `);
    if (one.percent) add(text, 'span', { class: 'live' }, one.percent === 100 ? 'live ' : `live ${one.percent}% `);
    add(text, 'small', {}, `${new Date(one.created).toLocaleString()} · ${bytes(one.bytes)}${one.percent ? '' : ` · ${one.state}`}`);
    if (one.percent === 100 || one.state !== 'ready' || !mayDeploy()) continue;
    add(item, 'button', { class: 'quiet', 'data-version': one.version, 'data-key': `make-live-${one.version}` }, 'Make live').addEventListener('click', () => askRollBack(one.version));
  }
}

export const authorText = ({ kind, name }) => (kind === 'user' ? name : `${kind} ${name}`.trim()) || 'somebody';

function changeText(event) {
  const sizes = [event.bytes, event.new_bytes].map((value, i) => value !== undefined && `${bytes(value)}${i ? ' new' : ''}`);
  return [event.change, sizes.filter(Boolean).join(', ')].filter(Boolean).join('; ');
}

export function showHistory() {
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

// Without a version: to the one that was live before.
async function askRollBack(version) {
  const chosen = chosenFunction();
  if (!chosen) return;
  const path = `${pathOf(chosen.name)}/rollback`;
  try {
    const change = await api('POST', `${path}?dry_run=1`, { body: version ? { version } : {} });
    const target = change.live[0].version;
    ask({
      title: `Roll back ${chosen.name}?`,
      text: `Live now: ${versionsText(change.before)}. New requests go to v${target}; those in flight finish where they are.`,
      yes: 'Roll back',
      reason: true,
      act: async (message) => {
        const done = await api('POST', path, { body: { version: target, message }, headers: ifMatch(chosen.etag) });
        return `Done: ${chosen.name} ${versionsText(done.before)} → ${versionsText(done.live)}`;
      },
    });
  } catch (error) {
    refuse(`${chosen.name} cannot be rolled back`, error);
  }
}

$('roll-back').addEventListener('click', () => askRollBack());
