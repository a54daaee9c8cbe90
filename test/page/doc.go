// Package page drives the built-in page in a headless Chromium, against bin/moongate with thousands of routes, and takes the pictures of docs/dashboard.md
// with -update. It is a module of its own, so that what it needs is not the product's; it must import nothing of the product.
//
// The browser is Debian's chromium-headless-shell or chromium.
package page
