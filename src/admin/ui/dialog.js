// One question at a time, about a change: it is asked, it says what happened, and it gives the focus back.
import { $, focusOn, setText, tell, wrong } from './page.js';
import { changed } from './api.js';

let question = null; // what ask() was given; null once it is answered
let opener = null;   // the element that had the focus

function open(title, text, possible) {
  if (!$('confirm').open) opener = document.activeElement;
  setText($('confirm-title'), title);
  tell($('confirm-text'), text);
  tell($('confirm-result'), '');
  $('confirm-yes').hidden = !possible;
  $('confirm-yes').disabled = false;
  $('confirm-message').value = $('confirm-name').value = '';
  wrong('confirm-name', '');
  setText($('confirm-no'), possible ? 'Cancel' : 'Close');
  if (!$('confirm').open) $('confirm').showModal();
}

function report(text, trouble) {
  question = null;
  $('confirm-result').className = trouble ? 'trouble' : '';
  tell($('confirm-result'), text);
  $('confirm-yes').hidden = $('confirm-reason').hidden = $('confirm-typed').hidden = true;
  setText($('confirm-no'), 'Close');
  $('confirm-no').focus(); // the field or button that had it is gone
}

// `act` makes the change and returns what happened. `reason`: asks for one, which `act` gets. `typed`: what must be typed
// first. `danger`: what is lost stays lost.
export function ask({ title, text, yes, act, reason = false, typed = '', danger = false }) {
  question = { act, typed };
  open(title, text, true);
  $('confirm-reason').hidden = !reason;
  $('confirm-typed').hidden = !typed;
  setText($('confirm-name-wanted'), typed);
  setText($('confirm-yes'), yes);
  $('confirm-yes').className = danger ? 'danger' : 'strong';
  $(typed ? 'confirm-name' : 'confirm-no').focus();
}

// What cannot even be asked.
export function refuse(title, error) {
  open(title, '', false);
  report(error.message, true);
}

export const closeDialog = () => { if ($('confirm').open) $('confirm').close(); };

async function answer(event) {
  event.preventDefault();
  if (!question || $('confirm-yes').disabled) return;
  const { act, typed } = question;
  if (typed && $('confirm-name').value.trim() !== typed) {
    wrong('confirm-name', `This is not ${typed}.`);
    return $('confirm-name').focus();
  }
  wrong('confirm-name', '');
  $('confirm-yes').disabled = true;
  try {
    report(await act($('confirm-message').value.trim()), false);
  } catch (error) {
    report(error.message, true);
  }
  changed();
}

$('confirm-form').addEventListener('submit', answer);
$('confirm-no').addEventListener('click', closeDialog);
$('confirm').addEventListener('close', () => {
  if ($('confirm').open) return; // the event comes with the next frame: it may be of the question before
  question = null;
  const at = document.activeElement; // the browser gives it back, unless what had it is gone
  if (!at || at === document.body || $('confirm').contains(at)) focusOn(opener);
});
