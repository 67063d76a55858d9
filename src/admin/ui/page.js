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
