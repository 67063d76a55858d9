'use strict';
// The page: a catalogue of 72 products in plain React, without JSX.
const { createElement: h, Fragment } = require('react');

const kinds = ['Lamp', 'Chair', 'Table', 'Shelf', 'Mirror', 'Carpet'];
const woods = ['oak', 'ash', 'beech', 'walnut', 'pine'];

const products = Array.from({ length: 72 }, (_, i) => ({
  id: 1000 + i,
  name: `${kinds[i % kinds.length]} no. ${i + 1}`,
  wood: woods[i % woods.length],
  cents: 1990 + i * 350,
  stock: (i * 7) % 12,
  tags: ['handmade', i % 2 ? 'indoor' : 'outdoor', i % 3 ? 'new' : 'classic'],
}));

function Price({ cents }) {
  return h('span', { className: 'price' }, `€ ${(cents / 100).toFixed(2)}`);
}

function Stock({ count }) {
  if (count === 0) return h('em', { className: 'stock none' }, 'sold out');
  return h('span', { className: 'stock' }, `${count} in stock`);
}

function Product({ product }) {
  const { id, name, wood, cents, stock, tags } = product;
  return h('article', { id: `product-${id}`, className: 'product', 'data-wood': wood },
    h('h2', null, h('a', { href: `/products/${id}` }, name)),
    h('p', null, `Made of solid ${wood}, oiled & waxed by hand, delivered in "one week" or less.`),
    h('ul', { className: 'tags' }, tags.map((tag) => h('li', { key: tag }, tag))),
    h(Price, { cents }), h(Stock, { count: stock }),
    h('button', { type: 'button', disabled: stock === 0 }, 'Add to basket'));
}

function Navigation({ items }) {
  return h('nav', null, items.map((item) => h('a', { key: item, href: `/${item.toLowerCase()}` }, item)));
}

function Page() {
  return h('html', { lang: 'en' },
    h('head', null, h('meta', { charSet: 'utf-8' }), h('title', null, 'Catalogue')),
    h('body', null,
      h('header', null, h('h1', null, 'Catalogue'), h(Navigation, { items: [...kinds, 'Basket', 'Account'] })),
      h('main', null, products.map((product) => h(Product, { key: product.id, product }))),
      h('footer', null, h(Fragment, null, h('p', null, `${products.length} products`), h('p', null, 'Rendered by React')))));
}

module.exports = { Page };
