'use strict';
const http = require('node:http');
const { createElement } = require('react');
const { renderToString } = require('react-dom/server');
const { Page } = require('./page.js');

const port = Number(process.argv[2] ?? 8080);
let count = 0;

async function echo(request, response) {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  response.end(Buffer.concat(chunks));
}

const server = http.createServer((request, response) => {
  const { method, url } = request;
  const bytes = /^\/bytes\/(\d{1,9})$/.exec(url);
  if (method === 'POST' && url === '/echo') {
    echo(request, response).catch(() => response.destroy());
  } else if (url === '/') {
    response.setHeader('Content-Type', 'text/html; charset=utf-8');
    response.end('<!DOCTYPE html>' + renderToString(createElement(Page)));
  } else if (url === '/count') {
    response.end(`${++count}\n`);
  } else if (bytes) {
    response.end(Buffer.alloc(Number(bytes[1]), 'abcdefghijklmnopqrstuvwxyz'));
  } else if (url === '/spin') {
    for (;;);
  } else if (url === '/crash') {
    process.exit(3);
  } else {
    response.writeHead(404).end('not found\n');
  }
});

server.keepAliveTimeout = 60_000; // ms; 5 s is less than a hundred clients need on a slow host
server.listen(port, '127.0.0.1', () => console.log(`listening on ${port}`));
