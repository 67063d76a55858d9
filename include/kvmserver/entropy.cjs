// A buffer that kvmserver fills with fresh random bytes before every invocation (include/kvmserver/entropy.h has the whole story).
//
//     const { region } = require('./entropy.cjs');
//     const bytes = region(32);            // a Buffer of 32 bytes, random at first as well; keep it for as long as the program runs
//     let seen = Buffer.alloc(32);
//     if (!bytes.equals(seen)) { bytes.copy(seen); seed(myGenerator, seen); }
//
// This file is in the public domain (CC0). Node, Deno and Bun.
'use strict';
const { randomFillSync } = require('node:crypto');

// The mark, in disguise: it must not stand in memory by accident.
const disguised = [0xaf, 0xd2, 0x82, 0x7a, 0x9b, 0x77, 0x55, 0x67, 0xf9, 0x83, 0xa0, 0xbd, 0xb9, 0x4d, 0xae, 0x9a,
    0xd7, 0x90, 0xcf, 0xc4, 0xee, 0x12, 0x85, 0x57, 0xd7, 0x70, 0x05, 0xff, 0xd4, 0x43, 0x6c, 0x5a];
const kept = []; // a region that is collected would be somebody else's memory

exports.region = function region(bytes) {
    // Not from Buffer's shared pool, and larger than what V8 keeps in its moving heap.
    const memory = Buffer.alloc(Math.max(40 + bytes, 4096));
    disguised.forEach((value, i) => { memory[i] = value ^ 0x5a; });
    memory.writeUInt32LE(bytes, 32);
    kept.push(memory);
    return randomFillSync(memory.subarray(40, 40 + bytes));
};
