// Which page of the area is the i-th that a request dirties: for guest and host. The number of pages is a power of two.
#pragma once
static inline unsigned long scattered_page(unsigned long i, unsigned long pages) { return i * 7919 % pages; }
