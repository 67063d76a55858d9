// Where the chosen function answers: an address for each route, and a line of curl that reaches it.
import { $, add, keepFocus, setText } from './page.js';
import { state } from './api.js';

const quoted = (word) => `'${word.replaceAll("'", "'\\''")}'`;

// Where the daemon listens. If at all addresses (":8080"), it is also where this page comes from.
function listenerHost({ address, port }) {
  if (!port) return 'localhost'; // a Unix socket
  return address.slice(0, address.lastIndexOf(':')) || location.hostname;
}

// A route is HOST, /PATH/* or HOST/PATH/*; HOST may begin with "*.".
function addressOf(route, daemon) {
  const end = route.indexOf('/') < 0 ? route.length : route.indexOf('/');
  const [host, path] = [route.slice(0, end).replace(/^\*\./, 'any.'), route.slice(end).replace(/\*$/, '') || '/'];
  const [there, { address, port, tls }] = [listenerHost(daemon), daemon];
  const usual = !port || port === (tls ? 443 : 80);
  const url = [tls ? 'https:' : 'http:', '', `${host || there}${usual ? '' : `:${port}`}${path}`].join('/');
  const way = !port ? `--unix-socket ${quoted(address)} `
    : host && host !== there ? `--connect-to ${quoted(`::${there}:${port}`)} ` : '';
  return { url, line: `curl ${way}${quoted(url)}`, opens: port > 0 && URL.canParse(url) };
}

async function copy(line) {
  let said = `Copied: ${line}`;
  try {
    await navigator.clipboard.writeText(line);
  } catch {
    said = 'The browser does not permit copying. Select the line and press Ctrl+C.';
  }
  setText($('routes-said'), said);
}

export function showAddresses(chosen) {
  const { daemon } = state;
  const all = daemon ? chosen.routes.map((route) => addressOf(route, daemon)) : chosen.routes.map((url) => ({ url }));
  keepFocus($('routes'), [chosen.name, all], () => {
    $('routes').replaceChildren();
    setText($('routes-said'), '');
    for (const { url, line, opens } of all) {
      const item = add($('routes'), 'li', {});
      const text = add(item, 'span', {});
      if (opens) add(text, 'a', { href: url, target: '_blank', rel: 'noopener noreferrer', 'data-key': `open ${url}` }, url);
      else text.append(url);
      if (!line) continue;
      add(text, 'code', {}, line);
      add(item, 'button', { class: 'quiet', 'aria-label': `Copy ${line}`, 'data-key': line }, 'Copy').addEventListener('click', () => copy(line));
    }
  });
}
