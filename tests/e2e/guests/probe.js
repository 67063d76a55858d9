// A server that tests of the daemon talk to: node probe.js PORT NAME
'use strict';
const http = require('node:http');
const crypto = require('node:crypto');

const [port, name] = [Number(process.argv[2]), process.argv[3] ?? 'probe'];
let count = 0;
let kept = null; // see grow
const waiting = []; // replies that others are waited for with
let values = null; // what the after-restore hook brought

function body(request, then) {
  const chunks = [];
  request.on('data', (chunk) => chunks.push(chunk)).on('end', () => then(Buffer.concat(chunks)));
}

const server = http.createServer((request, response) => {
  const [path, argument] = request.url.split('/').slice(1);
  response.setHeader('Content-Type', 'text/plain');
  if (path === 'name') response.end(name);
  else if (path === 'count') response.end(String(++count));
  else if (path === 'meet') { // answers once so many of these have come
    if (waiting.push(response) >= Number(argument)) for (const each of waiting.splice(0)) each.end('met\n');
  } else if (path === 'headers') response.end(JSON.stringify(request.headers));
  else if (path === 'sleep') setTimeout(() => response.end(`${name} slept\n`), Number(argument));
  else if (path === 'say') {
    console.log(`says ${decodeURIComponent(argument)}`);
    console.error(`mutters ${argument}`);
    response.end('said\n');
  } else if (path === 'babble') { // prints without end
    const lines = Buffer.from('babble' + '\n'.repeat(60000));
    for (;;) require('node:fs').writeSync(1, lines);
  } else if (path === 'throw') throw new Error(decodeURIComponent(argument));
  else if (path === 'die') process.exit(3);
  else if (path === 'half') { // begins to reply, and dies
    response.writeHead(200, { 'Content-Length': '1000' });
    response.write('x'.repeat(10), () => process.exit(3));
  } else if (path === 'spin') for (;;);
  else if (path === 'hostile') { // a reply that acts on the origin of whoever shows it
    response.setHeader('Clear-Site-Data', '"*"').setHeader('Set-Cookie', ['a=1; Path=/', 'b=2']).setHeader('Content-Type', 'text/html');
    response.writeHead(302, 'Gone Fishing', { Location: 'https://elsewhere.example/', 'Strict-Transport-Security': 'max-age=1' });
    response.end('<script>document.title = "taken over"</script>');
  } else if (path === 'grow') { // keeps so many MiB, all different from before
    kept = Buffer.alloc(Number(argument) << 20, String(Math.random()));
    response.end('grown\n');
  } else if (path === 'sum') { // of that
    response.end(crypto.createHash('sha256').update(kept).digest('hex'));
  } else if (path === 'much') response.end('m'.repeat(Number(argument)));
  else if (path === 'env') response.end(String(process.env[argument]));
  else if (path === 'need') response.writeHead(process.env[argument] ? 200 : 503).end();
  else if (path === 'values') response.end(JSON.stringify(values));
  else if (path === 'restored') {
    body(request, (text) => {
      values = JSON.parse(text);
      values.method = request.method;
      values.type = request.headers['content-type'];
      Object.assign(process.env, values.env, values.secrets);
      if (process.env.REFUSE) response.writeHead(500).end('will not\n');
      else response.end('thanks\n');
    });
  } else if (path === 'echo') body(request, (bytes) => response.end(bytes));
  else response.writeHead(404).end('not found\n');
});

// A WebSocket as far as an echo needs it: the handshake, then bytes as they are.
server.on('upgrade', (request, socket) => {
  const key = request.headers['sec-websocket-key'] + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11';
  const accept = crypto.createHash('sha1').update(key).digest('base64');
  socket.write(`HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${accept}\r\n\r\n`);
  socket.on('data', (bytes) => socket.write(`${++count}:${bytes}`)).on('end', () => socket.end()).on('error', () => {});
});

server.listen(port, '127.0.0.1', () => console.log(`listening on ${port}`));
