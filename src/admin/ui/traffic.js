// Splits the requests of the chosen function between two versions.
import { $, add, keepValue, setText, tell, versionsText } from './page.js';
import { api, chosenFunction, ifMatch, mayDeploy, pathOf, state } from './api.js';
import { ask, refuse } from './dialog.js';

const FIRST_PERCENT = 10; // of a version that gets none yet: a canary

// The one with the most requests keeps what the other does not get.
const mainVersion = () => state.versions.list.reduce((most, one) => (one.percent > (most?.percent ?? 0) ? one : most), null);
const others = () => state.versions.list.filter((one) => one.state === 'ready' && one !== mainVersion());
const other = () => others().find((one) => String(one.version) === $('traffic-version').value);

function wanted() {
  const percent = Number($('traffic-percent').value);
  const parts = [{ version: mainVersion().version, percent: 100 - percent }, { version: other().version, percent }];
  return parts.filter((part) => part.percent > 0).sort((a, b) => a.version - b.version);
}

function showWanted() {
  const percent = $('traffic-percent').value;
  setText($('traffic-output'), `${percent}%`);
  setText($('traffic-preview'), `New requests: ${versionsText(wanted())}`);
  $('traffic-percent').setAttribute('aria-valuetext', `${percent}% to v${other().version}`);
}

function chooseOther() {
  $('traffic-percent').value = other().percent || FIRST_PERCENT;
  showWanted();
}

async function submit(event) {
  event.preventDefault();
  const [chosen, live] = [chosenFunction(), wanted()];
  if (!chosen) return;
  const path = `${pathOf(chosen.name)}/traffic`;
  const headers = ifMatch(state.versions.etag); // as the form shows it
  try {
    const change = await api('PUT', `${path}?dry_run=1`, { body: { live }, headers });
    ask({
      title: `Change the traffic of ${chosen.name}?`,
      text: `Live now: ${versionsText(change.before)}. New requests go to ${versionsText(change.live)}; those in flight finish where they are.`,
      yes: 'Change traffic',
      reason: true,
      act: async (message) => {
        const done = await api('PUT', path, { body: { live, message }, headers });
        return `Done: ${chosen.name} ${versionsText(done.before)} → ${versionsText(done.live)}`;
      },
    });
  } catch (error) {
    refuse(`The traffic of ${chosen.name} cannot be changed`, error);
  }
}

export function showTraffic(fresh) {
  const some = mayDeploy() && mainVersion() ? others() : [];
  $('traffic-part').hidden = !some.length;
  if (!some.length) return $('traffic-version').replaceChildren();
  const shown = `${state.versions.etag} ${state.chosen}`;
  if (!fresh && $('traffic-form').shown === shown) return; // somebody may be at it
  $('traffic-form').shown = shown;
  setText($('traffic-main'), `v${mainVersion().version}`);
  const second = some.find((one) => one.percent > 0) ?? some[0];
  const list = () => {
    $('traffic-version').replaceChildren();
    for (const { version, percent } of some) add($('traffic-version'), 'option', { value: version }, `v${version}${percent ? ` (${percent}%)` : ''}`);
  };
  keepValue($('traffic-version'), list, second.version);
  chooseOther();
  const live = state.versions.list.filter((one) => one.percent > 0);
  tell($('traffic-note'), live.length > 2 ? `Live now: ${versionsText(live)}. A split here leaves two of them.` : '');
}

$('traffic-form').addEventListener('submit', submit);
$('traffic-version').addEventListener('change', chooseOther);
$('traffic-percent').addEventListener('input', showWanted);
