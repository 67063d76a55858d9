// Charts of the chosen function over an hour, a day or a week, from /v1/functions/{name}/measurements.
import { $, draw, tell } from './page.js';
import { pathOf, request } from './api.js';

const SVG = 'http://www.w3.org/2000/svg';
const HEIGHT = 130;
const SPANS = [
  { span: '1h', label: '1 hour', step: 'a minute', refresh: 5000 },
  { span: '24h', label: '24 hours', step: '10 minutes', refresh: 30_000 },
  { span: '7d', label: '7 days', step: 'an hour', refresh: 60_000 },
];
const whole = (value) => value.toLocaleString('en');
const latency = (us) => (us === null ? '–' : `≤ ${us >= 1e6 ? `${us / 1e6} s` : us >= 1000 ? `${us / 1000} ms` : `${us} µs`}`);
const CHARTS = [
  { id: 'requests', title: 'Requests', text: whole, lines: [{ key: 'requests' }] },
  { id: 'errors', title: 'Errors', text: whole, lines: [{ key: 'errors', class: 'bad' }] },
  { id: 'latencies', title: 'Latency', text: latency, gaps: true,
    lines: [{ key: 'p99_us', name: '99%', class: 'third' }, { key: 'p95_us', name: '95%', class: 'second' }, { key: 'p50_us', name: 'median' }] },
  { id: 'cold-starts', title: 'Cold starts', text: whole, lines: [{ key: 'cold_starts' }] },
];
const COLUMNS = [['requests', whole], ['errors', whole], ['p50_us', latency], ['p95_us', latency], ['p99_us', latency], ['cold_starts', whole]];
const HEADS = ['Time', 'Requests', 'Errors', 'Median', '95%', '99%', 'Cold starts'];

let name = '';       // of the function that is shown
let chosen = SPANS[0];
let shown = null;    // {from, to, step, points by the step's start in ms}, of `name` and `chosen`
let due = 0;         // when to ask again (performance.now)
let asking = null;   // AbortController

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children); // strings become text nodes
  return element;
}

const clock = (ms) => new Date(ms).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' });
const day = (ms) => new Date(ms).toLocaleDateString([], { weekday: 'short', day: 'numeric' });
const when = (ms) => (chosen.span === '1h' ? clock(ms) : `${day(ms)} ${clock(ms)}`);

// ---- what a chart says, for those who do not see it as well

const valueOf = (point, line, chart) => point?.[line.key] ?? (chart.gaps ? null : 0);

function times() {
  const all = [];
  for (let ms = shown.from; ms <= shown.to; ms += shown.step) all.push(ms);
  return all;
}

function saying(chart) {
  const points = [...shown.points.values()];
  const part = (line) => {
    const values = points.map((point) => valueOf(point, line, chart)).filter((value) => value !== null);
    const last = valueOf(shown.points.get(shown.to), line, chart);
    const most = values.length ? Math.max(...values) : valueOf(undefined, line, chart);
    return `${line.name ? `${line.name}: ` : ''}most ${chart.text(most)}, now ${chart.text(last)}`;
  };
  const sum = chart.gaps ? '' : `${whole(points.reduce((all, point) => all + point[chart.lines[0].key], 0))} in all; in ${chosen.step}: `;
  return sum + chart.lines.map(part).reverse().join('; ');
}

// ---- drawing

function drawChart(chart) {
  const svg = $(`chart-${chart.id}`);
  const width = Math.max(svg.clientWidth, 120);
  const [top, bottom] = [14, HEIGHT - 16];
  svg.setAttribute('viewBox', `0 0 ${width} ${HEIGHT}`);
  svg.replaceChildren();
  const steps = times();
  const most = Math.max(1, ...chart.lines.flatMap((line) => [...shown.points.values()].map((point) => point[line.key] ?? 0)));
  const x = (i) => ((i + 0.5) * width) / steps.length;
  const y = (value) => bottom - (value / most) * (bottom - top);
  draw(svg, 'line', { class: 'axis', x1: 0, x2: width, y1: bottom, y2: bottom });
  draw(svg, 'text', { x: 0, y: 10 }, chart.text(chart.gaps && !shown.points.size ? null : most));
  for (const [i, anchor] of [[0, 'start'], [Math.floor(steps.length / 2), 'middle'], [steps.length - 1, 'end']])
    draw(svg, 'text', { x: anchor === 'start' ? 0 : anchor === 'end' ? width : x(i), y: HEIGHT - 3, 'text-anchor': anchor }, chosen.span === '7d' ? day(steps[i]) : clock(steps[i]));
  for (const line of chart.lines) {
    const values = steps.map((ms) => valueOf(shown.points.get(ms), line, chart));
    const kind = line.class ?? '';
    if (!chart.gaps) { // columns
      values.forEach((value, i) => {
        if (value) draw(svg, 'rect', { class: `column ${kind}`, x: (x(i) - (width / steps.length) * 0.4).toFixed(1), width: (width / steps.length * 0.8).toFixed(1), y: y(value).toFixed(1), height: (bottom - y(value)).toFixed(1) });
      });
      continue;
    }
    const path = []; // a stroke for each run of steps with requests; a step alone is a dot
    values.forEach((value, i) => {
      if (value === null) return;
      const [before, after] = [values[i - 1] ?? null, values[i + 1] ?? null];
      path.push(`${before === null ? 'M' : 'L'}${x(i).toFixed(1)} ${y(value).toFixed(1)}`);
      if (before === null && after === null) draw(svg, 'circle', { class: `point ${kind}`, cx: x(i).toFixed(1), cy: y(value).toFixed(1), r: 2.5 });
    });
    draw(svg, 'path', { class: `line ${kind}`, d: path.join('') });
  }
}

function fillTable() {
  if (!$('chart-table').open) return;
  const rows = [...shown.points].reverse().map(([ms, point]) => make('tr', {}, make('th', { scope: 'row' }, when(ms)), ...COLUMNS.map(([key, text]) => make('td', {}, text(point[key])))));
  $('chart-rows').replaceChildren(...rows);
}

function showAll() {
  if (!shown) return;
  for (const chart of CHARTS) {
    const text = saying(chart);
    $(`chart-${chart.id}-note`).textContent = text;
    $(`chart-${chart.id}`).setAttribute('aria-label', `${chart.title} of the last ${chosen.label}. ${text}`);
    drawChart(chart);
  }
  fillTable();
}

function clear() {
  shown = null;
  due = 0;
  asking?.abort();
  asking = null;
  $('chart-rows').replaceChildren();
  $('chart-trouble').hidden = true;
  for (const chart of CHARTS) {
    $(`chart-${chart.id}`).replaceChildren();
    $(`chart-${chart.id}`).setAttribute('aria-label', `${chart.title}: not loaded`);
    $(`chart-${chart.id}-note`).textContent = '';
  }
}

// ---- asking

async function ask() {
  due = performance.now() + chosen.refresh;
  asking?.abort();
  const control = asking = new AbortController();
  try {
    const reply = await (await request('GET', `${pathOf(name)}/measurements?span=${chosen.span}`, { signal: control.signal })).json();
    if (control.signal.aborted) return;
    const [from, to] = [Date.parse(reply.from), Date.parse(reply.to)];
    shown = { from, to, step: reply.step_seconds * 1000, points: new Map(reply.points.map((point) => [Date.parse(point.time), point])) };
    tell($('chart-trouble'), '');
    showAll();
  } catch (error) {
    if (!control.signal.aborted) tell($('chart-trouble'), error.message);
  } finally {
    if (asking === control) asking = null;
  }
}

function choose(span) {
  if (span === chosen) return;
  chosen = span;
  clear();
  if (name) ask();
}

function build() {
  const choice = make('fieldset', { id: 'chart-span' }, make('legend', {}, 'Charts of the last'));
  for (const span of SPANS) {
    const input = make('input', { type: 'radio', name: 'chart-span', value: span.span, id: `span-${span.span}` });
    input.checked = span === chosen;
    input.addEventListener('change', () => choose(span));
    choice.append(make('label', {}, input, make('span', {}, span.label)));
  }
  const figures = CHARTS.map((chart) => {
    const caption = make('figcaption', {}, chart.title);
    for (const line of chart.lines.filter((one) => one.name).reverse()) caption.append(make('i', { class: `key ${line.class ?? ''}` }), line.name);
    caption.append(make('span', { id: `chart-${chart.id}-note`, class: 'dim' }));
    const svg = document.createElementNS(SVG, 'svg');
    for (const [key, value] of Object.entries({ id: `chart-${chart.id}`, role: 'img', 'aria-label': `${chart.title}: not loaded` })) svg.setAttribute(key, value);
    return make('figure', {}, caption, svg);
  });
  const table = make('table', {}, make('thead', {}, make('tr', {}, ...HEADS.map((text) => make('th', { scope: 'col' }, text)))), make('tbody', { id: 'chart-rows' }));
  const details = make('details', { id: 'chart-table' }, make('summary', {}, 'As a table'), make('div', { tabindex: '0', role: 'region', 'aria-label': 'Measurements' }, table));
  details.addEventListener('toggle', () => { if (shown) fillTable(); });
  $('charts').append(choice, make('p', { id: 'chart-trouble', class: 'trouble', role: 'alert', hidden: '' }), make('div', { class: 'charts' }, ...figures), details);
}

// `of`: the chosen function, '' for none. Called whenever the page has news.
export function showCharts(of) {
  if (!$('chart-span')) build();
  if (of !== name) {
    name = of;
    clear();
  }
  if (!name) return;
  if (!asking && performance.now() >= due) ask();
}

addEventListener('resize', () => { if (name) showAll(); });
