// Packages of npm that keep pools of random bytes: each is used before the first request. build.sh makes bundles of it.
import http from 'node:http';
import process from 'node:process';
import { nanoid as nanoid3 } from 'nanoid3';
import { customAlphabet, nanoid as nanoid5 } from 'nanoid5';
import { v4 as uuid11 } from 'uuid11';
import { v4 as uuid8 } from 'uuid8';
import { v4 as uuid9 } from 'uuid9';

const letters = customAlphabet('abcdefghijklmnopqrstuvwxyz', 24);
// With an object of options they draw from their pool, without one from crypto.randomUUID.
const draw = () => ({
    uuid8: uuid8({}),
    uuid9: uuid9({}),
    uuid11: uuid11({}),
    nanoid3: nanoid3(),
    nanoid5: nanoid5(),
    nanoid5_letters: letters(),
});

draw();
http.createServer((request, response) => {
    response.end(Object.entries(draw()).map(([name, value]) => `${name}=${value}`).join(' '));
}).listen(Number(process.argv[2]), '127.0.0.1');
