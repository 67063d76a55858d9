// Elements of the page, and values as people read them. What the API says may be hostile (names, log lines): it becomes
// text nodes and nothing else.

export const $ = (id) => document.getElementById(id);

export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.map(String)); // strings become text nodes
  return element;
}

export const add = (parent, ...what) => parent.appendChild(make(...what));

export function draw(svg, tag, attributes, text = '') {
  const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.textContent = text;
  svg.append(element);
}

export const setText = (element, text) => { if (element.textContent !== text) element.textContent = text; };

export function tell(element, text) {
  setText(element, text);
  element.hidden = text === '';
}

// One line beside a field, which is then marked as invalid; '' if it is right.
export function wrong(id, text) {
  tell($(`${id}-wrong`), text);
  if (text) $(id).setAttribute('aria-invalid', 'true');
  else $(id).removeAttribute('aria-invalid');
  return text !== '';
}

// Focuses the first field that is wrong, of those that were checked.
export function focusWrong(form) { form.querySelector('[aria-invalid]')?.focus(); }

// Makes the options of a <select> anew. What was chosen stays so if it is still there, else it is `otherwise`.
export function keepValue(select, rebuild, otherwise = '') {
  const before = select.value;
  rebuild();
  const found = [before, String(otherwise)].find((value) => [...select.options].some((one) => one.value === value));
  if (found !== undefined) select.value = found;
}

// Pairs of a name and a value into a <dl>.
export function pairs(target, list) {
  target.replaceChildren();
  for (const [name, value] of list) {
    const box = add(target, 'div', {});
    add(box, 'dt', {}, name);
    add(box, 'dd', {}, value);
  }
}

// ---- the focus, when what had it is made anew: `data-key` names the same thing again

const visible = (element) => element?.isConnected && element.checkVisibility();

// The element, what has its key now, the function's name, or the filter: the first of these that is on the page.
export function focusOn(element) {
  const key = element?.dataset?.key;
  const again = key && document.querySelector(`[data-key="${CSS.escape(key)}"]`);
  [element, again, $('name'), $('filter')].find(visible)?.focus();
}

// Makes a list anew if `what` it shows is not what it shows already: a button that is replaced while the mouse is down
// on it is not clicked.
export function keepFocus(list, what, rebuild) {
  const text = JSON.stringify(what);
  if (list.shown === text) return;
  list.shown = text;
  const had = list.contains(document.activeElement) ? document.activeElement : null;
  rebuild();
  if (had && !$('confirm').open) focusOn(had);
}

// ---- values for people

export const count = (value) => value.toLocaleString('en', { maximumFractionDigits: value < 10 ? 1 : 0 });
export const versionsText = (live) => live.map((part) => (part.percent === 100 ? `v${part.version}` : `v${part.version} ${part.percent}%`)).join(' + ');

export function bytes(value) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  for (; value >= 1000 && unit < units.length - 1; unit++) value /= 1024;
  return `${value.toFixed(value < 10 && unit ? 1 : 0)} ${units[unit]}`;
}

export const duration = (us) => (us >= 1e6 ? `${us / 1e6} s` : us >= 1000 ? `${us / 1000} ms` : `${us} µs`);
