'use strict';
const http = require('node:http');

const kMost = 10_000; // tenants; the names come from clients
const counts = new Map();

const server = http.createServer((request, response) => {
  const tenant = new URL(request.url, 'http://counter').pathname.slice(1);
  if (tenant === '') {
    response.setHeader('Content-Type', 'application/json');
    response.end(JSON.stringify(Object.fromEntries(counts)));
  } else if (!counts.has(tenant) && counts.size >= kMost) {
    response.writeHead(507).end('too many tenants\n');
  } else {
    counts.set(tenant, (counts.get(tenant) ?? 0) + 1);
    response.end(`${tenant} ${counts.get(tenant)}\n`);
  }
});

server.listen(Number(process.argv[2] ?? 8080), '127.0.0.1');
