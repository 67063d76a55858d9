// Environment and secrets of the chosen function. A secret's value goes in and is never shown.
import { $, add, focusWrong, keepFocus, setText, tell, wrong } from './page.js';
import { api, changed, chosenFunction, ifMatch, mayDeploy, pathOf, state } from './api.js';
import { ask } from './dialog.js';

const MOST_SHOWN = 200; // characters of a value in the list

// The two differ in their words and in what may be seen.
const env = { id: 'env', path: 'env', what: 'variable' };
const secret = { id: 'secret', path: 'secrets', what: 'secret' };

function nameTrouble(name) {
  return /^[A-Za-z_][A-Za-z0-9_]*$/.test(name) ? '' : 'A name has letters, digits and _, and does not begin with a digit.';
}

function askUnset(kind, name) {
  const [chosen, { etag }] = [chosenFunction(), state.versions];
  if (!chosen) return;
  ask({
    title: `Unset the ${kind.what} ${name}?`,
    text: `${chosen.name} loses it${kind === secret ? ', and its value is kept nowhere' : ''}. Requests in flight finish with it.`,
    yes: 'Unset',
    danger: true,
    act: async () => {
      await api('DELETE', `${pathOf(chosen.name)}/${kind.path}/${encodeURIComponent(name)}`, { headers: ifMatch(etag) });
      return `Done: ${name} is unset`;
    },
  });
}

function change(kind, name, value) {
  $(`${kind.id}-name`).value = name;
  $(`${kind.id}-value`).value = value;
  for (const part of ['name', 'value']) wrong(`${kind.id}-${part}`, '');
  $(`${kind.id}-value`).focus();
}

function list(kind, values) {
  const target = $(`${kind.id}-list`);
  target.replaceChildren();
  for (const { name, value = '', note } of values) {
    const item = add(target, 'li', {});
    const text = add(item, 'span', {});
    add(text, 'code', {}, name);
    add(text, 'small', {}, note ?? (value.length > MOST_SHOWN ? `${value.slice(0, MOST_SHOWN)}…` : value));
    if (!mayDeploy()) continue;
    const button = (word, act) => add(item, 'button', { class: 'quiet', 'aria-label': `${word} ${name}`, 'data-key': `${kind.id}-${word}-${name}` }, word).addEventListener('click', act);
    button('Change', () => change(kind, name, value));
    button('Unset', () => askUnset(kind, name));
  }
  target.hidden = !values.length;
  $(`${kind.id}-none`).hidden = !state.versions.details || values.length > 0;
}

async function submit(kind, event) {
  event.preventDefault();
  const [chosen, { etag }] = [chosenFunction(), state.versions];
  const [name, value] = [$(`${kind.id}-name`).value.trim(), $(`${kind.id}-value`).value];
  const bad = [wrong(`${kind.id}-name`, nameTrouble(name)), wrong(`${kind.id}-value`, kind === secret && !value ? 'A secret needs a value.' : '')];
  if (bad.includes(true)) return focusWrong($(`${kind.id}-form`));
  if (!chosen || !etag || $(`${kind.id}-set`).disabled) return;
  $(`${kind.id}-set`).disabled = true;
  tell($(`${kind.id}-trouble`), '');
  setText($(`${kind.id}-said`), '');
  try {
    const { warnings = [] } = await api('PUT', `${pathOf(chosen.name)}/${kind.path}/${encodeURIComponent(name)}`, { body: { value }, headers: ifMatch(etag) });
    $(`${kind.id}-form`).reset();
    setText($(`${kind.id}-said`), `${name} is set. ${warnings.length ? warnings.join(' ') : 'The next requests get it.'}`);
    $(`${kind.id}-name`).focus();
  } catch (error) {
    tell($(`${kind.id}-trouble`), error.message);
  }
  $(`${kind.id}-set`).disabled = false;
  changed();
}

export function showValues(fresh) {
  const { details, secrets } = state.versions;
  const variables = Object.entries(details?.env ?? {}).map(([name, value]) => ({ name, value }));
  const names = secrets.map(({ name, changed: at }) => ({ name, note: `set ${new Date(at).toLocaleString()}` }));
  for (const [kind, values] of [[env, variables], [secret, names]]) {
    keepFocus($(`${kind.id}-list`), [state.chosen, details !== null, values, mayDeploy()], () => list(kind, values));
  }
  for (const { id } of [env, secret]) {
    $(`${id}-form`).hidden = !mayDeploy();
    if (!fresh) continue;
    $(`${id}-form`).reset();
    for (const part of ['name', 'value']) wrong(`${id}-${part}`, '');
    setText($(`${id}-said`), '');
    tell($(`${id}-trouble`), '');
  }
}

for (const kind of [env, secret]) $(`${kind.id}-form`).addEventListener('submit', (event) => submit(kind, event));
