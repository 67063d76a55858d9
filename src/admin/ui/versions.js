// The versions of the chosen function, its history, and rolling back.
import { $, add, bytes, setText, tell, versionsText } from './page.js';
import { api, changed, mayDeploy, pathOf, state } from './api.js';

// The versions that roll back could choose, as the API does without a version: ready ones before the live one.
function olderVersions() {
  const live = state.versions.list.reduce((most, one) => (one.percent > (most?.percent ?? 0) ? one : most), null);
  return live ? state.versions.list.filter((one) => one.version < live.version && one.state === 'ready') : [];
}

export function showVersions() {
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
  changed();
}

$('roll-back').addEventListener('click', () => askRollBack());
$('confirm-yes').addEventListener('click', rollBack);
$('confirm-no').addEventListener('click', () => $('confirm').close());
