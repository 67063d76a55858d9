// Node, Deno and Bun: each generator is used once before the first request.
import http from 'node:http';
import { Buffer } from 'node:buffer';
import nodeCrypto from 'node:crypto';
import process from 'node:process';
import vm from 'node:vm';

const kept = vm.createContext({});

const draw = () => ({
    web_uuid: crypto.randomUUID(),
    node_uuid: nodeCrypto.randomUUID(),
    node_uuid_uncached: nodeCrypto.randomUUID({ disableEntropyCache: true }),
    math: Math.random(),
    new_context: vm.runInNewContext('Math.random()'),
    context: vm.runInContext('Math.random()', kept),
    int: nodeCrypto.randomInt(2 ** 47),
    bytes: nodeCrypto.randomBytes(8).toString('hex'),
    web: Buffer.from(crypto.getRandomValues(new Uint8Array(8))).toString('hex'),
    key: nodeCrypto.createECDH('prime256v1').generateKeys('hex').slice(0, 40),
});

draw();
http.createServer((request, response) => {
    response.end(Object.entries(draw()).map(([name, value]) => `${name}=${value}`).join(' '));
}).listen(Number(process.argv[2]), '127.0.0.1');
