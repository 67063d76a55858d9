#!/bin/sh
# build.sh FOLDER: the packages and server.mjs in FOLDER, and minified bundles: bundle.cjs, bundle.mjs.
set -eu
cp server.mjs package.json package-lock.json "$1/"
cd "$1"
npm ci --silent --no-audit --no-fund --ignore-scripts
for format in cjs esm; do
    node_modules/.bin/esbuild server.mjs --bundle --minify --platform=node --log-level=error --format=$format \
        --outfile="bundle.$([ "$format" = cjs ] && echo cjs || echo mjs)"
done
